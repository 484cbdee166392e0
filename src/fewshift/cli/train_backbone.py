"""The work behind `fewshift train backbone`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import typer

from fewshift.cli.train_options import Run
from fewshift.cli.train_shared import finish, places, rule_for, session_of, training_domains
from fewshift.cli.words import words
from fewshift.data.protocol import VARYING
from fewshift.data.subset import hold_out
from fewshift.errors import FewshiftError
from fewshift.nets.kit import ImageSettings, Kit
from fewshift.presets.small_data import small_backbone
from fewshift.presets.training import QUICK_SIZE, QUICK_TASKS, changed, paper_backbone, quick_backbone
from fewshift.training.backbone import train_backbone
from fewshift.training.distill import Teacher
from fewshift.training.streamed import StreamedDomain, held_images
from fewshift.training.teachers import load_teacher

BACKBONES = {"paper": paper_backbone, "quick": quick_backbone, "small": small_backbone}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options of the command."""

    out: Path
    records: Path | None
    suite: str | None
    domains: str | None
    preset: str
    width: int | None
    image_size: int | None
    updates: int | None
    batch: int | None
    rate: float | None
    teachers: list[str]
    hold_out: float
    flip: bool
    never_mirrored: str | None
    zoom: float | None
    precision: str | None
    stream: bool | None
    run: Run


def run(wanted: Wanted) -> None:
    """Train, then write the kit."""
    kit_path, folder = places(wanted.out, "backbone")
    teachers = _teachers(wanted.teachers)
    with session_of(wanted.run) as session:
        domains = training_domains(wanted.records, wanted.suite, words(wanted.domains), session.track)
        if wanted.hold_out:
            domains = [hold_out(domain, wanted.hold_out, wanted.run.seed)[0] for domain in domains]
        names = [domain.name for domain in domains]
        quick = wanted.preset == "quick"
        recipe = changed(
            BACKBONES[wanted.preset](names),
            wanted.run.save_every,
            width=wanted.width,
            updates=wanted.updates,
            rate=wanted.rate,
            precision=wanted.precision,
            **wanted.run.changes,
        )
        settings = recipe.settings
        if wanted.batch is not None:
            settings = replace(settings, default_batch=wanted.batch, batches={})
        size = wanted.image_size or (QUICK_SIZE if quick else 84)
        pad = min(settings.augmentation.pad, size // 8)
        varied = replace(settings.augmentation, pad=pad)
        if wanted.flip:
            varied = replace(varied, flip=True)
        if wanted.zoom is not None:
            varied = replace(varied, zoom=wanted.zoom)
        letters = tuple(words(wanted.never_mirrored)) or settings.never_mirrored
        if wanted.never_mirrored and (unknown := [name for name in letters if name not in names]):
            raise FewshiftError(
                f"--never-mirrored {unknown[0]}: it is not among the domains {', '.join(names)}: name "
                "some of these"
            )
        settings = replace(settings, augmentation=varied, never_mirrored=letters)
        rule = rule_for(size)
        protocol = QUICK_TASKS if quick else VARYING
        held = held_images(
            domains,
            rule,
            session.device,
            ("train", "valid"),
            protocol=protocol,
            stream=wanted.stream,
            track=session.track,
        )
        streamed = [name for name, domain in held.items() if isinstance(domain, StreamedDomain)]
        if streamed and wanted.stream is None and session.team.leads:
            typer.echo(f"too large for the memory, so read for every update: {', '.join(streamed)}", err=True)
        trained = train_backbone(
            held, settings, folder, teachers=teachers, protocol=protocol, **session.options(recipe.watch)
        )
        info = {
            "backbone": {
                "domains": names,
                "classes": {name: len(held[name].spec.splits["train"]) for name in names},
                "hold_out": {"fraction": wanted.hold_out, "seed": wanted.run.seed},
                "teachers": sorted(teachers),
                "settings": asdict(settings),
                "updates_done": trained.outcome.step,
                "validation": None if trained.outcome.best is None else asdict(trained.outcome.best),
            }
        }
        kit = Kit(trained.backbone, ImageSettings(**asdict(rule)), info=info)
        sentence = f"trained a backbone on {', '.join(names)} with {trained.outcome.step} updates"
        finish(kit, kit_path, session, sentence)


def _teachers(texts: list[str]) -> dict[str, Teacher]:
    found = {}
    for text in texts:
        domain, separator, folder = text.partition("=")
        if not separator:
            raise FewshiftError(f"--teacher is {text!r}: give DOMAIN=RUN, a domain and the folder of its run")
        found[domain] = load_teacher(Path(folder), domain)
    return found
