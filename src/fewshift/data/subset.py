"""A domain's TRAIN classes in two parts, so that one part can teach what the other never saw.

A backbone recognises the classes it was trained on, so tasks made of them need little adaptation.
Preconditioners that are to help on new classes are better learned on classes held out from the backbone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fewshift.data.domain import Domain, ImageSource, Item, Pixels
from fewshift.data.random import keyed_stream
from fewshift.data.spec import Group, Spec, split_ranges
from fewshift.errors import DataError
from fewshift.types import SPLITS

FEWEST = 20  # images of a class: enough for a task's support and query


@dataclass(frozen=True)
class Renumbered:
    """A source whose classes carry other numbers."""

    source: ImageSource
    class_ids: tuple[int, ...]  # new class id -> the source's

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        """The images at these places."""
        return self.source.read([(self.class_ids[c], image) for c, image in items])


def hold_out(domain: Domain, fraction: float, seed: int = 0) -> tuple[Domain, Domain]:
    """(kept, held out): about `fraction` of the TRAIN classes go to the second; VALID and TEST are in both.

    Bi-level domains are divided by whole alphabets, others by classes. Names stay; class ids are counted
    anew.
    """
    spec = domain.spec
    if not 0 < fraction < 1:
        raise DataError(
            f"{spec.name}: a fraction of {fraction} cannot be held out: give a number between 0 and 1"
        )
    blocks: list[tuple[int, ...]] = [(c,) for c in spec.splits["train"]]
    if spec.kind == "bilevel":
        blocks = [group.class_ids for group in spec.groups["train"]]
    if len(blocks) < 2:
        what = "alphabet" if spec.kind == "bilevel" else "class"
        raise DataError(
            f"{spec.name}: its TRAIN split has {len(blocks)} {what}: two or more are needed to hold some out"
        )
    wanted = fraction * sum(len(block) for block in blocks)
    order = keyed_stream("hold out", seed, spec.name).sample(len(blocks), len(blocks))
    held: set[int] = set()
    for place in order[:-1]:  # one block at least is kept
        block = blocks[place]
        if held and len(held) + len(block) / 2 > wanted:
            break
        held |= set(block)
    kept = [c for c in spec.splits["train"] if c not in held]
    return _with_train(domain, kept), _with_train(domain, sorted(held))


def at_most(domain: Domain, images: int, seed: int = 0) -> Domain:
    """The domain with about `images` TRAIN images or fewer; VALID and TEST stay whole.

    Classes first give up images, down to twenty of each; then whole classes (alphabets) go, by the seed.
    """
    spec = domain.spec
    train = spec.splits["train"]
    if images < 1:
        raise DataError(f"{spec.name}: at most {images} images leave nothing to train on: give 1 or more")
    most = max(FEWEST, images // max(1, len(train)))
    counts = tuple(min(n, most) if c in train else n for c, n in enumerate(spec.images_per_class))
    fewer = replace(domain, spec=replace(spec, images_per_class=counts))
    left = fewer.spec.images("train")
    return fewer if left <= images or len(train) < 2 else hold_out(fewer, 1 - images / left, seed)[0]


def _with_train(domain: Domain, train: Sequence[int]) -> Domain:
    spec = domain.spec
    class_ids = (*train, *spec.splits["valid"], *spec.splits["test"])
    new = {old: place for place, old in enumerate(class_ids)}
    part = Spec(
        spec.name,
        tuple(spec.class_names[c] for c in class_ids),
        tuple(spec.images_per_class[c] for c in class_ids),
        split_ranges({s: len(spec.splits[s]) for s in SPLITS} | {"train": len(train)}),
        spec.kind,
        {split: _renumbered(spec.groups[split], new) for split in spec.groups},
    )
    return replace(domain, spec=part, source=Renumbered(domain.source, class_ids))


def _renumbered(groups: Sequence[Group], new: dict[int, int]) -> tuple[Group, ...]:
    """The groups with the classes that are left; a group without any goes."""
    left = (replace(group, class_ids=tuple(new[c] for c in group.class_ids if c in new)) for group in groups)
    return tuple(group for group in left if group.class_ids)
