"""What the train commands share: where files go, which images are held, how a run ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import typer

from fewshift.cli.console import bars
from fewshift.cli.evaluate_inputs import choose_device, open_domains
from fewshift.cli.train_options import Run
from fewshift.data.domain import Domain
from fewshift.data.pixels import PROTOCOL_84, PixelRule, practical
from fewshift.data.protocol import Protocol
from fewshift.errors import FewshiftError
from fewshift.nets.kit import Kit, save_kit
from fewshift.progress import Track
from fewshift.training.distributed import Team, joined, repeat_to_the_bit
from fewshift.training.interruption import Interrupted
from fewshift.training.loop import Outcome, RunOptions, Watch


def places(out: Path, stage: str) -> tuple[Path, Path]:
    """The kit to write and the folder of its run."""
    if out.suffix == ".kit":
        if out.is_dir():
            raise FewshiftError(f"--out {out} is a folder: give the name of a file, or a folder without .kit")
        return out, out.with_suffix(".run")
    if out.is_file():
        raise FewshiftError(f"--out {out} is a file: give a name that ends in .kit, or a folder")
    return out / f"{stage}.kit", out


@dataclass(frozen=True)
class Session:
    """Where a command trains, who watches, and whether it goes on where it stopped."""

    device: torch.device
    team: Team
    track: Track
    resume: bool

    def options(self, watch: Watch) -> RunOptions:
        """The same for a training function that is watched like this."""
        return RunOptions(watch=watch, resume=self.resume, track=self.track, team=self.team)


@contextmanager
def session_of(run: Run) -> Iterator[Session]:
    """The processes and the device of a run, with bars in one process; Ctrl-C ends it with code 130."""
    if run.exact:
        repeat_to_the_bit()
    with joined(choose_device(run.device)) as (team, device):
        try:
            yield Session(device, team, bars(run.quiet or not team.leads), run.resume)
        except Interrupted as stopped:
            if team.leads:
                typer.echo(f"fewshift: {stopped}", err=True)
            raise typer.Exit(130) from None


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


def by_domain(texts: Sequence[str], option: str, form: str) -> dict[str, Path]:
    """What DOMAIN=PATH says, of each of these texts."""
    found = {}
    for text in texts:
        domain, separator, path = text.partition("=")
        if not separator or not path:
            raise FewshiftError(f"{option} is {text!r}: give {form}")
        found[domain] = Path(path)
    return found


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
    """The protocol with the support cap of the command line, which makes tasks smaller only."""
    return protocol if cap is None else replace(protocol, max_support=min(cap, protocol.max_support))


def finish(kit: Kit, path: Path, session: Session, sentence: str) -> None:
    """Write the kit and say what it is."""
    if session.team.leads:
        save_kit(kit, path)
        typer.echo(f"{sentence}; wrote {path}", err=True)
