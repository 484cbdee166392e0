"""Shared fixtures: where development data lie, and one thread a test process."""

from pathlib import Path

import pytest
import torch

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # tests run in parallel processes


@pytest.fixture(scope="session")
def md_mini() -> Path:
    """Sixteen small real domains in Meta-Dataset's layout; only on development machines."""
    if not (SHARED / "md-mini").is_dir():
        pytest.skip("the md-mini development data are not beside this checkout")
    return SHARED / "md-mini"


@pytest.fixture(scope="session")
def official_specs() -> Path:
    """The ten official dataset_spec.json files; only on development machines."""
    if not (SHARED / "md-specs").is_dir():
        pytest.skip("the official dataset specs are not beside this checkout")
    return SHARED / "md-specs"
