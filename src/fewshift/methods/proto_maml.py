"""Proto-MAML: a network meta-learned so that a few steps on a prototype head and all kernels suit a task.

Triantafillou et al., ICLR 2020. Confirmed from code (google-research/meta-dataset): head, moving parts and
norms as in `nets.fast_weights`; first order; six steps at test. Ours: the backbone is the project's ResNet-18
at 84 pixels where the published one has a 7x7 stem, max-pooling and 126 pixels, so rates are not theirs.

`build` is the plain rule; the other rules' files build the same method with a step of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fewshift.core.descent import descend
from fewshift.core.rules import rule_named
from fewshift.core.updates import Update
from fewshift.errors import FewshiftError
from fewshift.methods.about import About
from fewshift.methods.descent import rounded
from fewshift.methods.task import checked
from fewshift.nets.engine import Engine
from fewshift.nets.fast_weights import FastNet, fast_net
from fewshift.nets.kit import Kit
from fewshift.nets.tensor_file import part
from fewshift.nets.whole import every_weight
from fewshift.types import Adapted, Task, Weights

ABOUT = About(
    title="Proto-MAML",
    source="Triantafillou et al., ICLR 2020",
    fidelity="inferred",
    moves="every kernel and a linear head",
    needs="weights meta-learned by Proto-MAML",
    trained_by="fewshift train maml --rule sgd",
    cost="6 forward and full backward passes",
)


@dataclass(frozen=True)
class ProtoMaml:
    """Steps of a learned rule on kernels and head, from meta-learned weights."""

    net: FastNet
    weights: Weights
    update: Update[Any]
    steps: int
    name: str = "proto_maml"

    def adapt(self, task: Task) -> Adapted:
        """The classifier after `steps` steps."""
        task = checked(task)
        with torch.no_grad():
            start = self.net.start(self.weights, task)
        trajectory = descend(self.net.inner_objective(self.weights, task), start, self.update, self.steps)
        classify = self.net.predictor(self.weights, trajectory.params, task)
        return Adapted(classify, {"oracle": False, "losses": rounded(trajectory.losses)})


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> ProtoMaml:
    """Proto-MAML by plain steps."""
    return built(kit, "sgd")


def built(kit: Kit, rule: str, make: Callable[..., Update[Any]] | None = None) -> ProtoMaml:
    """The method of a rule, from what a kit holds for it; `make` replaces how the rule steps."""
    kind = rule_named(rule)
    home = kit.backbone
    held = kit.part(kind.method, f"fewshift train maml --rule {rule}").to(home.device, home.dtype)
    weights, settings = part(held.tensors, "weights"), held.settings
    net = fast_net(home, settings["norm"])
    if weights.keys() != set(every_weight(home.net)):
        raise FewshiftError(
            f"what the kit holds for {kind.method} does not fit its backbone: run fewshift train maml again"
        )
    shape = net.shape(weights, settings["inner_rate"], settings["steps"])
    update = (make or kind.make)(part(held.tensors, "rule"), shape)
    return ProtoMaml(net, weights, update, settings["test_steps"], kind.method)
