"""Every tensor that can be reached from a value: what a method holds, without asking it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors in fields, attributes, containers, modules and closures, each once."""
    met: set[int] = set()
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if id(found) in met:
            continue
        met.add(id(found))
        if isinstance(found, Tensor):
            yield found
        else:
            waiting += _inside(found)


def _inside(value: Any) -> list[Any]:
    if value is None or isinstance(value, str | bytes | int | float | type | ModuleType):
        return []
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, nn.Module):
        return [*value.parameters(), *value.buffers()]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, FunctionType):
        return list(value.__closure__ or ())
    if isinstance(value, CellType):
        return [] if not _is_filled(value) else [value.cell_contents]
    slots = [getattr(value, f.name, None) for f in fields(value)] if is_dataclass(value) else []
    return [*slots, *getattr(value, "__dict__", {}).values()]


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
