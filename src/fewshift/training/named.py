"""Copies, zeros, sums, lengths and fingerprints of dictionaries of named tensors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from fewshift.nets.backbone import fingerprint_of
from fewshift.nets.tensor_file import join

Name = TypeVar("Name", bound=Hashable)


def owned(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that an optimizer may change."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def zeros(like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A zero of each one's shape."""
    return {name: torch.zeros_like(tensor) for name, tensor in like.items()}


def square_zeros(like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A zero matrix for the left side of each one."""
    return {name: tensor.new_zeros(len(tensor), len(tensor)) for name, tensor in like.items()}


def stacked(
    tensors: Mapping[str, Tensor], domains: Iterable[str], sites: Iterable[str]
) -> dict[str, Tensor]:  # site -> (K, ...)
    """What `join` made of domains, with the domains of a site in one tensor."""
    return {site: torch.stack([tensors[f"{domain}/{site}"] for domain in domains]) for site in sites}


def length(tensors: Iterable[Tensor]) -> Tensor:  # -> ()
    """The length of all tensors as one vector."""
    total: Tensor = torch.stack(list(torch._foreach_norm(list(tensors)))).norm()
    return total


def together(
    function: Callable[..., Tensor], *parts: Mapping[Name, Tensor]
) -> dict[Name, Tensor]:  # name -> (m, n), as often as the function has arguments
    """function(part[name], ...) for every name, called once for each shape on (k, m, n) stacks.

    A GPU does the same small computation on many tensors of one shape at once.
    """
    groups: dict[tuple[torch.Size, ...], list[Name]] = {}
    for name in parts[0]:
        groups.setdefault(tuple(part[name].shape for part in parts), []).append(name)
    found: dict[Name, Tensor] = {}
    for names in groups.values():
        results = function(*(torch.stack([part[name] for name in names]) for part in parts))
        found |= dict(zip(names, results.unbind(), strict=True))
    return {name: found[name] for name in parts[0]}


def add_up(totals: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Add the values to the totals of the same names."""
    torch._foreach_add_([totals[name] for name in values], list(values.values()))


def add_where(usable: Tensor, totals: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Add the values to the totals of the same names, or nothing where `usable` is false."""
    add_up(totals, {name: torch.where(usable, value, 0.0) for name, value in values.items()})


def fingerprint(parts: Mapping[str, Mapping[str, Tensor]]) -> str:
    """A short hash of names and values, the same on every device."""
    return fingerprint_of(join(parts))[:16]
