"""Which engine runs, and why."""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias

import torch

from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import Engine, FoldedEngine, PlainEngine
from fewshift.nets.folded_resnet import cannot_fold
from fewshift.nets.frozen_net import cannot_graph
from fewshift.nets.graph import GraphEngine
from fewshift.nets.last_map import LastMapEngine, why_not_last_only
from fewshift.nets.notices import say_once
from fewshift.nets.precision import DEFAULT, Precision, precision_for, precision_named

EngineName: TypeAlias = Literal["auto", "plain", "folded", "graph", "last-map"]
ENGINES: tuple[EngineName, ...] = ("auto", "plain", "folded", "graph", "last-map")


def choose_engine(backbone: Backbone, name: str = "auto", precision: str = DEFAULT) -> Engine:
    """The engine of this name; for "auto" the fastest for this backbone and device, with the reason.

    The precision is that of the graph engine, or bfloat16 of the folded one; the others compute as torch is
    set up, whatever is asked for: `check_precision` is for what a user said.
    """
    wanted = precision_for(precision, backbone.device, on_gpu=DEFAULT)
    folded = partial(FoldedEngine, backbone, precision="bfloat16" if wanted == "bfloat16" else "float32")
    if name not in ENGINES:
        raise FewshiftError(f"there is no engine {name!r}: choose one of {', '.join(ENGINES)}")
    if name == "plain":
        return PlainEngine(backbone)
    more = why_not_last_only(backbone)
    if name == "last-map" and more:
        raise FewshiftError(f"the last-map engine does not fit this backbone ({more}): choose auto or plain")
    if name == "last-map" or (name == "auto" and not more):
        return LastMapEngine(backbone, reason="nothing below the last map moves: features are computed once")
    on_gpu = backbone.device.type == "cuda"
    why_not = cannot_graph(backbone) if name == "graph" else cannot_fold(backbone)
    if name != "auto":
        if why_not:
            raise FewshiftError(
                f"the {name} engine does not fit this backbone ({why_not}): choose auto or plain"
            )
        if name == "folded":
            return folded()
        if not on_gpu:
            raise FewshiftError(
                f"the graph engine needs a CUDA device, not {backbone.device.type}: choose auto or folded"
            )
        return GraphEngine(backbone, precision=wanted)
    if why_not:
        say_once(f"the plain engine is used, the slowest: the others do not fit this backbone ({why_not})")
        return PlainEngine(backbone, reason=f"the folded engine does not fit this backbone: {why_not}")
    kind, reason = usual_engine(backbone.device.type)
    if kind == "graph":
        misfit = cannot_graph(backbone)
        if misfit is None:
            return GraphEngine(backbone, reason=reason, precision=wanted)
        reason = f"the graph engine does not fit this backbone: {misfit}"
    return folded(reason=reason)


def computed_in(engine: Engine) -> Precision:
    """What a descent computes in; an engine without a precision of its own computes as torch is set up."""
    own = chosen_precision(engine)
    if own:
        return precision_named(own)
    on_gpu = engine.backbone.device.type == "cuda"
    return "tf32" if on_gpu and torch.backends.cudnn.allow_tf32 else "float32"


def why_not_in(asked: str, engine: Engine) -> str | None:
    """Why the precision that somebody asked for is not what this engine computes in; None where it is."""
    found = computed_in(engine)
    if asked in ("auto", found):
        return None
    return (
        f"the precision {asked} cannot be had here, where the {engine.name} engine computes in {found} on "
        f"{engine.backbone.device.type}: choose {found} or auto"
    )


def check_precision(asked: str, engine: Engine) -> None:
    """Refuse a precision that somebody asked for and does not get."""
    why_not = why_not_in(asked, engine)
    if why_not:
        raise FewshiftError(why_not)


def chosen_precision(engine: Engine) -> str:
    """The engine's precision; empty where it has no other than torch's own."""
    if isinstance(engine, FoldedEngine) and engine.precision == "float32":
        return ""
    return engine.precision if isinstance(engine, FoldedEngine | GraphEngine) else ""


def named_engine(engine: Engine) -> str:
    """The engine as results and people are told of it, with its precision where it has one of its own."""
    precision = chosen_precision(engine)
    return f"{engine.name} in {precision}" if precision else engine.name


def usual_engine(device: str) -> tuple[EngineName, str]:
    """What "auto" means on a kind of device for the ResNet-18 that everything here is made for, and why."""
    on = "a CUDA device" if device == "cuda" else device
    kind: EngineName = "graph" if device == "cuda" else "folded"
    return kind, f"the fastest on {on}, in float32 equal to the plain engine"
