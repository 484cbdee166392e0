"""Tasks per second of small tasks, one by one and together, against the public-style loop in the same run.

fewshift bench small --device cuda --shots 1,5 --json small.json

`tasks_per_second` counts the adaptation alone, as `bench adapt` does. `scored_per_second` is what `fewshift
evaluate` reaches with the tasks in memory: features of support and queries under the adapted parameters,
prototypes and logits too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fewshift.benchmarks import public_loop
from fewshift.benchmarks.adapt import (
    PUBLIC,
    RATES,
    lived_in_net,
    machine,
    make_task,
    matrix_product_rate,
    now,
)
from fewshift.core.updates import Adadelta, site_rates
from fewshift.evaluation.evaluate import THREADS, attempt
from fewshift.methods import METHODS
from fewshift.nets.backbone import freeze
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.nets.packing import TOGETHER
from fewshift.nets.resnet import ResNet18
from fewshift.nets.together import Together
from fewshift.progress import Track, silent
from fewshift.types import Address, Episode, Task

WAY = 5
FEW = 3  # one by one, more tasks say nothing new
STEPS = 40  # those of `tsa`


def run(
    shots: Sequence[int] = (1, 5),
    width: int = 64,
    image_size: int = 84,
    device: str = "cpu",
    precisions: Sequence[str] = ("tf32", "float16"),
    *,
    tasks: int | None = None,
    repeats: int = 3,
    track: Track = silent,
) -> dict[str, Any]:
    """Five-way tasks of so many shots, `tasks` at a time; if not said, as many as a GPU's batch holds.

    Each rate is the best of `repeats`; the first turn captures graphs where there are any.
    """
    net = lived_in_net(width, image_size).to(device)
    kit = Kit(freeze(net))
    cuda = device.startswith("cuda")
    wanted = precisions if cuda else ["float32"]
    engines = {name: choose_engine(kit.backbone, "auto", name) for name in wanted}
    results: list[dict[str, Any]] = []
    for shot in shots:
        count = tasks or (max(1, min(THREADS, TOGETHER // (WAY * shot))) if cuda else FEW)
        episodes = [_episode(WAY * shot, image_size, device, number) for number in range(count)]
        best = partial(_best, repeats=repeats, device=device, track=track)
        results += [{"shot": shot} | row for row in _rows(net, kit, engines, episodes, best)]
    settings = {"steps": STEPS, "width": width, "image_size": image_size, "way": WAY, "repeats": repeats}
    rates = matrix_product_rate(device)
    return {"machine": machine(device, rates), "settings": settings, "results": results}


def _rows(
    net: ResNet18,
    kit: Kit,
    engines: Mapping[str, Engine],
    episodes: Sequence[Episode],
    best: Callable[[Callable[[], object], str, int], float],
) -> Iterator[dict[str, Any]]:
    """The public loop, then each engine one by one and with all tasks together."""
    every = [episode.task for episode in episodes]
    few = every[:FEW]
    public = best(partial(_public, net, few), PUBLIC, len(few))
    on_gpu = few[0].support.images.device.type == "cuda"
    yield _row(1, PUBLIC, "tf32" if on_gpu else "float32", public, public)
    for precision, engine in engines.items():
        alone = best(partial(_one_by_one, engine, few), f"{precision}, one by one", len(few))
        yield _row(1, engine.name, precision, alone, public)
        together = best(partial(_adapted, engine, every), f"{precision}, together", len(every))
        scored = best(partial(_scored, kit, Together(engine), episodes), f"{precision}, scored", len(every))
        row = _row(len(every), engine.name, precision, together, public)
        yield row | {"scored_per_second": round(1 / scored, 1)}


def _episode(size: int, image_size: int, device: str, number: int) -> Episode:
    task, query = make_task(size, image_size, device, number)
    return Episode(task, query, Address(0, "random", "test", number), tuple(range(task.way)))


def _public(net: ResNet18, tasks: Sequence[Task]) -> None:
    for task in tasks:
        public_loop.adapt(public_loop.PublicNet(net), task, STEPS, *RATES)


def _adapted(engine: Engine, tasks: Sequence[Task]) -> object:
    backbone = engine.backbone
    update = Adadelta(site_rates(backbone.sites, *RATES))
    starts = [backbone.init() for _ in tasks]
    return engine.adapt_many(tasks, starts, [update for _ in tasks], STEPS)


def _one_by_one(engine: Engine, tasks: Sequence[Task]) -> object:
    return [_adapted(engine, [task]) for task in tasks]


def _scored(kit: Kit, shared: Together, episodes: Sequence[Episode]) -> object:
    return attempt(METHODS["tsa"](kit, shared, False), episodes, shared)


def _best(
    work: Callable[[], object], label: str, tasks: int, *, repeats: int, device: str, track: Track
) -> float:
    """Seconds per task."""
    return min(_seconds(work, device) for _ in track(range(repeats), label=label, total=repeats)) / tasks


def _seconds(work: Callable[[], object], device: str) -> float:
    start = now(device)
    work()
    return now(device) - start


def _row(together: int, engine: str, precision: str, seconds: float, public: float) -> dict[str, Any]:
    return {
        "together": together,
        "engine": engine,
        "precision": precision,
        "seconds": round(seconds, 5),
        "tasks_per_second": round(1 / seconds, 1),
        "ratio": round(public / seconds, 2),
    }


def table(outcome: dict[str, Any]) -> str:
    """The results for people."""
    lines = [json.dumps(outcome["machine"])]
    for row in outcome["results"]:
        scored = f"  scored {row['scored_per_second']:.1f} a second" if "scored_per_second" in row else ""
        lines.append(
            f"{WAY}-way {row['shot']}-shot  {row['engine']:<8} {row['precision']:<8} "
            f"{row['together']:>3} at a time  {row['tasks_per_second']:>7.1f} tasks a second  "
            f"{row['ratio']:>6.2f}x{scored}"
        )
    return "\n".join(lines)
