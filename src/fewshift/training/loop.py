"""What every training run shares: steps and their log lines, validations, checkpoints, stopping and resuming.

A run is a folder: `log.jsonl`, `last.safetensors` (to go on from) and `best.safetensors` (the best
validation). What is learned, and how, is a `Learner`. Numbers of a step stay on the device and are fetched
together every `log_every` steps, so that the host never waits inside a step.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypedDict

import torch
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.progress import Track, silent
from fewshift.training import journal
from fewshift.training.checkpoint import Best, Checkpoint, check_same_run, load_checkpoint, save_checkpoint
from fewshift.training.distributed import ALONE, Team
from fewshift.training.interruption import Interrupted, Stop

LOG, LAST, BEST = "log.jsonl", "last.safetensors", "best.safetensors"

Metrics: TypeAlias = Mapping[str, "Tensor | float"]  # scalars; `loss` must be there, `skipped` counts tasks


class Diverged(FewshiftError):
    """The loss, or what is learned, is no number any more."""


@dataclass(frozen=True)
class Validation:
    """One validation: the score to be maximised and what else belongs into its log line."""

    score: float
    details: Mapping[str, Any]


class Learner(Protocol):
    """Something that learns by steps, each a function of its state and the step's number alone."""

    @property
    def kind(self) -> str:
        """The name of the command that trains it."""
        ...

    @property
    def unit(self) -> str:
        """What a step consumes: `tasks` or `images`."""
        ...

    @property
    def units(self) -> int:
        """How many of them, over all processes."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it learns."""
        ...

    def update(self, step: int) -> Metrics:
        """Take step number `step`, counted from 0."""
        ...

    def validate(self) -> Validation | None:
        """Score the present state on tasks of classes it does not learn from; None where there are none."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Its whole state."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Return to a state that `tensors` gave."""
        ...


@dataclass(frozen=True, kw_only=True)
class Watch:
    """How often a run is looked at. Nothing here changes what is learned, except which state counts."""

    log_every: int = 10
    checkpoint_every: int = 500
    validate_every: int | None = None  # None: only at the end
    patience: int | None = None  # stop after this many validations without a new best
    keep_last: bool = False  # the outcome is the last state, and validations are only looked at

    def __post_init__(self) -> None:
        for name in ("log_every", "checkpoint_every", "validate_every", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FewshiftError(f"training: {name} is {value}: give 1 or more")


class RunOptions(TypedDict):
    """What every training function takes beside what it learns from, and hands on to `run`."""

    watch: Watch
    resume: bool
    track: Track
    team: Team


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    folder: Path
    step: int
    best: Best | None
    skipped: int
    counts: str = BEST

    def checkpoint(self) -> Checkpoint:
        """The state that counts: the best, or the last one where none was validated or that was asked for."""
        path = self.folder / self.counts
        return load_checkpoint(path if path.exists() else self.folder / LAST)


def run(
    learner: Learner,
    folder: Path,
    identity: Mapping[str, Any],
    updates: int,
    watch: Watch,
    *,
    resume: bool = False,
    track: Track = silent,
    team: Team = ALONE,
) -> Outcome:
    """Train until `updates` steps are done; `identity` is what a resumed run must share with its checkpoint.

    A longer run with the same identity may continue a shorter one.
    """
    state = _begin(learner, folder, identity, resume, team)
    pending: list[tuple[int, Metrics]] = []
    mark = time.perf_counter()
    with Stop() as stop:
        for step in track(
            range(state.step, updates), label=f"train {learner.kind}", total=updates - state.step
        ):
            if watch.patience is not None and state.stale >= watch.patience:
                break
            pending.append((step + 1, learner.update(step)))
            done, last = step + 1, step + 1 == updates
            validated = last or (watch.validate_every is not None and done % watch.validate_every == 0)
            saved = validated or done % watch.checkpoint_every == 0
            if not (saved or done % watch.log_every == 0 or (stop.wanted and team.size == 1)):
                continue
            lines, skipped = _fetch(pending, learner, time.perf_counter() - mark)
            pending.clear()
            state = replace(state, step=done, skipped=state.skipped + skipped)
            if team.leads:
                journal.append(folder / LOG, lines)
            _refuse_divergence(lines, folder)
            if saved:
                _refuse_a_ruined_state(learner, done, folder, team)
            if validated:
                state = _validated(state, learner, folder, team)
            interrupted = team.any(stop.wanted, learner.device)
            if interrupted and not saved:
                _refuse_a_ruined_state(learner, done, folder, team)
            if team.leads and (saved or interrupted):
                save_checkpoint(folder / LAST, replace(state, tensors=learner.tensors()))
            if interrupted:  # after the last step, too: the command may have more to train
                team.wait()  # torchrun ends all processes once one has ended: not before the state is saved
                raise Interrupted(learner.kind, done, folder)
            mark = time.perf_counter()
    team.wait()
    return Outcome(folder, state.step, state.best, state.skipped, LAST if watch.keep_last else BEST)


def _begin(
    learner: Learner, folder: Path, identity: Mapping[str, Any], resume: bool, team: Team
) -> Checkpoint:
    """The state to start from: the folder's last one when resuming, else that of a fresh learner."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise FewshiftError(
            f"{folder}: cannot be a run's folder ({problem.strerror}): give another"
        ) from None
    path = folder / LAST
    if path.exists():
        state = load_checkpoint(path)
        if not resume:
            raise FewshiftError(
                f"{folder} already holds a run at step {state.step}: add --resume to go on with it, or give "
                "another folder"
            )
        check_same_run(path, state, learner.kind, identity)
        learner.restore(state.tensors)
        state = replace(state, tensors={})
    else:
        state = Checkpoint(learner.kind, identity, 0, {})
    team.wait()  # the log is not cut while another process still looks for the checkpoint
    if team.leads:
        journal.sweep(folder, *([] if path.exists() else [BEST]))
        journal.cut(folder / LOG, state.step)
    return state


def _validated(state: Checkpoint, learner: Learner, folder: Path, team: Team) -> Checkpoint:
    """The state after a validation: logged, and kept as the best where it is."""
    started = time.perf_counter()
    found = learner.validate()
    if found is None:
        return state
    best, finite = state.best, math.isfinite(found.score)
    better = finite and (best is None or found.score > best.score)
    state = replace(
        state,
        best=Best(state.step, found.score) if better else best,
        stale=0 if better else state.stale + 1,
    )
    if team.leads:
        line = {"step": state.step, "validation": found.score, **found.details}
        journal.append(folder / LOG, [{**line, "seconds": time.perf_counter() - started}])
        if better:
            save_checkpoint(folder / BEST, replace(state, tensors=learner.tensors()))
    return state


def _fetch(
    pending: list[tuple[int, Metrics]], learner: Learner, elapsed: float
) -> tuple[list[dict[str, Any]], int]:
    """The log lines since the last fetch and how many tasks they skipped: one wait for the device."""
    waiting = [value for _, metrics in pending for value in metrics.values() if isinstance(value, Tensor)]
    values = iter(torch.stack([v.detach().float().reshape(()) for v in waiting]).tolist() if waiting else [])
    rate = len(pending) * learner.units / max(elapsed, 1e-9)
    lines: list[dict[str, Any]] = []
    for step, metrics in pending:
        numbers = {key: next(values) if isinstance(v, Tensor) else v for key, v in metrics.items()}
        if "skipped" in numbers:
            numbers["skipped"] = int(numbers["skipped"])
        load = {f"{learner.unit}_per_second": rate, "memory_mib": _memory_mib(learner.device)}
        lines.append({"step": step, **numbers, **load})
    return lines, sum(int(line.get("skipped", 0)) for line in lines)


def _refuse_divergence(lines: list[dict[str, Any]], folder: Path) -> None:
    for line in lines:
        if not abs(line["loss"]) < float("inf"):
            raise _diverged(f"the loss is not finite at step {line['step']}", folder)


def _refuse_a_ruined_state(learner: Learner, step: int, folder: Path, team: Team) -> None:
    """A loss is that of the weights before its step, so none tells of a state that is saved."""
    whole = [tensor.isfinite().all().to(learner.device) for tensor in learner.tensors().values()]
    if team.any(not bool(torch.stack(whole).all()), learner.device):
        raise _diverged(f"what is learned is not finite after step {step}", folder)


def _diverged(what: str, folder: Path) -> Diverged:
    again = "start again with a lower rate in another folder"
    return Diverged(f"{what}: {again} (the states saved in {folder} are from before)")


def _memory_mib(device: torch.device) -> float:
    """The most memory used so far: the device's where there is one, else the process's."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    if sys.platform == "win32":
        return 0.0  # there is no such count there
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
