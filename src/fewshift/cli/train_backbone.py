"""The work behind `fewshift train backbone`."""

from __future__ import annotations

from dataclasses import asdict, replace

import typer

from fewshift.cli.options import words
from fewshift.cli.train import Wanted
from fewshift.cli.train_options import Preset, Run
from fewshift.cli.train_shared import by_domain, finish, places, rule_for, session_of, training_domains
from fewshift.data.protocol import VARYING
from fewshift.data.subset import hold_out
from fewshift.errors import FewshiftError
from fewshift.nets.kit import ImageSettings, Kit
from fewshift.presets.small_data import small_backbone
from fewshift.presets.training import QUICK_SIZE, QUICK_TASKS, changed, paper_backbone, quick_backbone
from fewshift.training.backbone import train_backbone
from fewshift.training.streamed import StreamedDomain, held_images
from fewshift.training.teachers import load_teacher

BACKBONES = {Preset.paper: paper_backbone, Preset.quick: quick_backbone, Preset.small: small_backbone}


def run_backbone(wanted: Wanted, run: Run) -> None:
    """Train, then write the kit."""
    kit_path, folder = places(wanted.out, "backbone")
    given = by_domain(wanted.teacher or [], "--teacher", "DOMAIN=RUN, a domain and the folder of its run")
    teachers = {domain: load_teacher(path, domain) for domain, path in given.items()}
    with session_of(run) as session:
        domains = training_domains(wanted.records, wanted.suite, words(wanted.domains), session.track)
        if wanted.hold_out:
            domains = [hold_out(domain, wanted.hold_out, run.seed)[0] for domain in domains]
        names = [domain.name for domain in domains]
        quick = wanted.preset is Preset.quick
        recipe = changed(
            BACKBONES[wanted.preset](names),
            run.save_every,
            width=wanted.width,
            updates=wanted.updates,
            rate=wanted.rate,
            precision=wanted.precision and wanted.precision.value,
            **run.changes,
        )
        settings = recipe.settings
        if wanted.batch is not None:
            settings = replace(settings, default_batch=wanted.batch, batches={})
        size = wanted.image_size or (QUICK_SIZE if quick else 84)
        varied = settings.augmentation
        varied = replace(
            varied,
            pad=min(varied.pad, size // 8),
            flip=wanted.flip or varied.flip,
            zoom=varied.zoom if wanted.zoom is None else wanted.zoom,
        )
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
                "hold_out": {"fraction": wanted.hold_out, "seed": run.seed},
                "teachers": sorted(teachers),
                "settings": asdict(settings),
                "updates_done": trained.outcome.step,
                "validation": None if trained.outcome.best is None else asdict(trained.outcome.best),
            }
        }
        kit = Kit(trained.backbone, ImageSettings(**asdict(rule)), info=info)
        sentence = f"trained a backbone on {', '.join(names)} with {trained.outcome.step} updates"
        finish(kit, kit_path, session, sentence)
