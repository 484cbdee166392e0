"""Modules whose weights come from a file: none are drawn first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone

M = TypeVar("M", bound=nn.Module)
DRAWS = (Tensor.normal_, Tensor.uniform_)


class _NothingFilled(TorchFunctionMode):
    """Leaves out what initialisers fill in: on a tensor without values it would import torch's compiler."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func in DRAWS:
            return args[0]
        return given["out"] if "out" in given else func(*args, **given)


def blank(make: Callable[[], M]) -> M:
    """The module with zeros for weights, to be filled: nothing is drawn."""
    module = _without_values(make)
    own = module.state_dict()
    zeros = {name: torch.zeros(t.shape, dtype=t.dtype, device="cpu") for name, t in own.items()}
    module.load_state_dict(zeros, assign=True)  # `to_empty` would import sympy, for seconds
    return module


def loaded(make: Callable[[], M], tensors: Mapping[str, Tensor], backbone: Backbone, what: str) -> M:
    """The module with exactly these weights, frozen, in the backbone's type and place.

    Nothing is drawn or copied: the module holds the part's own tensors where their type is the backbone's.
    """
    module = _without_values(make)
    values = {name: tensor.to(backbone.device, backbone.dtype) for name, tensor in tensors.items()}
    try:
        module.load_state_dict(values, assign=True)
    except RuntimeError as problem:
        first = str(problem).splitlines()[1:2] or [str(problem)]
        raise FewshiftError(
            f"what the kit holds for {what} does not fit its backbone ({first[0].strip()}): train it again"
        ) from None
    return module.eval().requires_grad_(False)


def _without_values(make: Callable[[], M]) -> M:
    with torch.device("meta"), _NothingFilled():
        return make()
