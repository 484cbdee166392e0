"""A run's state in one file: tensors by name and a JSON header. No pickle, never half-written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from fewshift.errors import FewshiftError
from fewshift.nets.tensor_file import Kind, join, part, read_tensors, write_tensors

RUN = Kind("training state", "fewshift-run", version=1)


@dataclass(frozen=True)
class Best:
    """The validation that scored highest, and the step it was taken after."""

    step: int
    score: float


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on as if it had never stopped.

    `identity` is what decides the numbers: settings, data, frozen weights. There is no state of a random
    generator: every draw has an address made of the seed and the step.
    """

    kind: str  # of the learner
    identity: Mapping[str, Any]
    step: int  # updates done
    tensors: Mapping[str, Tensor]
    best: Best | None = None
    stale: int = 0  # validations since the best one
    skipped: int = 0  # tasks left out because a number in them was not finite


def identity_of(settings: Any, *free: str, **more: Any) -> dict[str, Any]:
    """What decides a run's numbers: its settings but for those that may differ, data and frozen weights."""
    chosen = {name: value for name, value in asdict(settings).items() if name not in free}
    return {"settings": chosen, **more}


def save_checkpoint(path: Path, state: Checkpoint) -> None:
    """Write the state; at every moment the path holds either the old whole file or the new one."""
    header = {
        "kind": state.kind,
        "identity": state.identity,
        "step": state.step,
        "best": None if state.best is None else asdict(state.best),
        "stale": state.stale,
        "skipped": state.skipped,
    }
    write_tensors(path, RUN, header, state.tensors)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a state, on the CPU."""
    header, tensors = read_tensors(path, RUN)
    best = None if header["best"] is None else Best(**header["best"])
    kind, identity, step = header["kind"], header["identity"], header["step"]
    return Checkpoint(kind, identity, step, tensors, best, header["stale"], header["skipped"])


def check_same_run(path: Path, state: Checkpoint, kind: str, identity: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that another command, other settings, other data or another backbone wrote."""
    if state.kind != kind:
        raise FewshiftError(
            f"{path} is a state of train {state.kind}, not of train {kind}: give another folder"
        )
    ours, theirs = _flat(identity), _flat(state.identity)
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key):
            raise FewshiftError(
                f"{path} is a state of another run: its {key} is {theirs.get(key)}, this run's is "
                f"{ours.get(key)}: resume with the same settings and data, or give another folder"
            )


def optimizer_tensors(optimizer: Optimizer, names: list[str]) -> dict[str, Tensor]:
    """What the optimizer remembers of each parameter; `names` in the order the parameters were given."""
    state = optimizer.state_dict()["state"]
    return {
        f"{names[place]}|{key}": value
        for place, kept in state.items()
        for key, value in kept.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: Optimizer, names: list[str], tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` took out."""
    places = {name: place for place, name in enumerate(names)}
    state: dict[int, dict[str, Tensor]] = {}
    for label, tensor in tensors.items():
        name, key = label.rsplit("|", 1)
        state.setdefault(places[name], {})[key] = tensor.clone()
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


@torch.no_grad()
def copy_into(targets: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Overwrite each target with the value of the same name; none may be missing or left over."""
    if targets.keys() != values.keys():
        odd = sorted(targets.keys() ^ values.keys())[:3]
        raise FewshiftError(
            f"the saved state does not fit this run: {', '.join(odd)} are in one of them only"
        )
    for name, target in targets.items():
        target.copy_(values[name])


class Kept:
    """`tensors` and `restore` of a learner that names its parts, and the optimizers that move them."""

    parts: Mapping[str, Mapping[str, Tensor]]  # by name in a checkpoint
    moved_by: Mapping[str, tuple[Optimizer, Iterable[str]]]  # likewise, with the names of what each moves

    def tensors(self) -> dict[str, Tensor]:
        """All parts, and what the optimizers remember of them."""
        own = {name: {n: t.detach() for n, t in values.items()} for name, values in self.parts.items()}
        rules = self.moved_by.items()
        return join(own | {name: optimizer_tensors(rule, list(moved)) for name, (rule, moved) in rules})

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Return to a state that `tensors` gave."""
        for name, own in self.parts.items():
            copy_into(own, part(tensors, name))
        for name, (rule, moved) in self.moved_by.items():
            restore_optimizer(rule, list(moved), part(tensors, name))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in json.loads(json.dumps(tree)).items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
