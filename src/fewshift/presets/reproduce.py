"""Experiments as lists of commands: what trains, what evaluates, what reports.

Each command's file carries a digest of all that decides its content, the commands before it included, so
experiments in one folder share what they have in common and never take each other's files for their own.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from fewshift.data.whole_files import write_whole
from fewshift.errors import FewshiftError
from fewshift.methods import ABOUT
from fewshift.nets.bundled import kit_path

WITHOUT_DOMAINS = ("classifier", "rates")  # these commands take the kit's
# the commands that have such a preset, or need none
HAVE = {
    "small": ("backbone", "preconditioners", "classifier", "rates"),
    "last-map": ("preconditioners", "classifier", "rates"),
}


@dataclass(frozen=True)
class Stage:
    """One command and the file it makes; with that file it is done, unless it is one to run `again`."""

    words: tuple[str, ...]  # after `fewshift`
    makes: Path
    again: bool = False  # it takes up its own work, or is cheap


@dataclass(frozen=True)
class Scale:
    """How large everything is: the train commands' preset, tasks per domain, further words per command."""

    name: str
    preset: str
    tasks: int
    more: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    distilled: bool = True  # URL: one teacher per domain first. Without: one network of all domains


QUICK = Scale("quick", "quick", 10, distilled=False)
PAPER = Scale("paper", "paper", 600)
FEATURES = Scale(
    "features",
    "last-map",
    40,
    {
        "preconditioners": (
            *("--sites", "last", "--train-images", "1500", "--updates", "200"),
            *("--no-train-starts", "--design", "gram", "--order", "1", "--inner-rate", "0.1"),
            *("--rate", "0.1", "--weight-decay", "0.0007", "--no-normalise"),  # the paper's
            *("--validate-every", "50", "--validation-tasks", "8", "--keep-last"),
        ),
        "classifier": (
            *("--train-images", "1500", "--updates", "60", "--validation-tasks", "8"),
            *("--order", "1", "--inner-rate", "0.1"),
        ),
        "evaluate": ("--features",),
    },
    distilled=False,
)
IN_16_BITS = ("--precision", "float16")  # of the inner steps, on a GPU
# The preset's own design is ours and comes with starting values; tables compare designs, so they begin here.
GRAM_ALONE = ("--design", "gram", "--no-train-starts", "--no-common-start", "--strangers", "0")
SMALL = Scale(
    "small",
    "small",
    40,
    {
        "preconditioners": (*IN_16_BITS, *GRAM_ALONE),
        "classifier": ("--updates", "100", *IN_16_BITS),
        "rates": ("--tasks", "8", *IN_16_BITS),
    },
    distilled=False,
)
FULL = replace(SMALL, name="full", more={**SMALL.more, "backbone": ("--width", "64")})
ADAPTERS = replace(
    SMALL,
    name="adapters",
    tasks=24,
    more={
        **SMALL.more,
        "preconditioners": (*SMALL.more["preconditioners"], "--updates", "150", "--keep-last"),
    },
)
SCALES: Mapping[str, Scale] = {scale.name: scale for scale in (QUICK, SMALL, FULL, ADAPTERS, PAPER, FEATURES)}


@dataclass(frozen=True)
class Setup:
    """Where images come from, where files go, how large everything is."""

    source: tuple[str, ...]  # --records DIR, or --suite NAME
    seen: tuple[str, ...]  # the domains to train on
    out: Path
    scale: Scale
    device: str = "auto"
    kit: str | None = None  # whose backbone to use; None: train one

    def file(self, name: str) -> Path:
        """A file of this setup."""
        return self.out / self.scale.name / name

    def digest(self, words: Sequence[str]) -> str:
        """A few letters for a command, the same wherever the folder is, others for a kit that has changed."""
        home = f"{self.file('')}{os.sep}"
        plain = [
            self._given if word == self.kit else word.replace(home, f"/{self.scale.name}/") for word in words
        ]
        return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:6]

    @cached_property
    def _given(self) -> str:
        """The kit that was given: by what it holds, or by its name where it has no file."""
        name = self.kit or ""
        file = kit_path(name)
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else name

    def train(
        self, what: str, *flags: str, kit: Path | str | None = None, domain: str | None = None, name: str = ""
    ) -> Stage:
        """A train command that goes on where it was stopped; `name` is for tables, where kits stand."""
        command = what.split()[0]
        if command not in HAVE.get(self.scale.preset, (command,)):
            raise FewshiftError(f"`train {command}` has no scale {self.scale.name}: choose quick or paper")
        words = ["train", *what.split(), *self.source]
        if kit is not None:
            words += ["--kit", str(kit)]
        if domain is not None and command not in WITHOUT_DOMAINS:
            words += ["--domains", domain]
        if command != "rates":
            words += ["--preset", self.scale.preset, "--resume"]
        words += [*without(self.scale.more.get(command, ()), flags), *flags]
        out = self.file(f"{name or what.replace(' --', '-').replace(' ', '-')}-{self.digest(words)}.kit")
        return Stage((*words, "--out", str(out), "--device", self.device), out)

    def shrink(self, kit: Path, *flags: str, name: str) -> Stage:
        """The same kit in 16 bits."""
        words = ("train", "shrink", "--kit", str(kit), *flags)
        out = self.file(f"{name}-{self.digest(words)}.kit")
        return Stage((*words, "--out", str(out)), out)

    def evaluate(self, kit: Path | str, methods: Sequence[str], protocol: str, *flags: str) -> Stage:
        """Methods of one kit on test tasks of all domains."""
        words = ("evaluate", "--kit", str(kit), *self.source, "--methods", ",".join(methods))
        words += ("--protocol", protocol, "--tasks", str(self.scale.tasks))
        words += (*self.scale.more.get("evaluate", ()), *flags)
        out = self.file(f"{protocol}-{self.digest(words)}.jsonl")
        return Stage((*words, "--out", str(out), "--device", self.device), out, again=True)

    def spectrum(self, kit: Path, name: str) -> Stage:
        """What a kit's preconditioners look like."""
        out = self.file(f"{name}.md")
        return Stage(("spectrum", str(kit), "--out", str(out)), out, again=True)

    def report(self, results: Sequence[Stage], name: str, *flags: str) -> list[Stage]:
        """The table as text and as a page with plots."""
        files = [str(stage.makes) for stage in results]
        made = []
        for form, ending in (("markdown", "md"), ("html", "html")):
            out = self.file(f"{name}.{ending}")
            words = ("report", *files, "--format", form, "--published", *flags, "--out", str(out))
            made.append(Stage(words, out, again=True))
        return made


def without(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The options in `words` that `flags` say nothing of: a command that is printed says nothing twice.

    >>> without(("--rate", "1", "--no-vary", "--tasks", "8"), ("--vary", "--rate", "2"))
    ['--tasks', '8']
    """
    said, kept, keeps = {_option(word) for word in flags if word.startswith("--")}, [], True
    for word in words:
        keeps = _option(word) not in said if word.startswith("--") else keeps
        kept += [word] if keeps else []
    return kept


def _option(word: str) -> str:
    """The option that a word gives or takes back."""
    return word.removeprefix("--").removeprefix("no-")


def checksums(folder: Path) -> Path:
    """SHA-256 of every kit in a folder, in a file that `sha256sum -c` reads."""
    kits = sorted(folder.glob("*.kit"))
    lines = [f"{hashlib.sha256(kit.read_bytes()).hexdigest()}  {kit.name}\n" for kit in kits]
    out = folder / "SHA256SUMS"
    write_whole(out, "".join(lines).encode())
    return out


def backbone(setup: Setup, domain: str | None = None) -> list[Stage]:
    """The extractor: of one domain; or of all, with one teacher per domain where the scale distils."""
    if domain is not None:
        return [setup.train("backbone", domain=domain, name=f"single-{domain}")]
    stages, teachers = [], []
    if setup.scale.distilled:
        for name in setup.seen:
            stages += backbone(setup, name)
            teachers += ["--teacher", f"{name}={stages[-1].makes.with_suffix('.run')}"]
    return [*stages, setup.train("backbone", *teachers)]


def begun(setup: Setup, domain: str | None = None) -> tuple[list[Stage], Path | str]:
    """What makes the extractor, and the kit it is in: the one given, or one of one or all domains."""
    if setup.kit is not None:
        return [], setup.kit
    if setup.scale is FEATURES:
        raise FewshiftError("at the scale of features no backbone is trained: give one with --kit")
    stages = backbone(setup, domain)
    return stages, stages[-1].makes


def commands_for(methods: Iterable[str]) -> list[str]:
    """What these methods say they are trained by, each command once and always in one order."""
    wanted = {command for name in methods if name in ABOUT for command in _commands(name)}
    return [c for c in dict.fromkeys(c for name in ABOUT for c in _commands(name)) if c in wanted]


def trained_for(
    setup: Setup, commands: Iterable[str], domain: str | None = None
) -> tuple[list[Stage], Path | str]:
    """A backbone, the given one or a new one, and what these commands train; with the kit that has it all."""
    stages, base = begun(setup, domain)
    singles = setup.seen if setup.kit is None and domain is None and setup.scale.distilled else ()
    for command in commands:
        flags = []
        if command == "extractors":
            for one in singles:  # trained already, as teachers
                flags += ["--extractor", f"{one}={backbone(setup, one)[0].makes}"]
        stages.append(setup.train(command, *flags, kit=base, domain=domain))
        base = stages[-1].makes
    return stages, base


def _commands(method: str) -> list[str]:
    return [c.removeprefix("fewshift train ") for c in ABOUT[method].trained_by.split(", ") if c]
