"""A learning curve on a user's own folder: how good is each method after 1, 2, 5, 10 images per class?"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fewshift import __version__
from fewshift.data.domain import Item
from fewshift.data.folder import FolderSource
from fewshift.data.pixels import prepare
from fewshift.errors import FewshiftError
from fewshift.estimator.adapting import Support, Tools, adapt
from fewshift.estimator.choosing import check_parameters
from fewshift.estimator.curve_tasks import CurvePlan, Drawn, draw
from fewshift.estimator.kits import Opened
from fewshift.estimator.recipes import METHODS as FITTED
from fewshift.estimator.trials import SCALE
from fewshift.evaluation.curve_scores import domain_of_shot
from fewshift.evaluation.evaluate import engine_of
from fewshift.evaluation.fingerprint import kit_fingerprint
from fewshift.evaluation.scores import Key, Score
from fewshift.methods import METHODS
from fewshift.nets.choice import named_engine
from fewshift.progress import Track, silent

KEPT_BYTES = 512 * 2**20  # of prepared images; others are read again for every task

DEFAULT_METHODS = ("tsp", "ncc", "linear_probe")


@dataclass(frozen=True)
class Outcome:
    """Probabilities of the queries' classes, and before the temperature."""

    probabilities: Tensor  # (n, way), on the CPU like the other
    before: Tensor  # (n, way)
    notes: Mapping[str, Any] = field(default_factory=dict)


Contestant: TypeAlias = Callable[[Support, Tensor], Outcome]  # labelled images, queries -> outcome


def contestants(names: Sequence[str], opened: Opened, seed: int) -> dict[str, Contestant]:
    """Methods by name: those of `FewShotClassifier` as it fits them, any other without the oracle."""
    if not names:
        raise FewshiftError(f"--methods names none: choose among {', '.join(METHODS)}")
    return {name: _contestant(name, opened, seed) for name in dict.fromkeys(names)}


def _contestant(name: str, opened: Opened, seed: int) -> Contestant:
    if name in FITTED:
        check_parameters(name, "auto", seed)
        return lambda support, queries: _fitted(name, opened, seed, support, queries)
    if name not in METHODS:
        raise FewshiftError(f"there is no method {name!r}: choose among {', '.join(METHODS)}")
    method = METHODS[name](opened.kit, opened.engine, False)

    def plain(support: Support, queries: Tensor) -> Outcome:
        logits = method.adapt(support.task(opened.device))(queries.to(opened.device))
        probabilities = logits.double().softmax(dim=1).cpu()
        return Outcome(probabilities, probabilities)

    return plain


def engine_for(name: str, opened: Opened) -> str:
    """Who runs the network for this method, as its lines say it."""
    if name in METHODS and name not in FITTED:
        ran_on = engine_of(METHODS[name](opened.kit, opened.engine, False))
        if ran_on != opened.engine.name:
            return ran_on
    return named_engine(opened.engine)


def _fitted(name: str, opened: Opened, seed: int, support: Support, queries: Tensor) -> Outcome:
    fitted = adapt(Tools(opened.kit, opened.engine, name, "auto", seed), support)
    cosines = fitted.cosines(opened.engine.embed(fitted.params, queries.to(opened.device)))
    notes = {
        "steps": fitted.settings.steps,
        "rates": list(fitted.settings.rates),
        "scale": round(fitted.scale, 4),
        "coefficients": {domain: round(share, 4) for domain, share in fitted.coefficients.items()},
    }
    cosines = cosines.cpu()  # waits for the device, so that seconds are whole
    return Outcome(fitted.probabilities(cosines), (SCALE * cosines.double()).softmax(dim=1), notes)


class Pictures:
    """The folder's images as the network reads them; a bounded number of them is kept."""

    def __init__(self, source: FolderSource, opened: Opened, kept_bytes: int = KEPT_BYTES) -> None:
        self.source, self.rule = source, opened.rule
        self.room = max(1, kept_bytes // (12 * self.rule.size**2))
        self.kept: dict[Item, Tensor] = {}

    def read_ahead(self, items: Sequence[Item], track: Track = silent) -> None:
        """Read what there is room for, so that a damaged file is named before any work is done."""
        for item in track(items[: self.room], label="reading images", total=min(len(items), self.room)):
            self.kept[item] = self._read(item)

    def __call__(self, items: Sequence[Item]) -> Tensor:  # (n, 3, size, size)
        """The images at these places."""
        return torch.cat([self.kept[item] if item in self.kept else self._read(item) for item in items])

    def _read(self, item: Item) -> Tensor:
        return prepare(self.source.read([item]), self.rule)


def shared_facts(plan: CurvePlan, opened: Opened) -> dict[str, Any]:
    """What all lines of one curve have in common, for `open_results`."""
    return {
        "split": "test",
        "seed": plan.seed,
        "protocol": plan.protocol,
        "pixels": opened.rule.name,
        "fingerprint": kit_fingerprint(opened.kit),
        "revealed": False,
    }


def learning_curve(
    plan: CurvePlan,
    methods: Mapping[str, Contestant],
    opened: Opened,
    done: Container[Key] = frozenset(),
    track: Track = silent,
) -> Iterator[Score]:
    """Every method on every task, one score each, as they are made; pairs in `done` are left out."""
    facts = shared_facts(plan, opened)
    engines = {name: engine_for(name, opened) for name in methods}
    drawn = [draw(plan, index) for index in range(plan.tasks)]
    todo = [
        (task, shot, name)
        for task in drawn
        for shot in plan.shots
        for name in methods
        if Key(name, domain_of_shot(plan.domain.name, shot), "test", task.index) not in done
    ]
    pictures = Pictures(plan.source, opened)
    wanted = {task.index: task for task, _, _ in todo}.values()
    items = [item for task in wanted for item in [*task.queries(), *task.support(plan.shots[-1])]]
    pictures.read_ahead(list(dict.fromkeys(items)), track)
    for task, shot, name in track(todo, label="learning curve", total=len(todo)):
        support = _support(plan, task, shot, pictures)
        queries = pictures(task.queries())
        began = time.perf_counter()
        outcome = methods[name](support, queries)
        seconds = time.perf_counter() - began
        told = {**facts, "engine": engines[name]}
        yield _score(plan, task, shot, name, outcome, seconds, opened, told)


def _support(plan: CurvePlan, task: Drawn, shot: int, pictures: Pictures) -> Support:
    items = task.support(shot)
    return Support(
        pictures(items),
        torch.arange(len(task.class_ids)).repeat_interleave(shot),
        tuple(plan.file(item) for item in items),
        tuple(plan.domain.spec.class_names[c] for c in task.class_ids),
    )


def _score(
    plan: CurvePlan,
    task: Drawn,
    shot: int,
    name: str,
    outcome: Outcome,
    seconds: float,
    opened: Opened,
    facts: Mapping[str, Any],
) -> Score:
    """A line; a query without finite probabilities counts as wrong, and the line says so."""
    after, before = outcome.probabilities, outcome.before
    places = task.queries()
    labels = torch.arange(plan.way).repeat_interleave(plan.queries)
    finite = torch.isfinite(after).all(dim=1)
    said = after.argmax(dim=1)
    rows = [
        [
            plan.file(places[i]),
            plan.domain.spec.class_names[task.class_ids[said[i]]],
            round(float(after[i, said[i]]), 4),
            round(float(before[i, said[i]]), 4),
        ]
        for i in torch.nonzero(finite)[:, 0].tolist()
    ]
    lost = len(places) - len(rows)
    return Score(
        method=name,
        domain=domain_of_shot(plan.domain.name, shot),
        index=task.index,
        accuracy=int(((said == labels) & finite).sum()) / len(places),
        seconds=round(seconds, 5),
        way=plan.way,
        support=plan.way * shot,
        queries=len(places),
        oracle=False,
        seen=None,
        spec=plan.fingerprint,
        kit=opened.name,
        device=opened.device.type,
        failure=f"{lost} of {len(places)} queries have probabilities that are not finite" if lost else None,
        versions={"fewshift": __version__, "torch": torch.__version__},
        notes={"shot": shot, **outcome.notes, "answers": rows},
        **facts,
    )
