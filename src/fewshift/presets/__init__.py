"""Functions that return complete runs."""
