"""A frozen network and the places where task parameters enter it, as one value: a `Features`."""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fewshift.nets.adapters import AdapterSet, resnet18_adapters
from fewshift.nets.chunks import by_chunks
from fewshift.types import TaskParams, Weights

Net = TypeVar("Net", bound=nn.Module)

CHUNK = 256  # images per pass where no gradient is kept

# functional_call puts the weights into the module for the time of the call, so threads must take turns.
SWAP = threading.RLock()


@dataclass(frozen=True)
class Backbone:
    """Features of images under task parameters. Batch norm always uses its running statistics."""

    net: nn.Module  # in evaluation mode, nothing requires a gradient
    frozen: Weights  # every floating-point parameter and buffer of `net`, by name
    adapters: AdapterSet

    def __call__(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, dim)
        """The features under these task parameters; differentiable in them, as often as wanted."""
        return self._apply(self.adapters.merge(self.frozen, params), images)

    @torch.no_grad()
    def embed(self, images: Tensor, params: TaskParams | None = None) -> Tensor:  # (n, 3, h, w) -> (n, dim)
        """The features under these task parameters, or of the frozen network without any."""
        weights = self.frozen if params is None else self.adapters.merge(self.frozen, params)
        return by_chunks(partial(self._apply, weights), images, CHUNK)

    def init(self) -> TaskParams:
        """The parameters every task starts from."""
        return self.adapters.init(self.frozen)

    @property
    def sites(self) -> tuple[str, ...]:
        """The layers that carry task parameters, from the image to the feature."""
        return self.adapters.sites

    @property
    def dim(self) -> int:
        """The length of a feature."""
        return self.frozen[f"{self.sites[-1]}.weight"].shape[0]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(iter(self.frozen.values())).device

    @property
    def dtype(self) -> torch.dtype:
        """The weights' type."""
        return next(iter(self.frozen.values())).dtype

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Backbone:
        """The same backbone elsewhere; this one stays as it is."""
        net = copied(self.net)
        for name, own in named_tensors(net).items():
            own.copy_(self.frozen.get(name, own))  # `frozen` decides, where it is not the net's own
        net.to(device=device, dtype=dtype)
        return replace(self, net=net, frozen=named_tensors(net))

    def fingerprint(self) -> str:
        """A hash of the frozen weights."""
        return fingerprint_of(self.frozen)

    def _apply(self, weights: Weights, images: Tensor) -> Tensor:
        with SWAP:
            features: Tensor = torch.func.functional_call(self.net, dict(weights), (images,), strict=False)
        return features


def copied(net: Net) -> Net:
    """A network of its own, without weights that another thread has put into this one for a call."""
    with SWAP:
        return copy.deepcopy(net)


@contextmanager
def listening(
    net: nn.Module,
    names: Iterable[str],
    reads: Callable[[str, nn.Module, Tensor], None],
    gives: Callable[[str, Tensor, Tensor], Tensor] | None = None,
) -> Iterator[None]:
    """Meanwhile `reads` is told what each of these layers reads; other threads are not heard.

    What `gives` makes of a layer's input and output takes the place of the output.
    """

    def before(name: str, layer: nn.Module, read: tuple[Any, ...]) -> None:
        reads(name, layer, read[0])

    def after(name: str, _layer: nn.Module, read: tuple[Any, ...], given: Tensor) -> Tensor | None:
        return None if gives is None else gives(name, read[0], given)

    layers = dict(net.named_modules())
    with SWAP, ExitStack() as hooks:
        for name in names:
            hooks.enter_context(layers[name].register_forward_pre_hook(partial(before, name)))
            hooks.enter_context(layers[name].register_forward_hook(partial(after, name)))
        yield


def named_tensors(net: nn.Module) -> dict[str, Tensor]:
    """Every floating-point parameter and buffer by name; counters of batches are left out."""
    state = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    return {name: tensor.detach() for name, tensor in state.items() if tensor.is_floating_point()}


def fingerprint_of(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names, shapes and values: the same on any device."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    return digest.hexdigest()


def freeze(net: nn.Module, adapters: AdapterSet | None = None) -> Backbone:
    """A backbone from a trained network, which itself stays as it is."""
    still = copied(net).eval().requires_grad_(False)
    return Backbone(still, named_tensors(still), adapters or resnet18_adapters())
