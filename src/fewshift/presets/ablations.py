"""Variants that exist to be compared with, and the experiment that compares them all on the same tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.methods.coefficients import Coefficients
from fewshift.methods.tsp import TaskSpecificPreconditioning
from fewshift.methods.tsp import build as build_tsp
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.presets.reproduce import Setup, Stage, begun

HARD_LABEL = "fewshift.presets.ablations:hard_label"
GRAM: dict[str, tuple[str, ...]] = {"gram": ()}  # the published design is the preset's
FREE = {"free": ("--design", "free")}
FREE_MINUS = {"free-minus": ("--design", "free", "--scale", "-1")}
GRAM_ONLY = {"gram_only": ("--design", "gram_only")}
CHOLESKY = {"cholesky": ("--design", "cholesky")}
CHOLESKY_IDENTITY = {"cholesky_identity": ("--design", "cholesky_identity")}
LOW_RANK = {f"rank-{rank}": ("--design", "low_rank", "--rank", f"{rank}") for rank in (4, 16, 64)}
PROTOCOL = "five-shot"  # small tasks: many of them in little time
SECOND_ORDER = ("--order", "2")
LOSSES: dict[str, tuple[str, ...]] = {
    **{f"lambda-{value:g}": ("--auxiliary", f"{value:g}") for value in (10.0, 1.0, 0.1, 0.01)},
    "ce-only": ("--auxiliary", "0"),
    "aux-only": ("--auxiliary", "1", "--no-cross-entropy"),
}
DESIGNS = GRAM | GRAM_ONLY | CHOLESKY | CHOLESKY_IDENTITY | FREE | FREE_MINUS | LOW_RANK


@dataclass(frozen=True)
class Likeliest:
    """All weight on the domain that a dataset classifier finds likeliest."""

    blend: Coefficients

    def __call__(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (k,)
        """A one-hot vector; with one training domain its coefficient, which is no share."""
        found = self.blend(images)
        if found is None:
            raise FewshiftError("a hard label needs a kit with a dataset classifier: run train classifier")
        return found if len(found) == 1 else F.one_hot(torch.argmax(found), len(found)).to(found)


def hard_label(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> TaskSpecificPreconditioning:
    """TSP† with the preconditioners of one domain instead of the blend of all."""
    tsp = build_tsp(kit, engine, oracle)
    return replace(tsp, coefficients=Likeliest(tsp.coefficients), name="tsp_hard_label")


def ablations(setup: Setup) -> list[Stage]:
    """Designs and orders under one classifier, losses under one P, the hard label; and what each P is like.

    A classifier trained by cross-entropy alone does not depend on P, so that designs differ by P only.
    """
    (made, base), scored, looked = begun(setup), [], []
    variants = DESIGNS | {"order-2": SECOND_ORDER, "order-2-short": (*SECOND_ORDER, *_half(setup))}
    for name, flags in variants.items():
        roots = setup.train("preconditioners", *flags, kit=base, name=f"roots-{name}")
        told = setup.train("classifier", *LOSSES["ce-only"], kit=roots.makes, name=name)
        methods = ("ncc", "gd", "tsp", HARD_LABEL) if name == "gram" else ("tsp",)
        made += [roots, told]
        scored.append(setup.evaluate(told.makes, methods, PROTOCOL))
        looked.append(setup.spectrum(roots.makes, f"spectrum-{name}"))
        if name != "gram":
            continue
        for loss, words in LOSSES.items():
            if loss != "ce-only":  # that is the row of the design
                made.append(setup.train("classifier", *words, kit=roots.makes, name=loss))
                scored.append(setup.evaluate(made[-1].makes, ("tsp",), PROTOCOL))
    return [*made, *looked, *scored, *setup.report(scored, "ablations")]


def _half(setup: Setup) -> tuple[str, ...]:
    """Half of the updates: at order 2 about the time of all of them at order 1."""
    words = setup.scale.more.get("preconditioners", ())
    updates = int(words[words.index("--updates") + 1]) if "--updates" in words else 10_000
    return ("--updates", str(max(1, updates // 2)))
