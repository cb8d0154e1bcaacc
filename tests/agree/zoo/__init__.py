"""The zoo: architectures of transformers, built from configurations on no weights, by family."""
