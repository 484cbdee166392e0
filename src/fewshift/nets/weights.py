"""Readers of published checkpoints. Only tensors and numbers are ever unpickled, and every key must be used.

The URL/TSA family saves `{"state_dict": …, "args": …, "best_val_acc": …}`. The state's heads are under names
with `cls`; its owners load the rest leniently, so that a renamed layer silently stays random. Here both a
missing and an unknown name are errors.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.nets.resnet import ResNet18

PREFIXES = ("module.", "backbone.")  # of data-parallel training and of TSA's wrapper
_NUMPY_FROM = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")


def read_url_checkpoint(path: str | Path, stem_padding: int = 1) -> ResNet18:
    """The extractor of a checkpoint of the URL/TSA family (SDL, MDL or URL training), at its own width.

    Its multi-domain extractors were trained with a stem padding of 2, but all published numbers have 1.
    """
    path = Path(path)
    state = extractor_state(_state_dict(unpickled(path), path), path)
    stem = state.get("conv1.weight")
    if stem is None or stem.ndim != 4:
        raise FewshiftError(f"{path} has no conv1.weight: it is no checkpoint of a ResNet-18 extractor")
    net = ResNet18(width=stem.shape[0], stem_padding=stem_padding)
    load_fully(net, state, path, optional=frozenset({"last.weight"}))
    return net


def extractor_state(state: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """A state without heads, batch counters and wrapping prefixes."""
    kept: dict[str, Tensor] = {}
    for name, tensor in state.items():
        bare = name
        while bare.startswith(PREFIXES):
            bare = bare.split(".", 1)[1]
        if "cls" in bare or bare.endswith("num_batches_tracked"):
            continue
        if bare in kept:
            raise FewshiftError(f"{path} holds {bare} twice, under different prefixes: keep one of the two")
        kept[bare] = tensor
    return kept


def load_fully(
    net: torch.nn.Module, state: Mapping[str, Tensor], path: Path, optional: frozenset[str] = frozenset()
) -> None:
    """Load a state into a network; names that are missing, unknown or of another shape are an error."""
    unlisted = {name: t for name, t in net.named_buffers() if t.is_floating_point()}  # a state may omit some
    known = net.state_dict() | unlisted
    wanted = {name: t for name, t in known.items() if not name.endswith("num_batches_tracked")}
    for problem, names in (
        ("lacks", wanted.keys() - state.keys() - optional),
        ("has the unknown", state.keys() - wanted.keys()),
    ):
        if names:
            raise FewshiftError(f"{path} does not fit {type(net).__name__}: it {problem} {_some(names)}")
    for name, tensor in state.items():
        if tensor.shape != wanted[name].shape:
            raise FewshiftError(
                f"{path} does not fit {type(net).__name__}: {name} has shape {tuple(tensor.shape)}, "
                f"not {tuple(wanted[name].shape)}"
            )
    with torch.no_grad():
        for name, tensor in state.items():
            wanted[name].copy_(tensor)


def _state_dict(content: Any, path: Path) -> dict[str, Tensor]:
    state = content.get("state_dict", content) if isinstance(content, dict) else None
    if not isinstance(state, dict) or not state:
        raise FewshiftError(f"{path} is no checkpoint: it has no dictionary of weights under 'state_dict'")
    strangers = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if strangers:
        raise FewshiftError(f"{path} is no checkpoint: {_some(strangers)} among its weights are no tensors")
    return {str(name): tensor for name, tensor in state.items()}


def unpickled(path: Path) -> Any:
    """What `torch.save` wrote, if that is tensors and numbers alone."""
    if not path.is_file():
        raise FewshiftError(f"there is no checkpoint {path}: give the path of a file that torch.save wrote")
    try:
        with torch.serialization.safe_globals(_numpy_scalars()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as problem:
        raise FewshiftError(f"{path} cannot be read: {problem.strerror}") from problem
    except pickle.UnpicklingError as problem:
        if "nsupported global" not in str(problem) and "nsupported class" not in str(problem):
            raise _broken(path) from problem
        raise FewshiftError(
            f"{path} is a pickle of more than tensors, which could run any code and is not opened: "
            "save its state_dict alone with torch.save"
        ) from problem
    except Exception as problem:  # torch answers damaged files with many types
        raise _broken(path) from problem


def _broken(path: Path) -> FewshiftError:
    return FewshiftError(f"{path} is no checkpoint of torch.save, or it is truncated: fetch it again")


def _numpy_scalars() -> list[Any]:
    """What numpy needs to restore a number: the published files keep their best accuracy as one."""
    restore = np.float64(0).__reduce__()[0]
    kinds = [type(np.dtype(kind)) for kind in (np.float64, np.float32, np.int64, np.int32, np.bool_)]
    return [*((restore, name) for name in _NUMPY_FROM), np.dtype, *kinds]


def _some(names: Any, most: int = 4) -> str:
    ordered = sorted(map(str, names))
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(ordered[:most]) + more
