"""Backbones of which the last map alone moves: features below it are computed once, the rest is algebra.

With X (n, d) the support features below the map and Z = X θᵀ those above it, the gradient of any loss of Z is
G = BᵀX with B = ∂L/∂Z. So descent stays at θ_t = θ_0 − A_tᵀX with A_t (n, d), and Z_t = Z_0 − (X Xᵀ) A_t:
a step costs n² d instead of n d², and P G = (B Pᵀ)ᵀX instead of a product of two d x d matrices.
It stays in a small space, too: see `fewshift.nets.small_space`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fewshift.core.descent import Trajectory, descend
from fewshift.core.losses import inner_objective, support_loss
from fewshift.core.updates import Preconditioned, TwoSided, Update
from fewshift.nets.adapters import ResidualAdapters
from fewshift.nets.backbone import CHUNK, Backbone, copied, named_tensors
from fewshift.nets.chunks import by_chunks
from fewshift.nets.engine import InTurn, check_sites
from fewshift.nets.lite0 import Lite0, folded
from fewshift.nets.small_space import closed_space, space_pays
from fewshift.types import Labelled, Task, TaskParams


def why_not_last_only(backbone: Backbone) -> str | None:
    """Why a backbone is more than features and a last map; None where it is just that."""
    adapters = backbone.adapters
    if not isinstance(adapters, ResidualAdapters):
        return f"its adapters are {type(adapters).__name__}"
    if adapters.convs:
        return f"it adapts {len(adapters.convs)} layers below the last map"
    if f"{adapters.last}.bias" in backbone.frozen:
        return "its last map has a bias"
    outputs, inputs = backbone.frozen[f"{adapters.last}.weight"].shape
    return None if outputs == inputs else f"its last map makes {outputs} numbers of {inputs}"


class LastMap(nn.Module):
    """The last map alone: features below it to features above it."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.last = nn.Linear(dim, dim, bias=False)

    def forward(self, features: Tensor) -> Tensor:  # (n, d) -> (n, d)
        """The mapped features."""
        mapped: Tensor = self.last(features)
        return mapped


def last_map_of(backbone: Backbone) -> Backbone:
    """The last map as a backbone of its own, which reads features instead of images."""
    site = backbone.sites[-1]
    weight = backbone.frozen[f"{site}.weight"]
    net = LastMap(weight.shape[0]).to(weight.device, weight.dtype).eval().requires_grad_(False)
    net.last.weight.copy_(weight)
    return replace(backbone, net=net, frozen=named_tensors(net), adapters=ResidualAdapters((), "last"))


def body_of(backbone: Backbone) -> Callable[[Tensor], Tensor]:
    """The network below its last map: what it gives when that map is the identity."""
    if isinstance(backbone.net, LastMap):
        return as_they_are
    identity = torch.eye(backbone.dim, dtype=backbone.dtype, device=backbone.device)
    if type(backbone.net) is Lite0:
        own = copied(backbone.net)
        own.load_state_dict(backbone.frozen, strict=False)  # the module may hold another backbone's weights
        quick = folded(own)
        quick.last.weight.copy_(identity)
        return quick
    return partial(backbone, {backbone.sites[-1]: identity})


def as_they_are(features: Tensor) -> Tensor:  # (n, d) -> (n, d)
    """What lies below the last map where the images are features already; processes can send it."""
    return features


@torch.no_grad()
def below_last(backbone: Backbone, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
    """The features below the last map."""
    known = vars(backbone)  # a backbone never changes, so what was made of it is kept beside it
    if "_body" not in known:
        known["_body"] = body_of(backbone)
    body = known["_body"]
    return by_chunks(lambda part: body(part.contiguous(memory_format=_layout(part))), images, CHUNK)


class Remembered:
    """A function of one tensor that knows the answer for the tensor it saw last, while that one lives."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function = function
        self.last: tuple[weakref.ref[Tensor], int, Tensor] | None = None

    def __call__(self, images: Tensor) -> Tensor:
        """The function's value."""
        if images.is_inference():  # such tensors do not count their changes
            return self.function(images)
        last, version = self.last, images._version
        if last is not None and last[0]() is images and last[1] == version:
            return last[2]
        value = self.function(images)
        self.last = (weakref.ref(images), version, value)
        return value

    def __getstate__(self) -> dict[str, Any]:
        """A copy, or another process, has other tensors: it starts without a memory."""
        return {"function": self.function, "last": None}


def features_below(backbone: Backbone) -> Remembered:
    """`below_last` of this backbone; a second request for the features of a support set is answered at once.

    One set is remembered, so that no method profits from another's work on a task.
    """
    known = vars(backbone)
    if "_features_below" not in known:
        known["_features_below"] = Remembered(partial(below_last, backbone))
    found: Remembered = known["_features_below"]
    return found


@dataclass(frozen=True)
class LastMapEngine(InTurn):
    """Features once per task, then the last map alone. Equals the plain engine; needs `sites == (last,)`."""

    backbone: Backbone
    name: str = "last-map"

    def adapt(self, task: Task, start: TaskParams, update: Update[Any], steps: int) -> Trajectory:
        """`steps` steps of `update` from `start` on L_in."""
        check_sites(self.backbone, start)
        support = Labelled(features_below(self.backbone)(task.support.images), task.support.labels)
        below = Task(support, task.way)
        if start and isinstance(update, Preconditioned | TwoSided):
            ((site, value),) = start.items()
            return descend_on_features(below, site, value, update, steps)
        return descend(inner_objective(self._mapped, below), start, update, steps)

    @torch.no_grad()
    def embed(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
        """Features under these parameters, without gradients."""
        return self._mapped(params, features_below(self.backbone)(images))

    def _mapped(self, params: TaskParams, features: Tensor) -> Tensor:  # (n, d) -> (n, d)
        site = self.backbone.sites[-1]
        return features @ params.get(site, self.backbone.frozen[f"{site}.weight"]).mT


def descend_on_features(
    task: Task, site: str, start: Tensor, update: Preconditioned | TwoSided, steps: int
) -> Trajectory:
    """Eq. 16 for the last map, in the coordinates A of the module's docstring; the task's images are X.

    With a Q on the side of the inputs descent stays at θ_0 − AᵀXQ, so XQXᵀ takes the place of XXᵀ.
    """
    features, labels = task.support.images, task.support.labels
    rate = update.rates[site]
    matrix = None if update.preconditioner is None else update.preconditioner[site]
    with torch.no_grad():
        read = features @ update.inputs[site] if isinstance(update, TwoSided) else features
        kernel, mapped = read @ features.mT, features @ start.detach().mT
        basis = closed_space(mapped, matrix) if space_pays(mapped, matrix, steps) else None
        if basis is not None:
            mapped = mapped @ basis
            matrix = None if matrix is None else basis.mT @ matrix @ basis
        moved = torch.zeros_like(mapped)
        losses = []
    for _ in range(steps):
        with torch.enable_grad():
            leaf = (mapped - kernel @ moved).detach().requires_grad_()
            loss = support_loss(leaf, labels, task.way)
            (found,) = torch.autograd.grad(loss, leaf)
        with torch.no_grad():
            moved = moved + rate * (found if matrix is None else found @ matrix.mT)
        losses.append(loss.detach())
    with torch.no_grad():
        moved = moved if basis is None else moved @ basis.mT
        final = {site: start.detach() - moved.mT @ read}
    return Trajectory(final, torch.stack(losses) if losses else torch.empty(0))


def _layout(images: Tensor) -> torch.memory_format:
    """Channels last is what convolutions of a CPU like; features have no such layout."""
    return torch.channels_last if images.ndim == 4 else torch.contiguous_format
