"""torchledger: the books of a training run."""
