"""Backbones, preconditioners (Algorithm 1) and the dataset classifier (Algorithm 2)."""
