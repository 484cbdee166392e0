"""Which engine runs, and why."""

from __future__ import annotations

from typing import Literal, TypeAlias

from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import Engine, FoldedEngine, PlainEngine
from fewshift.nets.folded_resnet import cannot_fold
from fewshift.nets.graph import GraphEngine

EngineName: TypeAlias = Literal["auto", "plain", "folded", "graph"]
ENGINES: tuple[EngineName, ...] = ("auto", "plain", "folded", "graph")


def choose_engine(backbone: Backbone, name: str = "auto") -> Engine:
    """The engine of this name; for "auto" the fastest for this backbone and device, with the reason."""
    if name not in ENGINES:
        raise FewshiftError(f"there is no engine {name!r}: choose one of {', '.join(ENGINES)}")
    if name == "plain":
        return PlainEngine(backbone)
    why_not, on_gpu = cannot_fold(backbone), backbone.device.type == "cuda"
    if name != "auto":
        if why_not:
            raise FewshiftError(
                f"the {name} engine does not fit this backbone ({why_not}): choose auto or plain"
            )
        if name == "folded":
            return FoldedEngine(backbone)
        if not on_gpu:
            raise FewshiftError(
                f"the graph engine needs a CUDA device, not {backbone.device.type}: choose auto or folded"
            )
        return GraphEngine(backbone)
    if why_not:
        return PlainEngine(backbone, reason=f"the folded engine does not fit this backbone: {why_not}")
    if on_gpu:
        return GraphEngine(backbone, reason="equal to the plain engine and the fastest on a CUDA device")
    return FoldedEngine(
        backbone, reason=f"equal to the plain engine and the fastest on {backbone.device.type}"
    )
