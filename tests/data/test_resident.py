"""Tasks gathered from resident images are the tasks that the reader gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fewshift.data.arrays import ArraySource
from fewshift.data.domain import Domain, Pixels
from fewshift.data.episodes import load_episode
from fewshift.data.pixels import PixelRule, practical
from fewshift.data.plan import plans
from fewshift.data.protocol import Protocol
from fewshift.data.resident import resident
from fewshift.data.spec import flat_spec
from fewshift.errors import DataError
from fewshift.types import Episode

PROTOCOL = Protocol(max_way=6, max_support=40)


def domain(size: int, channels: int = 3, sizes: tuple[int, ...] = ()) -> Domain:
    rng = np.random.default_rng(size)
    counts = tuple(int(n) for n in rng.integers(4, 9, 12))
    names = tuple(f"class {c}" for c in range(12))
    spec = flat_spec("random", names, counts, {"train": 6, "valid": 6, "test": 0})

    def image(class_id: int) -> Pixels:
        edge = sizes[class_id % len(sizes)] if sizes else size
        return rng.integers(0, 256, (edge, edge + (1 if sizes else 0), channels), dtype=np.uint8)

    return Domain(spec, ArraySource(tuple(tuple(image(c) for _ in range(n)) for c, n in enumerate(counts))))


def pairs(given: Domain, rule: PixelRule) -> list[tuple[Episode, Episode]]:
    held = resident(given, rule)
    chosen = list(plans(given.spec, "train", PROTOCOL, 3, range(4)))
    return [(held.episode(plan), load_episode(given, plan, rule)) for plan in chosen]


EXACT = {
    "native colour": (domain(20), PixelRule(20, "protocol")),
    "native grey": (domain(20, 1), PixelRule(20, "protocol")),
    "practical": (domain(30), practical(16)),
    "practical with a crop": (
        domain(9, 1, (9, 31)),
        practical(16, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4), crop=0.8),
    ),
    "rounded": (domain(9, 3, (9, 40, 20)), PixelRule(20, "protocol", rounded=True)),
}


@pytest.mark.parametrize("case", EXACT)
def test_tasks_equal_the_readers_to_the_bit(case: str) -> None:
    for ours, theirs in pairs(*EXACT[case]):
        assert ours.address == theirs.address
        assert ours.class_ids == theirs.class_ids
        assert ours.task.way == theirs.task.way
        assert ours.task.seen == theirs.task.seen
        for mine, wanted in ((ours.task.support, theirs.task.support), (ours.query, theirs.query)):
            assert torch.equal(mine.images, wanted.images)
            assert torch.equal(mine.labels, wanted.labels)


def test_the_protocols_resize_is_rounded_to_whole_levels() -> None:
    found = pairs(domain(33), PixelRule(20, "protocol"))
    worst = max(float((a.query.images - b.query.images).abs().max()) for a, b in found)
    assert 0 < worst <= 1 / 255 + 1e-6


def test_images_are_ready_for_channels_last_networks_and_grey_ones_are_held_once() -> None:
    held = resident(domain(20, 1), PixelRule(20, "protocol"))
    assert held.levels.shape[-1] == 1
    images = held.images(torch.tensor([3, 0]))
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images[:, 0], images[:, 2])


def test_rows_name_every_image_of_a_split_with_its_class() -> None:
    given = domain(20)
    held = resident(given, PixelRule(20, "protocol"), splits=("valid",))
    rows, labels = held.rows("valid")
    assert len(rows) == given.spec.images("valid") == len(held.levels)
    assert sorted(rows.tolist()) == list(range(len(rows)))
    assert np.bincount(labels).tolist() == [
        given.spec.images_per_class[c] for c in given.spec.splits["valid"]
    ]
    image = given.source.read([(given.spec.splits["valid"][2], 1)])[0]
    place = rows[labels == 2][1]
    assert np.array_equal(held.levels[place].numpy(), image)


def test_a_split_that_is_not_held_is_named() -> None:
    given = domain(20)
    held = resident(given, PixelRule(20, "protocol"), splits=("valid",))
    plan = next(plans(given.spec, "train", PROTOCOL, 0, range(1)))
    with pytest.raises(DataError, match=r"class \d+ \(class \d+\) are not held"):
        held.episode(plan)


def test_more_images_than_a_machine_holds_are_told_before_any_is_read() -> None:
    names = tuple(f"class {c}" for c in range(6))
    spec = flat_spec("vast", names, (10**11,) * 6, {"train": 6})
    with pytest.raises(DataError, match=r"vast: its 600,000,000,000 images of 8 pixels take 107,288 GiB"):
        resident(Domain(spec, ArraySource(())), practical(8), splits=("train",))
