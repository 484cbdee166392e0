"""Simple CNAPS: FiLM from a set encoder, and one Gaussian per class in place of a learned classifier.

Bateni et al., CVPR 2020, on CNAPs (Requeima et al., NeurIPS 2019). Confirmed from code: the set encoder (64
numbers, its batch norm on the support set's own statistics), the FiLM generator behind both norms of every
block, λ_k = n_k / (n_k + 1), no half in the distance. Ours: a class of one image has covariance 0, where the
published code adds a variance of the feature's own entries; `published_one_shot=True` is the published way.
"""

from __future__ import annotations

from fewshift.methods.about import About
from fewshift.methods.modulated import Modulated, modulated
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.nets.modulators import CnapsModulator

PART = "simple_cnaps"
ABOUT = About(
    title="Simple CNAPS",
    source="Bateni et al., CVPR 2020",
    fidelity="inferred",
    moves="FiLM behind the norms of the blocks, by a hyper-network; a Gaussian a class",
    needs="a backbone, a set encoder and FiLM generator",
    trained_by="fewshift train cnaps",
)


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> Modulated:
    """Simple CNAPS on a kit's backbone; engine and oracle make no difference to it."""
    return modulated(kit, PART, "fewshift train cnaps", lambda sites, _, code: CnapsModulator(sites, code))
