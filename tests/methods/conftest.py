"""Kits for the tests of methods."""

import pytest
from tiny_kits import bare_kit, full_kit

from fewshift.nets.kit import Kit


@pytest.fixture(scope="session")
def tiny_kit() -> Kit:
    """A kit that every method can be built from."""
    return full_kit()


@pytest.fixture(scope="session")
def untrained_kit() -> Kit:
    """A kit with a backbone and nothing else."""
    return bare_kit()
