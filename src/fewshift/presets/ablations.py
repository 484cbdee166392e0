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
from fewshift.methods.tsp import build_tuned as build_tsp_tuned
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.presets.meta_training import PRECONDITIONERS
from fewshift.presets.reproduce import Setup, Stage, begun

HARD_LABEL = "fewshift.presets.ablations:hard_label"
GRAM: dict[str, tuple[str, ...]] = {"gram": ()}  # the published design is every scale's
FREE = {"free": ("--design", "free")}
FREE_MINUS = {"free-minus": ("--design", "free", "--scale", "-1")}
GRAM_ONLY = {"gram_only": ("--design", "gram_only")}
CHOLESKY = {"cholesky": ("--design", "cholesky")}
CHOLESKY_IDENTITY = {"cholesky_identity": ("--design", "cholesky_identity")}
LOW_RANK = {f"rank-{rank}": ("--design", "low_rank", "--rank", f"{rank}") for rank in (4, 16, 64)}
PROTOCOL = "five-shot"  # small tasks: many of them in little time
SECOND_ORDER = ("--order", "2")
MOVED = ("--normalise", "--weight-decay", "0")
TOLD = "told-"  # kits with a dataset classifier that lack rates
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
    return _of_one_domain(build_tsp(kit, engine, oracle), "tsp_hard_label")


def hard_label_tuned(
    kit: Kit, engine: Engine | None = None, oracle: bool = True
) -> TaskSpecificPreconditioning:
    """The same at the rates that validation chose for TSP†."""
    return _of_one_domain(build_tsp_tuned(kit, engine, oracle), "tsp_hard_label_tuned")


def _of_one_domain(tsp: TaskSpecificPreconditioning, name: str) -> TaskSpecificPreconditioning:
    return replace(tsp, coefficients=Likeliest(tsp.coefficients), name=name)


def ablations(setup: Setup) -> list[Stage]:
    """Designs and orders under one classifier, losses under one P, the hard label; and what each P is like.

    A classifier trained by cross-entropy alone does not depend on P, so that designs differ by P only.
    """
    return _compared(setup, "ablations")


def moved_ablations(setup: Setup) -> list[Stage]:
    """The same with outer gradients of length 1 and no decay, which move P; each P at its own best rates."""
    return _compared(setup, "ablations-moved", MOVED, tuned=True)


def _compared(setup: Setup, name: str, outer: tuple[str, ...] = (), tuned: bool = False) -> list[Stage]:
    (made, base), scored, looked = begun(setup), [], []

    def score(told: Stage, kit: str, with_others: bool = False) -> None:
        made.append(told)
        methods: tuple[str, ...] = ("ncc", "gd", "tsp", HARD_LABEL) if with_others else ("tsp",)
        if tuned:
            methods = tuple(m if m == "ncc" else f"{m}_tuned" for m in methods)
            searched = "gd,tsp" if with_others else "tsp"
            flags = ("--methods", searched, "--protocol", PROTOCOL, "--tasks", "8")
            made.append(setup.train("rates", *flags, kit=told.makes, name=kit))
        scored.append(setup.evaluate(made[-1].makes, methods, PROTOCOL))

    def classifier(loss: str, roots: Stage, kit: str) -> Stage:
        label = f"{TOLD}{kit}" if tuned else kit  # tables name a row by the kit that was scored
        return setup.train("classifier", *LOSSES[loss], kit=roots.makes, name=label)

    variants = DESIGNS | {"order-2": SECOND_ORDER, "order-2-short": (*SECOND_ORDER, *_half(setup))}
    for variant, flags in variants.items():
        roots = setup.train("preconditioners", *outer, *flags, kit=base, name=f"roots-{variant}")
        made.append(roots)
        score(classifier("ce-only", roots, variant), variant, with_others=variant == "gram")
        looked.append(setup.spectrum(roots.makes, f"{name}-spectrum-{variant}"))
        if variant == "gram":
            for loss in (loss for loss in LOSSES if loss != "ce-only"):  # that is the row of the design
                score(classifier(loss, roots, loss), loss)
    return [*made, *looked, *scored, *setup.report(scored, name)]


def _half(setup: Setup) -> tuple[str, ...]:
    """Half of the updates: at order 2 about the time of all of them at order 1."""
    words = setup.scale.more.get("preconditioners", ())
    updates = PRECONDITIONERS[setup.scale.preset](setup.seen).settings.updates
    if "--updates" in words:
        updates = int(words[words.index("--updates") + 1])
    return ("--updates", str(max(1, updates // 2)))
