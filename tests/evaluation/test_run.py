"""Whole runs: resumed, sharded, interrupted, and the same each time."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fewshift.data.arrays import array_domain
from fewshift.data.domain import Domain
from fewshift.data.pixels import PixelRule
from fewshift.data.protocol import ONE_SHOT, free
from fewshift.errors import DataError, FewshiftError
from fewshift.evaluation.run import Job, Shard, parse_shard, run, with_roles
from fewshift.evaluation.scores import read_scores
from fewshift.types import Adapted, Task

T = TypeVar("T")


def domain(name: str, seed: int) -> Domain:
    rng = np.random.default_rng(seed)
    means = rng.integers(0, 255, (8, 1, 4, 4, 3))
    images = np.clip(means + rng.integers(-60, 60, (8, 12, 4, 4, 3)), 0, 255).astype(np.uint8)
    return array_domain(name, images.reshape(-1, 4, 4, 3), np.repeat(np.arange(8), 12), role="seen")


@dataclass(frozen=True)
class Pixelwise:
    """Nearest mean on pixels."""

    name: str = "pixels"
    scale: float = 1.0
    met: list[Task] = field(default_factory=list)

    def adapt(self, task: Task) -> Adapted:
        self.met.append(task)
        flat = task.support.images.flatten(1)
        means = torch.stack([flat[task.support.labels == c].mean(0) for c in range(task.way)])

        def logits(images: Tensor) -> Tensor:
            return -self.scale * torch.cdist(images.flatten(1), means)

        return Adapted(logits, {"oracle": False})


DOMAINS = (domain("birds", 0), domain("cars", 1))
JOB = Job(domains=DOMAINS, tasks=5, rule=PixelRule(4, "protocol"), workers=2)


def lines(*paths: Path) -> list[dict[str, object]]:
    """The lines without what no two runs share."""
    found = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    for line in found:
        del line["seconds"]
    return sorted(found, key=lambda r: (r["domain"], r["index"], r["method"]))


def two() -> list[Pixelwise]:
    return [Pixelwise("one"), Pixelwise("two", 2.0)]


def test_a_run_writes_a_line_for_each_method_and_task(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    tally = run(two(), JOB, out, kit="small", fingerprint="f00d")
    assert (tally.written, tally.before) == (20, 0)
    scores = [r.score for r in read_scores([out])]
    assert len({s.key for s in scores}) == 20
    assert {(s.protocol, s.pixels, s.kit, s.engine, s.role, s.revealed) for s in scores} == {
        ("varying", "protocol-4", "small", "plain", "seen", True)
    }
    assert all(s.spec for s in scores)
    assert {s.way for s in scores} <= set(range(5, 9))


def test_a_second_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    run(two(), JOB, out)
    before = out.read_bytes()
    again = two()
    tally = run(again, JOB, out)
    assert (tally.written, tally.before) == (0, 20)
    assert out.read_bytes() == before
    assert again[0].met == []


def test_more_tasks_and_more_methods_are_added_to_the_same_file(tmp_path: Path) -> None:
    out, whole = tmp_path / "r.jsonl", tmp_path / "whole.jsonl"
    run(two()[:1], replace(JOB, tasks=3), out)
    run(two(), JOB, out)
    run(two(), JOB, whole)
    assert lines(out) == lines(whole)


def stop_after(count: int) -> Callable[..., Iterator[object]]:
    def track(items: Iterable[T], /, *, label: str, total: int | None = None) -> Iterator[T]:
        for i, item in enumerate(items):
            if i == count:
                raise KeyboardInterrupt
            yield item

    return track


@pytest.mark.parametrize("count", [0, 1, 7, 19])
def test_an_interrupted_run_goes_on_to_the_same_lines(tmp_path: Path, count: int) -> None:
    out, whole = tmp_path / "r.jsonl", tmp_path / "whole.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run(two(), JOB, out, track=stop_after(count))  # type: ignore[arg-type]
    assert len(lines(out)) == count
    run(two(), JOB, out)
    run(two(), JOB, whole)
    assert lines(out) == lines(whole)


def test_shards_share_the_tasks_and_every_domain(tmp_path: Path) -> None:
    parts = [tmp_path / f"{i}.jsonl" for i in (1, 2, 3)]
    for i, part in enumerate(parts, 1):
        run(two(), replace(JOB, shard=Shard(i, 3)), part)
        assert {line["domain"] for line in lines(part)} == {"birds", "cars"}
    whole = tmp_path / "whole.jsonl"
    run(two(), replace(JOB, workers=0), whole)
    assert lines(*parts) == lines(whole)


def test_shards_are_numbered_from_one() -> None:
    assert parse_shard("2/4") == Shard(2, 4)
    assert list(Shard(2, 4).indices(10)) == [1, 5, 9]
    for bad in ("0/4", "5/4", "x", "1", "1/", "-1/4"):
        with pytest.raises(FewshiftError, match="shard"):
            parse_shard(bad)


def test_the_file_of_another_run_is_refused_before_any_work(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    run(two(), JOB, out)
    smaller = array_domain(
        "birds", np.zeros((60, 4, 4, 3), np.uint8), np.repeat(np.arange(6), 10), role="seen"
    )
    changes = [
        ("birds held other", replace(JOB, domains=(smaller, DOMAINS[1]))),
        ("seed", replace(JOB, seed=1)),
        ("protocol", replace(JOB, protocol=ONE_SHOT)),
        ("pixels", replace(JOB, rule=PixelRule(8, "protocol"))),
        ("revealed", replace(JOB, reveal_seen=False)),
    ]
    for name, job in changes:
        method = Pixelwise("one")
        with pytest.raises(DataError, match=name):
            run([method], job, out)
        assert method.met == []


def test_a_hidden_label_stays_hidden_but_the_score_knows_it(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    method = Pixelwise()
    run([method], replace(JOB, reveal_seen=False, tasks=1), out)
    assert {task.seen for task in method.met} == {None}
    assert {(r.score.seen, r.score.revealed) for r in read_scores([out])} == {(True, False)}


def test_a_protocol_that_a_domain_cannot_give_fails_before_any_file(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    with pytest.raises(DataError, match="birds"):
        run(two(), replace(JOB, protocol=free(way=20)), out)
    assert not out.exists()


def test_seen_means_trained_on() -> None:
    mixed = [
        replace(DOMAINS[0], role="unseen"),
        DOMAINS[1],
        replace(domain("leaves", 2), role="valid_unseen"),
    ]
    assert [d.role for d in with_roles(mixed, ["birds"])] == ["seen", "unseen", "valid_unseen"]
    assert [d.role for d in with_roles(mixed, [])] == ["unseen", "seen", "valid_unseen"]
