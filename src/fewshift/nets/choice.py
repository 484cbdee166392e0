"""Which engine runs, and in what precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
MISFITS: Mapping[str, Callable[[Backbone], str | None]] = {
    "folded": cannot_fold,
    "graph": cannot_graph,
    "last-map": why_not_last_only,
}


def choose_engine(backbone: Backbone, name: str = "auto", precision: str = DEFAULT) -> Engine:
    """The engine of this name; for "auto" the fastest for this backbone and device.

    The precision is that of the graph engine, or bfloat16 of the folded one; the others compute as torch is
    set up, whatever is asked for: `check_precision` is for what a user said.
    """
    wanted = precision_for(precision, backbone.device, on_gpu=DEFAULT)
    if name not in ENGINES:
        raise FewshiftError(f"there is no engine {name!r}: choose one of {', '.join(ENGINES)}")
    kind = _fastest(backbone) if name == "auto" else name
    if kind == "plain":
        return PlainEngine(backbone)
    if why_not := MISFITS[kind](backbone):
        raise FewshiftError(f"the {name} engine does not fit this backbone ({why_not}): choose auto or plain")
    if name == "graph" and backbone.device.type != "cuda":
        raise FewshiftError(
            f"the graph engine needs a CUDA device, not {backbone.device.type}: choose auto or folded"
        )
    if kind == "graph":
        return GraphEngine(backbone, precision=wanted)
    if kind == "last-map":
        return LastMapEngine(backbone)
    return FoldedEngine(backbone, precision="bfloat16" if wanted == "bfloat16" else "float32")


def _fastest(backbone: Backbone) -> EngineName:
    if why_not_last_only(backbone) is None:
        return "last-map"
    if why_not := cannot_fold(backbone):
        say_once(f"the plain engine is used, the slowest: the others do not fit this backbone ({why_not})")
        return "plain"
    usual, _ = usual_engine(backbone.device.type)
    return usual if usual != "graph" or cannot_graph(backbone) is None else "folded"


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
    if why_not := why_not_in(asked, engine):
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
