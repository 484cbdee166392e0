"""The torch device that a user has named."""

from __future__ import annotations

import torch

from fewshift.errors import FewshiftError


def device_named(name: str, said: str, remedy: str) -> torch.device:
    """The device of this name; for "auto" a GPU where there is one. `said` and `remedy` are for an error."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, TypeError) as problem:
        reason = str(problem).split("\n")[0]
        if reason.startswith("Expected one of"):  # a list of twenty, most of them exotic
            reason = "torch knows none of this name"
        raise FewshiftError(f"{said} cannot be used here ({reason}): try {remedy}") from None
    return device
