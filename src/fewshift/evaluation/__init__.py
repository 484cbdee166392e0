"""Scores of methods on identical tasks, and tables made of them."""
