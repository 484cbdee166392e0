"""Four small domains on disk, a kit for them that knows nothing, and the command line as a function."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image

from fewshift.cli import main
from fewshift.core.precond import initial_preconditioners
from fewshift.data.records_write import write_domain
from fewshift.data.spec import Spec, flat_spec
from fewshift.data.suite_file import SuiteEntry, write_suite
from fewshift.nets.backbone import freeze
from fewshift.nets.kit import ImageSettings, Kit, save_kit
from fewshift.nets.resnet import ResNet18
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.presets.reproduce import Stage

SEEN = ("squares", "tiles")
ROLES = {"squares": "seen", "tiles": "seen", "near": "valid_unseen", "far": "unseen"}


def write_records(root: Path) -> Path:
    """Domains of 16-pixel pictures with a role each."""
    for seed, (name, role) in enumerate(ROLES.items()):
        counts = (
            {"train": 10, "valid": 5, "test": 5} if role == "seen" else {"train": 0, "valid": 0, "test": 6}
        )
        total = sum(counts.values())
        spec = flat_spec(name, tuple(f"{name}{c}" for c in range(total)), (8,) * total, counts)
        write_domain(root / name, spec, lambda c, spec=spec, seed=seed: _pictures(spec, seed, c))
    write_suite(root, {name: SuiteEntry(role) for name, role in ROLES.items()})
    return root


def write_kit(path: Path) -> Path:
    """A narrow random network with preconditioners and a classifier as they are before any training."""
    torch.manual_seed(0)
    backbone = freeze(ResNet18(width=2))
    sizes = {site: len(value) for site, value in backbone.init().items()}
    classifier = DatasetClassifier(len(SEEN), width=4).eval().requires_grad_(False)
    images = ImageSettings(16, "practical")
    save_kit(Kit(backbone, images, initial_preconditioners(SEEN, sizes), classifier=classifier), path)
    return path


class Outcome(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


class Fewshift(Protocol):
    """The command line as a function."""

    def __call__(self, *words: object) -> Outcome: ...


def options(**given: object) -> tuple[str, ...]:
    """`--tasks-per-update 2` from `tasks_per_update=2`."""
    return tuple(
        word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))
    )


def run_stages(stages: Iterable[Stage]) -> None:
    """Every command in order; each makes the file it promises."""
    for stage in stages:
        stage.makes.parent.mkdir(parents=True, exist_ok=True)
        done = shell(*stage.words)
        assert done.code == 0, f"{stage.words}: {done.err}"
        assert stage.makes.exists()


def shell(*words: object) -> Outcome:
    """What `fewshift WORDS` does when a shell starts it, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["fewshift", *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        main()
    code = left.value.code
    return Outcome(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def started(*words: object) -> Iterator[subprocess.Popen[str]]:
    """`fewshift WORDS` in a process of its own, which is gone in the end whatever happens here."""
    command = [sys.executable, "-m", "fewshift", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 120) -> None:
    """Until it is so or the process has ended; a machine that others use takes its time."""
    deadline = time.monotonic() + seconds
    while not ready() and process.poll() is None:
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


def _pictures(spec: Spec, seed: int, class_id: int) -> Iterator[bytes]:
    coarse = np.random.default_rng([seed, class_id]).uniform(0, 255, (4, 4, 3))
    for image in range(spec.images_per_class[class_id]):
        noise = np.random.default_rng([seed, class_id, image]).normal(0, 30, (16, 16, 3))
        pixels = np.clip(coarse.repeat(4, 0).repeat(4, 1) + noise, 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "png")
        yield file.getvalue()
