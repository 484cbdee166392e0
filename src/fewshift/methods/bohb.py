"""BOHB: nearest centroids, or logistic regression, on an extractor whose training was searched for.

Saikia, Brox & Schmid 2020: "Optimized generic feature learning". Stated in the paper: nothing adapts; the
published row classifies by nearest centroid, and a linear classifier is the other head. Inferred: what is
searched and how long, see `training.bohb`; the published one was searched and trained on ImageNet alone.
"""

from __future__ import annotations

from dataclasses import replace

from fewshift.methods.about import About
from fewshift.methods.logistic import LogisticRegression
from fewshift.methods.ncc import NearestCentroid
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit

PART = "bohb"
ABOUT = About(
    title="BOHB, an extractor by hyper-parameter search",
    source="Saikia et al. 2020",
    fidelity="inferred",
    moves="nothing",
    needs="an extractor by hyper-parameter search",
    trained_by="fewshift train bohb",
)
ABOUT_LOGISTIC = replace(
    ABOUT,
    title="BOHB, with logistic regression",
    moves="a linear head",
    cost="one forward pass, Newton steps on features",
)


def searched_backbone(kit: Kit) -> Backbone:
    """The extractor that was found, in place of the kit's own."""
    home = kit.backbone
    held = kit.part(PART, "fewshift train bohb").to(home.device, home.dtype)
    return replace(home, frozen=held.tensors)


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> NearestCentroid:
    """Nearest centroid on the searched extractor."""
    return NearestCentroid(searched_backbone(kit), name="bohb")


def build_logistic(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> LogisticRegression:
    """Logistic regression on it."""
    return LogisticRegression(searched_backbone(kit), name="bohb_logistic")
