"""Every kind of source gives the same tasks one by one, from threads and from processes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_records import small_domain

from fewshift.data.arrays import array_domain
from fewshift.data.cache import build_cache, open_cached
from fewshift.data.domain import Domain
from fewshift.data.drawn import drawn_domain
from fewshift.data.episodes import reader
from fewshift.data.loader import prefetch
from fewshift.data.plan import TaskPlan, plans
from fewshift.data.protocol import free
from fewshift.data.records_folder import open_domain
from fewshift.types import Episode, Split


@pytest.fixture
def domains(tmp_path: Path) -> list[Domain]:
    folder, _ = small_domain(tmp_path, (12,) * 8)
    records = open_domain(folder)
    build_cache(records, tmp_path / "cache")
    cached = open_cached(records, tmp_path / "cache")
    levels = np.random.default_rng(0).integers(0, 256, (90, 13, 11, 3), dtype=np.uint8)
    return [
        records,
        replace(cached, spec=replace(cached.spec, name="cached")),
        array_domain("arrays", levels, np.arange(90) % 6, class_names=tuple("abcdef")),
        drawn_domain("shapes"),
    ]


def planned(domains: list[Domain]) -> list[TaskPlan]:
    splits: dict[str, Split] = {"small": "train", "cached": "train", "arrays": "test", "shapes": "test"}
    each = [plans(d.spec, splits[d.name], free(5, 3, 2), 1, range(3)) for d in domains]
    return [plan for todo in zip(*each, strict=True) for plan in todo]


def content(episode: Episode) -> tuple[object, ...]:
    support, query = episode.task.support, episode.query
    images = (support.images.numpy().tobytes(), query.images.numpy().tobytes())
    labels = (support.labels.tolist(), query.labels.tolist())
    return (episode.address, episode.class_ids, episode.task.way, episode.task.seen, *images, *labels)


@pytest.mark.slow
def test_every_source_reads_the_same_ahead(domains: list[Domain]) -> None:
    read, todo = reader(domains, reveal_seen=True), planned(domains)
    serial = [content(read(plan)) for plan in todo]
    assert len(serial) == 12
    assert [content(episode) for episode in prefetch(read, todo, workers=3)] == serial
    from_processes = list(prefetch(read, todo, workers=2, kind="processes"))
    assert [content(episode) for episode in from_processes] == serial
    from_processes[0].query.images.add_(1)  # may be written to, as the serial ones may


def test_a_cached_task_is_the_uncached_one(domains: list[Domain]) -> None:
    records, cached, *_ = domains
    (plan,) = plans(records.spec, "train", free(5, 3, 2), 1, [0])
    same = replace(plan, address=replace(plan.address, domain="cached"))
    one, other = reader([records])(plan), reader([cached])(same)
    assert torch.equal(one.task.support.images, other.task.support.images)
    assert torch.equal(one.query.images, other.query.images)
