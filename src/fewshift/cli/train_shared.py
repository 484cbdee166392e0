"""What the train commands share: where files go, which images are held, how a run ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import typer

from fewshift.cli.console import bars
from fewshift.cli.evaluate_inputs import choose_device, open_domains
from fewshift.data.domain import Domain
from fewshift.data.pixels import PROTOCOL_84, PixelRule, practical
from fewshift.data.protocol import Protocol
from fewshift.errors import FewshiftError
from fewshift.nets.kit import Kit, save_kit
from fewshift.progress import Track
from fewshift.training.distributed import Team, joined, repeat_to_the_bit
from fewshift.training.interruption import Interrupted
from fewshift.training.loop import Outcome


def places(out: Path, stage: str) -> tuple[Path, Path]:
    """The kit to write and the folder of its run."""
    if out.suffix == ".kit":
        if out.is_dir():
            raise FewshiftError(f"--out {out} is a folder: give the name of a file, or a folder without .kit")
        return out, out.with_suffix(".run")
    if out.is_file():
        raise FewshiftError(f"--out {out} is a file: give a name that ends in .kit, or a folder")
    return out / f"{stage}.kit", out


@contextmanager
def team_at(device: str, exact: bool) -> Iterator[tuple[Team, torch.device]]:
    """The processes and the device of a run; Ctrl-C ends it with a sentence and code 130."""
    if exact:
        repeat_to_the_bit()
    try:
        with joined(choose_device(device)) as (team, where):
            yield team, where
    except Interrupted as stopped:
        typer.echo(f"fewshift: {stopped}", err=True)
        raise typer.Exit(130) from None


def watched(quiet: bool, team: Team) -> Track:
    """Bars, in one process only."""
    return bars(quiet or not team.leads)


def training_domains(records: Path | None, suite: str | None, names: list[str], track: Track) -> list[Domain]:
    """The domains named; without names, all seen ones that have TRAIN classes."""
    found = open_domains(records, None, suite, names, "train", track)
    chosen = found if names else [domain for domain in found if domain.role == "seen"]
    if not chosen:
        raise FewshiftError("none of these domains is a seen one: name those to train on with --domains")
    for domain in chosen:
        if not len(domain.spec.splits["train"]):
            raise FewshiftError(f"{domain.name} has no TRAIN classes: train on other domains")
    return chosen


def rule_for(size: int) -> PixelRule:
    """The protocol's pixels at 84, antialiased ones of the same range at any other size."""
    return PROTOCOL_84 if size == 84 else practical(size, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def about(settings: Any, outcome: Outcome, protocol: Protocol | None = None) -> dict[str, Any]:
    """What a kit says of a run."""
    found = {
        "settings": asdict(settings),
        "updates_done": outcome.step,
        "skipped_tasks": outcome.skipped,
        "validation": None if outcome.best is None else asdict(outcome.best),
    }
    return found if protocol is None else {**found, "protocol": protocol.to_dict()}


def capped(protocol: Protocol, cap: int | None) -> Protocol:
    """The protocol with the support cap of the command line."""
    return protocol if cap is None else replace(protocol, max_support=cap)


def finish(kit: Kit, path: Path, team: Team, sentence: str) -> None:
    """Write the kit and say what it is."""
    if team.leads:
        save_kit(kit, path)
        typer.echo(f"{sentence}; wrote {path}", err=True)
