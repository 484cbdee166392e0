"""Shared fixtures: where development data lie, one thread a test process, the same examples every time."""

import os
import signal
from pathlib import Path

import hypothesis
import pytest
import torch

SHARED = Path(__file__).resolve().parents[2] / "shared"

# A change must not fail by a draw that has nothing to do with it. `--hypothesis-profile default` draws anew.
hypothesis.settings.register_profile("same every time", derandomize=True)
hypothesis.settings.load_profile("same every time")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # tests run in parallel processes
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # and so do the commands that they start


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_is_heard() -> None:
    """What a shell runs in the background is deaf to Ctrl-C, and commands under test would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
