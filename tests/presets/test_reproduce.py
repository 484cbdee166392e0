"""The paper's tables as commands: each can be parsed, they share their work, and some run at tiny sizes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from tiny_world import SEEN, run_stages, shell, write_kit, write_records

from fewshift.cli.app import app
from fewshift.core.precond import DomainPreconditioners
from fewshift.errors import FewshiftError
from fewshift.evaluation.scores import read_scores
from fewshift.methods import ABOUT
from fewshift.nets.kit import load_kit
from fewshift.presets.ablations import Likeliest, hard_label
from fewshift.presets.paper_tables import COLUMNS, TABLES, table_named
from fewshift.presets.reproduce import (
    ADAPTERS,
    FEATURES,
    FULL,
    PAPER,
    QUICK,
    SMALL,
    Scale,
    Setup,
    checksums,
    commands_for,
)
from fewshift.presets.spectra import spectrum_table

COMMANDS: Any = typer.main.get_command(app)
FEW = ("--updates", "1", "--validation-tasks", "1")
TASKS = (*FEW, "--tasks-per-update", "1")
TINY = Scale(
    "tiny",
    "quick",
    1,
    {
        "backbone": (*FEW, "--width", "2", "--image-size", "16", "--batch", "4"),
        "preconditioners": TASKS,
        "classifier": (*TASKS, "--width", "4"),
        "evaluate": ("--domains", "far", "--quiet"),
    },
    distilled=False,
)


def setup_of(scale: Scale, seen: tuple[str, ...] = ("birds", "ilsvrc_2012"), out: str = "OUT") -> Setup:
    return Setup(("--records", "R"), seen, Path(out), scale, "cpu")


@pytest.mark.parametrize(
    ("table", "scale"),
    [
        *((table, scale) for table in TABLES for scale in (QUICK, PAPER)),
        *((table, scale) for table in ("proof", "ablations-moved") for scale in (SMALL, FULL, ADAPTERS)),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_every_command_can_be_parsed(table: str, scale: Scale) -> None:
    for stage in table_named(table).stages(setup_of(scale)):
        command, words = COMMANDS, list(stage.words)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context("fewshift", words)  # raises where an option is unknown
        assert str(stage.makes) in stage.words


@pytest.mark.parametrize("table", TABLES)
def test_a_scale_that_a_command_lacks_is_refused_before_anything_runs(table: str) -> None:
    for kit in (None, "narrow"):
        try:
            stages = table_named(table).stages(replace(setup_of(FEATURES), kit=kit))
        except FewshiftError as problem:
            assert "scale" in str(problem)  # noqa: PT017  (either is right, by table)
            continue
        for stage in (stage for stage in stages if stage.words[0] == "train" and "--preset" in stage.words):
            assert stage.words[1] in ("preconditioners", "classifier")


def test_a_folder_that_is_named_like_an_option_changes_no_file() -> None:
    usual, *others = (
        [stage.makes.name for stage in table_named("low-rank").stages(setup_of(QUICK, out=out))]
        for out in ("OUT", "6", ".")
    )
    assert others == [usual, usual]


def test_what_a_stage_reads_was_made_before() -> None:
    for name in TABLES:
        made: set[str] = set()
        for stage in table_named(name).stages(setup_of(PAPER)):
            read = [w.split("=")[-1] for w in stage.words if w.split("=")[-1].startswith("OUT")]
            read = [w.replace(".run", ".kit") for w in read if w != str(stage.makes)]
            assert set(read) <= made, f"{name}: {stage.words}"
            made.add(str(stage.makes))


def test_tables_share_what_they_have_in_common_and_nothing_else() -> None:
    def kits(table: str, out: str = "OUT") -> set[str]:
        stages = table_named(table).stages(setup_of(QUICK, out=out))
        return {stage.makes.name for stage in stages if stage.words[0] == "train"}

    five, one = kits("five-shot"), kits("one-shot")
    assert five == one == kits("five-shot", "elsewhere/there")
    multi = kits("multi-domain")
    assert multi & five
    assert not any(name.startswith("cnaps") for name in multi)
    assert kits("coefficients") < kits("lambda") | kits("multi-domain")
    assert kits("non-pd-rates") < kits("positive-definite")


def test_a_paper_sized_extractor_is_distilled_from_single_ones_which_serve_sur_too() -> None:
    stages = table_named("multi-domain").stages(setup_of(PAPER))
    singles = [s for s in stages if s.makes.name.startswith("single-")]
    assert [s.words[s.words.index("--domains") + 1] for s in singles] == ["birds", "ilsvrc_2012"]
    distilled = next(s for s in stages if "--teacher" in s.words)
    assert f"birds={singles[0].makes.with_suffix('.run')}" in distilled.words
    extractors = next(s for s in stages if s.words[:2] == ("train", "extractors"))
    assert f"birds={singles[0].makes}" in extractors.words


@pytest.mark.parametrize("scale", [SMALL, FULL, ADAPTERS], ids=lambda scale: scale.name)
def test_designs_are_compared_alone_and_the_proof_says_what_it_learns_beside(scale: Scale) -> None:
    def learned(table: str, row: str) -> dict[str, object]:
        stages = table_named(table).stages(setup_of(scale))
        (found,) = (s for s in stages if s.makes.stem.rpartition("-")[0] == f"roots-{row}")
        command: Any = COMMANDS.commands["train"].commands["preconditioners"]
        return dict(command.make_context("fewshift", list(found.words[2:])).params)

    for row, design in (("gram", "gram"), ("free", "free"), ("order-2", "gram")):
        said = learned("ablations-moved", row)
        assert (said["design"], said["train_starts"], said["strangers"]) == (design, False, 0)
    for row, design, starts in (
        ("both", "bounded", True),
        ("gram", "gram", False),
        ("start", "identity", True),
    ):
        said = learned("proof", row)
        assert (said["design"], said["train_starts"], said["common_start"]) == (design, starts, starts)
        assert said["strangers"] == (4 if starts else 0)


def test_one_domain_is_imagenet_where_it_is_there() -> None:
    words = table_named("single-domain").stages(setup_of(QUICK))[0].words
    assert words[words.index("--domains") + 1] == "ilsvrc_2012"
    words = table_named("single-domain").stages(setup_of(QUICK, ("b", "a")))[0].words
    assert words[words.index("--domains") + 1] == "b"


def test_commands_come_from_what_methods_say() -> None:
    assert commands_for(["ncc", "pa"]) == []
    assert commands_for(["tsp"]) == ["preconditioners", "classifier"]
    both = commands_for(["tsp_ta2", "ta2"])
    assert both == ["preconditioners", "classifier", "policy", "preconditioners --policy"]


def test_a_column_without_method_is_said() -> None:
    for table, columns in COLUMNS.items():
        absent = [name for name in columns if name not in ABOUT]
        said = " ".join(table_named(table).beware)
        assert all(f"there is no method {name}," in said for name in absent)
    with pytest.raises(FewshiftError, match="choose among multi-domain, "):
        table_named("table-1")
    with pytest.raises(FewshiftError, match="has no scale small: choose quick or paper"):
        table_named("multi-domain").stages(setup_of(SMALL))


@pytest.mark.slow
def test_an_ablation_runs_at_tiny_sizes(tmp_path: Path) -> None:
    records = write_records(tmp_path / "records")
    setup = Setup(("--records", str(records)), SEEN, tmp_path / "out", TINY, "cpu")
    stages = table_named("hard-label").stages(setup)
    run_stages(stages)
    results = next(stage.makes for stage in stages if stage.words[0] == "evaluate")
    scores = {read.score.method: read.score for read in read_scores([results])}
    assert set(scores) == {"tsp", "tsp_hard_label"}
    assert sorted(scores["tsp_hard_label"].notes["coefficients"].values()) == [0.0, 1.0]
    kit = next(stage.makes for stage in stages if stage.words[:2] == ("train", "classifier"))
    assert "| not positive definite | 0.0 % | 0.0 % |  |" in shell("spectrum", kit).out


def test_the_proof_differs_from_run_to_run_by_what_is_learned_only() -> None:
    stages = table_named("proof").stages(setup_of(FULL))
    learned = [stage for stage in stages if stage.words[:2] == ("train", "preconditioners")]
    assert len({stage.words[stage.words.index("--kit") + 1] for stage in learned}) == 1  # one backbone
    assert "--width" in stages[0].words
    rows = [s.words[s.words.index("--methods") + 1] for s in stages if s.words[0] == "evaluate"]
    assert len(rows) == 3 * 3 + 1
    assert len({row for line in rows for row in line.split(",")}) == 9
    assert [s.words[-3:-1] for s in stages if "--no-oracle" in s.words]


def test_a_kit_that_is_given_is_what_is_trained_on() -> None:
    setup = replace(setup_of(QUICK), kit="narrow")
    for name in ("multi-domain", "all-methods", "proof"):
        first = table_named(name).stages(setup)[0].words
        assert first[0] == "train"
        assert first[first.index("--kit") + 1] == "narrow"
    words = [" ".join(stage.words) for stage in table_named("all-methods").stages(setup)]
    assert not any(" classifier " in command or " rates " in command for command in words)
    assert sum(" maml " in command for command in words) == 6
    assert any(" preconditioners --policy " in command for command in words)


@pytest.mark.parametrize("place", ["mine.kit", "quick/own.kit"])  # the second is one that reproduce made
def test_a_kit_that_has_changed_is_trained_on_anew(tmp_path: Path, place: str) -> None:
    kit = tmp_path / place
    kit.parent.mkdir(exist_ok=True)

    def made() -> set[Path]:
        setup = replace(setup_of(QUICK), out=tmp_path, kit=str(kit))
        return {stage.makes for stage in table_named("lambda").stages(setup) if stage.words[0] != "report"}

    kit.write_bytes(b"one")
    before = made()
    assert made() == before
    kit.write_bytes(b"another")
    assert not made() & before


def test_checksums_are_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "a.kit").write_bytes(b"abc")
    (tmp_path / "a.md").write_bytes(b"no kit")
    wanted = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a.kit\n"
    assert checksums(tmp_path).read_text() == wanted


def test_the_command_lists_prints_and_skips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shell("reproduce").out.splitlines()[0].startswith("multi-domain ")
    common = ("reproduce", "coefficients", "--suite", "drawn", "--scale", "quick", "--out", tmp_path)
    printed = shell(*common, "--dry-run")
    lines = printed.out.splitlines()
    assert lines[0].startswith("fewshift train backbone --suite drawn --preset quick")
    assert lines[-1].startswith("fewshift report ")
    assert not list(tmp_path.iterdir())

    ran: list[tuple[str, ...]] = []

    def pretend(words: tuple[str, ...]) -> None:
        ran.append(words)
        Path(words[words.index("--out") + 1]).write_text("made")

    monkeypatch.setattr("fewshift.cli.reproduce._run", pretend)
    assert shell(*common).code == 0
    assert len(ran) == len(lines) == 6
    assert len((tmp_path / "quick" / "SHA256SUMS").read_text().splitlines()) == 3
    again = shell(*common)
    assert [words[0] for words in ran[6:]] == ["evaluate", "report", "report"]
    assert again.err.count("there is ") == 3


def test_a_hard_label_is_the_likeliest(tmp_path: Path) -> None:
    kit = load_kit(write_kit(tmp_path / "tsp.kit"))
    method = hard_label(kit)
    images = torch.randn(3, 3, 16, 16)
    found = method.coefficients(images)
    assert found is not None
    assert sorted(found.tolist()) == [0.0, 1.0]
    blend = Likeliest(lambda _: torch.tensor([0.2, 0.5, 0.3]))
    assert blend(images).tolist() == [0.0, 1.0, 0.0]
    assert Likeliest(lambda _: torch.tensor([0.7]))(images).tolist() == pytest.approx([0.7])


def test_a_spectrum_counts_what_is_not_positive_definite() -> None:
    roots = {"a": torch.stack([torch.eye(3), -torch.eye(3)]), "b": torch.eye(2).expand(2, 2, 2)}
    text = spectrum_table(DomainPreconditioners(("x", "y"), roots, "free"))
    assert "25.0 % of all matrices are not positive definite" in text
    assert "| a | 3.00 | 3.00 | 3 |" in text
    assert "| not positive definite | 0.0 % | 50.0 % |  |" in text
    assert "| largest eigenvalue | 1 | 1 |  |" in text
