"""Torch's modes, which hold for whatever a caller does, and not for a classifier inside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def own_modes() -> Iterator[None]:
    """Neither inference mode nor autocast: adaptation needs gradients, and results must not depend on both.

    What is loaded in inference mode could not be adapted ever after.
    """
    with ExitStack() as modes:
        modes.enter_context(torch.inference_mode(False))
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            modes.enter_context(torch.autocast(device, enabled=False))
        yield
