"""tri-M, a multi-mode modulator: Simple CNAPS with FiLM mixed from domain-specific and shared parts.

Liu et al., ICCV 2021. Confirmed from code: a gate over the training domains weights a bank of FiLM vectors
(specific), attention over a second bank asked by the set's code gives the cooperative ones, and a sigmoid a
channel mixes the two; Mahalanobis classifier and set encoder are Simple CNAPS's. Ours: as there, a class of
one image has covariance 0, and for backbones narrower than the published one the number of attention heads is
what the width allows. In the table of the TSP paper the columns of tri-M and FLUTE are swapped.
"""

from __future__ import annotations

from dataclasses import dataclass

from fewshift.methods.about import About
from fewshift.methods.coefficients import named
from fewshift.methods.modulated import adapted_by_modulation
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import Engine
from fewshift.nets.film import block_norms, channels, film_backbone
from fewshift.nets.kit import Kit
from fewshift.nets.learned import loaded
from fewshift.nets.modulators import Modulation, TriMModulator
from fewshift.types import Adapted, Task

PART = "trim"
ABOUT = About(
    title="tri-M, a multi-mode modulator",
    source="Liu et al., ICCV 2021",
    fidelity="inferred",
    moves="FiLM behind the norms of the blocks, by a gated hyper-network; a Gaussian a class",
    needs="a backbone, a set encoder and gated FiLM generator",
    trained_by="fewshift train trim",
)


@dataclass(frozen=True)
class TriM:
    """FiLM by tri-M's generator, classes by Mahalanobis distance."""

    backbone: Backbone  # its task parameters are FiLM
    modulator: TriMModulator
    domains: tuple[str, ...]
    published_one_shot: bool = False
    name: str = PART

    def adapt(self, task: Task) -> Adapted:
        """The modulated network's Mahalanobis classifier; the gate goes into the notes."""

        def notes(found: Modulation) -> dict[str, object]:
            assert found.domain_logits is not None
            return {"coefficients": named(found.domain_logits.softmax(dim=-1), self.domains)}

        return adapted_by_modulation(self.backbone, self.modulator, task, self.published_one_shot, notes)


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> TriM:
    """tri-M on a kit's backbone; engine and oracle make no difference to it."""
    part = kit.part(PART, "fewshift train trim")
    sites, code = channels(kit.backbone, block_norms()), part.settings["code"]
    domains = tuple(part.settings["domains"])
    modulator = loaded(lambda: TriMModulator(sites, len(domains), code), part.tensors, kit.backbone, PART)
    return TriM(film_backbone(kit.backbone), modulator, domains)
