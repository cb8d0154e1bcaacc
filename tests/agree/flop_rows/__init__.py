"""The rows of a survey of FLOP counters, each at its exact count."""
