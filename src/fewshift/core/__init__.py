"""The paper as pure functions: no data, no network, only tensors."""
