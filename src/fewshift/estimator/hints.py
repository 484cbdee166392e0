"""Support images that look like another class: probably mislabelled."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

from fewshift.estimator.trials import HeldOut


@dataclass(frozen=True)
class Hint:
    """One support image that is nearer to the other images of another class than to those of its own."""

    name: str  # the file, or the number of the image
    label: Hashable
    nearer_to: Hashable
    margin: float  # by how much of the cosine

    def __str__(self) -> str:
        return (
            f"{self.name} is labelled {self.label!r} but looks more like {self.nearer_to!r} "
            f"(by {self.margin:.2f} of the cosine): check its label"
        )


def support_hints(
    found: HeldOut, names: Sequence[str], classes: Sequence[Hashable], second: HeldOut | None = None
) -> tuple[Hint, ...]:
    """The images nearest to another class, the surest first.

    Given a `second` opinion, such as that of the adapted network, only images about which both agree.
    """
    wrong = _wrong(found)
    if second is not None:
        other = _wrong(second)
        asked = set(second.places.tolist())
        wrong = {p: v for p, v in wrong.items() if p not in asked or (p in other and other[p][0] == v[0])}
    own = dict(zip(found.places.tolist(), found.labels.tolist(), strict=True))
    ordered = sorted(wrong.items(), key=lambda item: (-item[1][1], item[0]))
    return tuple(
        Hint(names[place], classes[own[place]], classes[other], round(margin, 4))
        for place, (other, margin) in ordered
    )


def _wrong(found: HeldOut) -> dict[int, tuple[int, float]]:
    """place -> (the nearest class, its margin over the image's own) where that is another class."""
    rows = torch.arange(len(found.labels), device=found.labels.device)
    nearest = found.cosines.argmax(dim=1)
    margin = found.cosines[rows, nearest] - found.cosines[rows, found.labels]
    triples = zip(found.places.tolist(), nearest.tolist(), margin.tolist(), strict=True)
    return {place: (other, by) for place, other, by in triples if by > 0}
