"""Tasks that are read when they are needed equal those of resident images to the bit."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from patterns import PROTOCOL, RULE, WATCH, backbone_settings, pattern_domain

from fewshift.data.domain import Domain, Item, Pixels
from fewshift.data.pixels import PROTOCOL_84, PixelRule, practical
from fewshift.data.protocol import VARYING
from fewshift.data.records_folder import open_records
from fewshift.data.resident import ResidentDomain, resident
from fewshift.errors import DataError
from fewshift.training import streamed
from fewshift.training.backbone import train_backbone
from fewshift.training.streamed import (
    StreamedDomain,
    decoded_size,
    held_domains,
    held_images,
)
from fewshift.training.tasks import ResidentTasks, Sampling, task_addresses
from fewshift.types import Address, Episode

DOMAINS = [pattern_domain("a", 1), pattern_domain("b", 2, grey=True)]


def assert_same(one: Episode, other: Episode) -> None:
    assert (one.address, one.class_ids, one.task.way) == (other.address, other.class_ids, other.task.way)
    assert one.task.seen is other.task.seen is None
    for part, same in ((one.task.support, other.task.support), (one.query, other.query)):
        assert part.images.shape == same.images.shape
        assert part.images.stride() == same.images.stride()
        assert torch.equal(part.images, same.images)
        assert torch.equal(part.labels, same.labels)


@pytest.mark.parametrize("rule", [RULE, practical(20), PixelRule(33, "protocol")], ids=lambda r: r.name)
@pytest.mark.parametrize("sampling", ["stratified", "uniform"])
def test_tasks_equal_the_resident_ones(rule: PixelRule, sampling: Sampling) -> None:
    both = [
        ResidentTasks(held_domains(DOMAINS, rule, protocol=PROTOCOL, stream=stream), PROTOCOL)
        for stream in (False, True)
    ]
    assert both[0].identity() == both[1].identity()
    for step in range(4):
        for address in task_addresses("test", 3, both[0].domains, "train", step, 5, sampling):
            assert_same(both[1].episode(address), both[0].episode(address))


@pytest.mark.data
def test_tasks_of_real_records(md_mini: Path) -> None:
    names = ("omniglot", "traffic_sign", "textures")
    for domain in (d for d in open_records(md_mini) if d.name in names):
        split = "test" if domain.name == "traffic_sign" else "valid"
        one = ResidentTasks({domain.name: resident(domain, PROTOCOL_84, splits=[split])})
        other = ResidentTasks({domain.name: StreamedDomain(domain, PROTOCOL_84)})
        for index in range(3):
            address = Address(1, domain.name, split, index)
            assert_same(other.episode(address), one.episode(address))


@pytest.mark.parametrize(
    ("indices", "foreseen"),
    [
        ([0, 1, 2, 3, 4, 5], 4),
        ([0, 4, 8, 12, 16], 3),
        ([0, 1, 4, 5, 8, 9, 12, 13], 3),
        ([0, 9, 2, 30, 7, 50, 3], 0),
    ],
)
def test_even_steps_are_foreseen(indices: list[int], foreseen: int) -> None:
    domain = StreamedDomain(DOMAINS[0], RULE, protocol=PROTOCOL)
    tasks = ResidentTasks({"a": domain}, PROTOCOL)
    for index in indices:
        assert tasks.episode(Address(0, "a", "train", index)).address.index == index
    assert domain.foreseen >= foreseen
    assert domain.foreseen <= len(indices) - 2


def test_other_splits_and_seeds_begin_anew() -> None:
    domain = StreamedDomain(DOMAINS[0], RULE, protocol=PROTOCOL)
    tasks = ResidentTasks({"a": domain}, PROTOCOL)
    for split in ("train", "valid"):
        for seed in (0, 1):
            assert_same(
                tasks.episode(Address(seed, "a", split, 2)),
                ResidentTasks({"a": resident(DOMAINS[0], RULE)}, PROTOCOL).episode(
                    Address(seed, "a", split, 2)
                ),
            )
    assert domain.foreseen == 0


def test_images_equal_the_resident_ones() -> None:
    for split in ("train", "valid"):
        one, other = (
            held_images(DOMAINS, RULE, splits=("train", "valid"), stream=stream) for stream in (False, True)
        )
        for name in ("a", "b"):
            (rows, labels), (same, theirs) = one[name].rows(split), other[name].rows(split)
            assert labels.tolist() == theirs.tolist()
            order = np.random.default_rng(0).permutation(len(rows))[:50]
            found = [
                held.gather(torch.from_numpy(numbers[order]))
                for held, numbers in ((one[name], rows), (other[name], same))
            ]
            assert torch.equal(*found)
            assert found[1].is_contiguous(memory_format=torch.channels_last)


def test_a_backbone_learns_the_same_from_streamed_images(tmp_path: Path) -> None:
    weights, identities = [], []
    for stream in (False, True):
        held = held_images(DOMAINS, RULE, splits=("train", "valid"), protocol=PROTOCOL, stream=stream)
        folder = tmp_path / str(stream)
        found = train_backbone(held, backbone_settings(), folder, protocol=PROTOCOL, watch=WATCH)
        weights.append(found.backbone.frozen)
        identities.append(found.outcome.checkpoint().identity)
    assert identities[0] == identities[1]  # a run may go on either way
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


class Broken:
    def read(self, items: Sequence[Item]) -> list[Pixels]:
        raise DataError("7.tfrecords: record 3 is damaged: copy it again")


def test_bad_data_name_the_task() -> None:
    tasks = ResidentTasks({"a": StreamedDomain(Domain(DOMAINS[0].spec, Broken()), RULE)}, PROTOCOL)
    with pytest.raises(DataError, match=r"^task 5 of a \(train split, seed 0\): 7.tfrecords: record 3"):
        tasks.episode(Address(0, "a", "train", 5))


def test_what_does_not_fit_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = decoded_size(DOMAINS, RULE, ("train", "valid"))
    assert needed == 2 * 15 * 12 * 28 * 28 * 3
    for free, kind in (
        (2 * needed, ResidentDomain),
        (2 * needed - 2, StreamedDomain),
        (None, ResidentDomain),
    ):
        monkeypatch.setattr(streamed, "free_memory", lambda device, free=free: free)
        held = held_domains(DOMAINS, RULE, splits=("train", "valid"), protocol=VARYING)
        assert list(held) == ["a", "b"]
        assert all(isinstance(domain, kind) for domain in held.values())


def test_the_smaller_domains_are_held_as_far_as_memory_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    domains = [pattern_domain("large", 1, images=30), pattern_domain("small", 2, images=6), DOMAINS[0]]
    sizes = [decoded_size([domain], RULE, ("train", "valid")) for domain in domains]
    for free, kept in (
        (2 * sum(sizes), ["large", "small", "a"]),
        (2 * sum(sizes) - 2, ["small", "a"]),
        (2 * sizes[1], ["small"]),
        (0, []),
    ):
        monkeypatch.setattr(streamed, "free_memory", lambda device, free=free: free)
        held = held_images(domains, RULE, splits=("train", "valid"))
        assert list(held) == ["large", "small", "a"]
        assert [name for name, domain in held.items() if isinstance(domain, ResidentDomain)] == kept
