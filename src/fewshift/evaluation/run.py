"""A whole evaluation: methods x domains x tasks into one results file, resumed where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fewshift.data.domain import Domain
from fewshift.data.episodes import reader
from fewshift.data.loader import prefetch
from fewshift.data.pixels import PROTOCOL_84, PixelRule
from fewshift.data.plan import TaskPlan, choices, plan_task
from fewshift.data.protocol import VARYING, Protocol
from fewshift.errors import FewshiftError
from fewshift.evaluation.evaluate import Setting, evaluate
from fewshift.evaluation.results_file import SHARED, open_results
from fewshift.evaluation.scores import Key
from fewshift.nets.together import Together
from fewshift.progress import Track, silent
from fewshift.types import Episode, Method, Split


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several processes that share the tasks: number `index` of `count`, counted from 1."""

    index: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise FewshiftError(f"shard {self.index}/{self.count}: shards are numbered 1/{self.count} and up")

    def indices(self, tasks: int) -> range:
        """This shard's task numbers: every `count`-th, so that all shards see every domain."""
        return range(self.index - 1, tasks, self.count)


def parse_shard(text: str) -> Shard:
    """`2/4` as the second of four."""
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal()):
        raise FewshiftError(f"--shard is {text!r}: give it as i/n, for example 1/4")
    return Shard(int(index), int(count))


@dataclass(frozen=True, kw_only=True)
class Job:
    """Which tasks, and how their images are read."""

    domains: Sequence[Domain]
    split: Split = "test"
    protocol: Protocol = VARYING
    seed: int = 0
    tasks: int = 600
    rule: PixelRule = PROTOCOL_84
    reveal_seen: bool = True  # does a task say whether its domain was trained on?
    shard: Shard = Shard()
    workers: int = 2
    read: Callable[[TaskPlan], Episode] | None = None  # None: the images, by the rule


@dataclass(frozen=True, slots=True)
class Tally:
    """How many lines a run wrote, and how many were there before."""

    written: int
    before: int


def with_roles(domains: Sequence[Domain], trained_on: Sequence[str]) -> list[Domain]:
    """The domains with `seen` meaning: trained on. Without such a list the suite's own roles stand."""
    if not trained_on:
        return list(domains)
    return [
        replace(d, role="seen" if d.name in trained_on else "unseen" if d.role == "seen" else d.role)
        for d in domains
    ]


def run(
    methods: Sequence[Method],
    job: Job,
    out: Path,
    *,
    kit: str | None = None,
    fingerprint: str | None = None,
    engines: Mapping[str, str] | None = None,
    device: torch.device | str = "cpu",
    track: Track = silent,
    say: Callable[[str], None] = lambda sentence: None,
    together: Together | None = None,
) -> Tally:
    """Score every method on every task that is not in the file yet, one line per score.

    The next tasks are read while a method runs. Interrupt it whenever you like: the same call goes on.
    `engines` says more of some than their names; `say` hears when other engines or precisions computed what
    the file has of these methods; `together` as in `evaluate`.
    """
    setting = Setting(
        protocol=job.protocol.name,
        pixels=job.rule.name,
        kit=kit,
        fingerprint=fingerprint,
        engines=engines or {},
        roles={d.name: d.role for d in job.domains},
        specs={d.name: d.spec.fingerprint() for d in job.domains},
    )
    shared = {
        "split": job.split,
        "seed": job.seed,
        "protocol": setting.protocol,
        "pixels": setting.pixels,
        "fingerprint": fingerprint,
        "revealed": job.reveal_seen,
    }
    assert tuple(shared) == SHARED
    names = [method.name for method in methods]
    among = [choices(domain.spec, job.split, job.protocol) for domain in job.domains]  # complain before work
    with open_results(out, shared, setting.specs) as results:
        if mixed := results.mixed({method.name: setting.engine_of(method) for method in methods}):
            say(mixed)

        def missing(domain: str, index: int) -> int:
            return sum(Key(name, domain, job.split, index) not in results.done for name in names)

        # Domain by domain within a task number: when a run is stopped, all domains are equally far.
        indices = job.shard.indices(job.tasks)
        todo = [(choice, i) for i in indices for choice in among if missing(choice.spec.name, i)]

        plans = (plan_task(choice, job.seed, i) for choice, i in todo)
        read = job.read or reader(job.domains, job.rule, reveal_seen=job.reveal_seen)
        episodes = prefetch(read, plans, workers=job.workers)
        scores = evaluate(methods, episodes, setting, device=device, done=results.done, together=together)
        total = sum(missing(choice.spec.name, i) for choice, i in todo)
        written = 0
        for score in track(scores, label="evaluate", total=total):
            results.append(score)
            written += 1
        return Tally(written, len(names) * len(among) * len(indices) - total)
