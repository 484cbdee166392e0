"""The work behind `fewshift train preconditioners` and `fewshift train classifier`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import typer

from fewshift.cli.options import words
from fewshift.cli.train_options import Run, Source, Tasks
from fewshift.cli.train_shared import Session, about, capped, finish, places, session_of, training_domains
from fewshift.core.precond import FEW_ROWS
from fewshift.data.domain import Domain
from fewshift.data.subset import at_most, hold_out
from fewshift.errors import FewshiftError
from fewshift.evaluation.pixel_rule import pixel_rule
from fewshift.nets.backbone import Backbone
from fewshift.nets.bundled import find_kit
from fewshift.nets.feature_kit import moves_only_the_last_map, on_features, with_sites
from fewshift.nets.kit import Kit
from fewshift.nets.precision import DEFAULT, precision_named
from fewshift.presets.meta_training import CLASSIFIERS, PRECONDITIONERS, PROTOCOLS
from fewshift.presets.rates import unchosen
from fewshift.presets.small_data import LETTERS, VARIED
from fewshift.presets.training import Recipe, changed
from fewshift.training.classifier import train_classifier
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.features import featured
from fewshift.training.loop import Outcome
from fewshift.training.metagradients import MetaGradients, arithmetic_of
from fewshift.training.policy import PolicySettings
from fewshift.training.preconditioners import train_preconditioners
from fewshift.training.settings import ClassifierSettings, PreconditionerSettings
from fewshift.training.strangers import StrangerTasks
from fewshift.training.streamed import held_domains
from fewshift.training.tasks import ResidentTasks
from fewshift.training.varied import VariedTasks
from fewshift.types import Split

S = TypeVar("S", PreconditionerSettings, ClassifierSettings, PolicySettings)


@dataclass(frozen=True, kw_only=True)
class MetaWanted:
    """What a command asks of meta-training."""

    source: Source
    run: Run
    preset: str
    classes: str
    changes: Mapping[str, Any]  # replaces settings of the preset
    tasks: Tasks
    inner: Mapping[str, Any] = field(default_factory=dict)  # replaces settings of the inner level
    domains: str | None = None
    sites: str | None = None  # None: the kit's own
    vary: bool = False  # the images of training tasks
    strangers: int = 0  # made-up domains beside the real ones
    needs_images: tuple[str, ...] = ()  # options that were given and that tasks of features cannot keep
    validate_every: int | None = None  # updates, if not the preset's
    keep_last: bool = False  # the last state counts, not the best validated one


@dataclass(frozen=True)
class Ready:
    """What was asked for, a kit on its device, the tasks to learn from, and who watches."""

    wanted: MetaWanted
    kit: Kit
    tasks: ResidentTasks | VariedTasks | StrangerTasks
    session: Session
    backbone: Backbone  # what reads the tasks: the kit's, or its last map where they hold features

    def recipe(self, preset: Recipe[S]) -> Recipe[S]:
        """The preset with the options that were given."""
        wanted = self.wanted
        changes = {**wanted.changes, **wanted.run.changes}
        if wanted.classes == "valid":
            changes |= {"split": "valid", "validation_split": "train"}
        if inner := {name: value for name, value in wanted.inner.items() if value is not None}:
            assert not isinstance(preset.settings, PolicySettings)  # it has no inner level
            changes["inner"] = replace(preset.settings.inner, **inner)
        return changed(preset, wanted.run.save_every, wanted.validate_every, wanted.keep_last, **changes)

    def about(self, settings: S, outcome: Outcome, ways: MetaGradients | None = None) -> dict[str, Any]:
        """What a kit says of a run."""
        told = about(settings, outcome, self.tasks.protocol)
        computed = {} if ways is None else arithmetic_of(ways)
        return {**told, "classes": self.wanted.classes, **computed, "tasks": self.tasks.identity()}

    def finish(self, kit: Kit, path: Path, sentence: str, outcome: Outcome) -> None:
        """Write the kit; say what it is, and how many tasks were left out where some were."""
        if outcome.skipped:
            sentence += f" ({outcome.skipped} tasks with numbers that are not finite were left out)"
        finish(kit, path, self.session, sentence)


def run_preconditioners(wanted: MetaWanted) -> None:
    """Algorithm 1, then write the kit."""
    kit_path, folder = places(wanted.source.out, "preconditioners")
    with prepared(wanted, words(wanted.domains)) as ready:
        recipe = ready.recipe(PRECONDITIONERS[wanted.preset](ready.tasks.domains))
        refuse_idle(wanted, recipe.settings)
        if not recipe.settings.train_starts and wanted.changes.get("start_rank") is None:
            recipe = replace(recipe, settings=replace(recipe.settings, start_rank=None))  # a preset's
        ways = ways_to_learn(ready)
        trained = train_preconditioners(
            ready.backbone,
            ready.tasks,
            recipe.settings,
            folder,
            meta_gradients=ways,
            **ready.session.options(recipe.watch),
        )
        kit = replace(
            ready.kit.to("cpu"),
            preconditioners=trained.preconditioners,
            starts=trained.starts,
            classifier=None,
            domains=trained.preconditioners.domains,
            info={
                **unchosen(ready.kit, trained.preconditioners.domains),
                "preconditioners": ready.about(recipe.settings, trained.outcome, ways),
            },
        )
        ready.finish(kit, kit_path, f"trained preconditioners of {', '.join(kit.domains)}", trained.outcome)


def ways_to_learn(ready: Ready) -> MetaGradients:
    """The fastest meta-gradients in the precision that was asked for."""
    precision = precision_named(ready.wanted.tasks.precision)
    if precision == "float16" and ready.session.device.type == "cpu":
        if ready.session.team.leads:  # said, not refused: one list of commands serves any machine
            typer.echo("fewshift: float16 is for GPUs, this run computes in float32", err=True)
        precision = DEFAULT
    return best_meta_gradients(ready.backbone, precision)


def refuse_idle(wanted: MetaWanted, settings: PreconditionerSettings) -> None:
    """Refuse options that would change nothing."""
    given = {name for name, value in wanted.changes.items() if value not in (None, False)}
    if "rank" in given and settings.design not in FEW_ROWS:
        raise FewshiftError(f"--rank is for the designs {' and '.join(FEW_ROWS)}, not for {settings.design}")
    for name in ("common_start", "start_rate"):
        if name in given and not settings.train_starts:
            raise FewshiftError(f"--{name.replace('_', '-')} is for starting values: add --train-starts")


def run_classifier(wanted: MetaWanted) -> None:
    """Algorithm 2, then write the kit."""
    kit_path, folder = places(wanted.source.out, "classifier")
    with prepared(wanted, None) as ready:
        assert ready.kit.preconditioners is not None
        recipe = ready.recipe(CLASSIFIERS[wanted.preset](ready.tasks.domains))
        if moves_only_the_last_map(ready.kit):  # whose tasks hold features
            recipe = replace(recipe, settings=replace(recipe.settings, reads="features"))
        ways = ways_to_learn(ready)
        trained = train_classifier(
            ready.backbone,
            ready.kit.preconditioners,
            ready.tasks,
            recipe.settings,
            folder,
            starts=ready.kit.starts,
            meta_gradients=ways,
            **ready.session.options(recipe.watch),
        )
        kit = replace(
            ready.kit.to("cpu"),
            classifier=trained.classifier,
            info={
                **unchosen(ready.kit, ready.kit.domains),
                "classifier": ready.about(recipe.settings, trained.outcome, ways),
            },
        )
        ready.finish(kit, kit_path, f"trained a classifier of {', '.join(kit.domains)}", trained.outcome)


@contextmanager
def prepared(
    wanted: MetaWanted, names: list[str] | None, check: Callable[[Kit], object] = lambda kit: None
) -> Iterator[Ready]:
    """Everything a meta-training run reads; `names` None: the domains of the kit's preconditioners.

    `check` refuses a kit before the images are read, which may take minutes.
    """
    with session_of(wanted.run) as session:
        _, kit = find_kit(wanted.source.kit, session.device)
        if wanted.sites is not None:
            if kit.parts and session.team.leads:
                typer.echo(f"--sites: the new kit is without {', '.join(kit.parts)} of the old one", err=True)
            kit = with_sites(kit, wanted.sites)
        check(kit)
        if names is None:
            if kit.preconditioners is None:
                raise FewshiftError(
                    f"--kit {wanted.source.kit} has no preconditioners to blend: run train preconditioners "
                    "first"
                )
            names = list(kit.domains)
        domains = training_domains(wanted.source.records, wanted.source.suite, names, session.track)
        if wanted.classes == "held-out":
            domains = [_held_out(domain, kit, wanted.source.kit) for domain in domains]
        if wanted.tasks.train_images is not None:
            domains = [at_most(domain, wanted.tasks.train_images) for domain in domains]
        rule = pixel_rule(kit)
        protocol = capped(PROTOCOLS[wanted.preset], wanted.tasks.support_cap)
        splits: tuple[Split, ...] = ("train", "valid")
        if moves_only_the_last_map(kit):
            if wanted.needs_images:
                raise FewshiftError(
                    f"{wanted.needs_images[0]} changes images, and where the last map alone moves, tasks are "
                    "of features that are computed once: leave it out, or choose other --sites"
                )
            features = {d.name: featured(d, rule, kit.backbone, splits, track=session.track) for d in domains}
            yield Ready(wanted, kit, ResidentTasks(features, protocol), session, on_features(kit).backbone)
            return
        held = held_domains(
            domains,
            rule,
            session.device,
            splits,
            protocol=protocol,
            stream=wanted.tasks.stream,
            track=session.track,
        )
        tasks = ResidentTasks(held, protocol)
        letters = tuple(domain.name for domain in domains if domain.name in LETTERS)
        varied = VariedTasks(tasks, VARIED, letters) if wanted.vary else tasks
        offered = StrangerTasks(varied, wanted.strangers) if wanted.strangers else varied
        yield Ready(wanted, kit, offered, session, kit.backbone)


def _held_out(domain: Domain, kit: Kit, name: str) -> Domain:
    """The TRAIN classes that the kit's backbone was not trained on."""
    known = kit.info.get("backbone", {}).get("hold_out", {})
    if not known.get("fraction"):
        raise FewshiftError(
            f"--classes held-out: the backbone of {name} held no classes out: train it with --hold-out"
        )
    return hold_out(domain, known["fraction"], known["seed"])[1]
