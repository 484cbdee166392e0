"""The same small computation on many tensors: those of one shape at once, for the GPU's sake."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

Name = TypeVar("Name", bound=Hashable)


def together(
    function: Callable[..., Tensor], *parts: Mapping[Name, Tensor]
) -> dict[Name, Tensor]:  # name -> (m, n), as often as the function has arguments
    """function(part[name], ...) for every name, called once for each shape on (k, m, n) stacks."""
    groups: dict[tuple[torch.Size, ...], list[Name]] = {}
    for name in parts[0]:
        groups.setdefault(tuple(part[name].shape for part in parts), []).append(name)
    found: dict[Name, Tensor] = {}
    for names in groups.values():
        results = function(*(torch.stack([part[name] for name in names]) for part in parts))
        found |= dict(zip(names, results.unbind(), strict=True))
    return {name: found[name] for name in parts[0]}
