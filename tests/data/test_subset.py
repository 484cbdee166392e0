"""Holding classes out: two domains whose TRAIN classes share nothing, and whose other splits are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from fewshift.data.domain import Domain, Item, Pixels
from fewshift.data.plan import plans
from fewshift.data.protocol import VARYING
from fewshift.data.spec import Group, Spec, flat_spec
from fewshift.data.subset import hold_out
from fewshift.errors import DataError


@dataclass(frozen=True)
class Numbers:
    """An image says which class and which image it is."""

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        return [np.array([[[c % 256, c // 256, i]]], np.uint8) for c, i in items]


def flat(train: int = 40) -> Domain:
    counts = {"train": train, "valid": 8, "test": 9}
    total = sum(counts.values())
    names = tuple(f"name {c}" for c in range(total))
    return Domain(
        flat_spec("flat", names, tuple(20 + c % 5 for c in range(total)), counts), Numbers(), "seen"
    )


def bilevel() -> Domain:
    """Alphabets of 7 characters: 10 for TRAIN, 2 for VALID, 2 for TEST."""
    groups = [Group(f"alphabet {a}", tuple(range(7 * a, 7 * a + 7))) for a in range(14)]
    spec = Spec(
        "letters",
        tuple(f"letter {c}" for c in range(98)),
        (20,) * 98,
        {"train": range(70), "valid": range(70, 84), "test": range(84, 98)},
        "bilevel",
        {"train": tuple(groups[:10]), "valid": tuple(groups[10:12]), "test": tuple(groups[12:])},
    )
    return Domain(spec, Numbers(), "seen")


def hierarchical() -> Domain:
    """A root over 40 leaves and four nodes of ten, in TRAIN."""
    nodes = [
        Group("root", tuple(range(40))),
        *(Group(f"n{i}", tuple(range(10 * i, 10 * i + 10))) for i in range(4)),
    ]
    spec = Spec(
        "tree",
        tuple(f"leaf {c}" for c in range(56)),
        (30,) * 56,
        {"train": range(40), "valid": range(40, 48), "test": range(48, 56)},
        "hierarchical",
        {
            "train": tuple(nodes),
            "valid": (Group("v", tuple(range(40, 48))),),
            "test": (Group("t", tuple(range(48, 56))),),
        },
    )
    return Domain(spec, Numbers(), "seen")


def train_names(domain: Domain) -> set[str]:
    return {domain.spec.class_names[c] for c in domain.spec.splits["train"]}


@pytest.mark.parametrize("make", [flat, bilevel, hierarchical])
@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.5, 0.9])
def test_the_two_parts_are_the_train_classes(make: type, fraction: float) -> None:
    whole = make()
    kept, held = hold_out(whole, fraction, seed=4)
    assert train_names(kept) | train_names(held) == train_names(whole)
    assert not train_names(kept) & train_names(held)
    block = 7 if whole.spec.kind == "bilevel" else 1
    assert abs(len(train_names(held)) - fraction * len(train_names(whole))) <= block
    for part in (kept, held):
        assert part.name == whole.name
        assert part.role == "seen"
        for split in ("valid", "test"):
            names = [part.spec.class_names[c] for c in part.spec.splits[split]]
            assert names == [whole.spec.class_names[c] for c in whole.spec.splits[split]]


@pytest.mark.parametrize("make", [flat, bilevel, hierarchical])
def test_images_follow_their_classes(make: type) -> None:
    whole = make()
    for part in hold_out(whole, 0.4):
        for class_id in range(part.spec.classes):
            old = whole.spec.class_names.index(part.spec.class_names[class_id])
            assert part.spec.images_per_class[class_id] == whole.spec.images_per_class[old]
            (ours,), (theirs,) = part.source.read([(class_id, 5)]), whole.source.read([(old, 5)])
            assert np.array_equal(ours, theirs)


def test_alphabets_stay_whole() -> None:
    for part in hold_out(bilevel(), 0.35):
        assert {len(group.class_ids) for group in part.spec.groups["train"]} == {7}
        covered = [c for group in part.spec.groups["train"] for c in group.class_ids]
        assert sorted(covered) == list(part.spec.splits["train"])


def test_nodes_keep_the_leaves_that_are_left() -> None:
    for part in hold_out(hierarchical(), 0.5):
        groups = {group.name: group.class_ids for group in part.spec.groups["train"]}
        assert groups["root"] == tuple(part.spec.splits["train"])
        assert sorted(c for name, ids in groups.items() if name != "root" for c in ids) == list(
            groups["root"]
        )


@pytest.mark.parametrize("make", [flat, bilevel, hierarchical])
def test_both_parts_give_tasks(make: type) -> None:
    for part in hold_out(make(), 0.5):
        for plan in plans(part.spec, "train", VARYING, 0, range(20)):
            assert set(plan.class_ids) <= set(part.spec.splits["train"])


def test_the_seed_decides() -> None:
    first, again, other = (hold_out(flat(), 0.5, seed)[1] for seed in (0, 0, 1))
    assert first.spec.fingerprint() == again.spec.fingerprint()
    assert train_names(first) == train_names(again) != train_names(other)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.2, 3.0])
def test_a_fraction_outside_is_refused(fraction: float) -> None:
    with pytest.raises(DataError, match="between 0 and 1"):
        hold_out(flat(), fraction)


def test_one_class_cannot_be_divided() -> None:
    with pytest.raises(DataError, match="two or more are needed"):
        hold_out(flat(train=1), 0.5)
