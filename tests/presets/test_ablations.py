"""All ablations by one command: they parse, differ in what they say they do, and run at tiny sizes."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from tiny_world import SEEN, run_stages, write_kit, write_records

from fewshift.cli.app import app
from fewshift.errors import FewshiftError
from fewshift.evaluation.boards import gather
from fewshift.evaluation.scores import read_scores
from fewshift.nets.kit import load_kit
from fewshift.presets import ablations
from fewshift.presets.meta_training import PRECONDITIONERS
from fewshift.presets.paper_tables import table_named
from fewshift.presets.reproduce import FEATURES, QUICK, SCALES, Scale, Setup

COMMANDS: Any = typer.main.get_command(app)
ROOT = Path(__file__).parents[2]
FEW = ("--updates", "2", "--validation-tasks", "1", "--tasks-per-update", "2")
TINY = replace(
    FEATURES,
    tasks=1,
    more={
        "preconditioners": (*FEATURES.more["preconditioners"], *FEW, "--validate-every", "1"),
        "classifier": (*FEATURES.more["classifier"], *FEW),
        "evaluate": ("--features", "--domains", "far,squares", "--quiet"),
    },
)


def page_tables() -> ModuleType:
    """tools/ablations.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("ablation_tables", ROOT / "tools" / "ablations.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("table", ["ablations", "ablations-moved", "designs", "lambda", "non-pd-rates"])
def test_commands_on_features_can_be_parsed_and_start_from_the_kit(table: str) -> None:
    setup = Setup(("--records", "R"), ("a", "b"), Path("OUT"), FEATURES, "cpu", "narrow")
    stages = table_named(table).stages(setup)
    for stage in stages:
        command, words = COMMANDS, list(stage.words)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context("fewshift", words)
    assert stages[0].words[:2] == ("train", "preconditioners")
    assert stages[0].words[stages[0].words.index("--kit") + 1] == "narrow"
    assert len({stage.makes for stage in stages}) == len(stages)


def test_features_need_a_kit_and_a_given_kit_saves_the_backbone() -> None:
    setup = Setup(("--records", "R"), ("a", "b"), Path("OUT"), FEATURES, "cpu")
    with pytest.raises(FewshiftError, match="give one with --kit"):
        table_named("ablations").stages(setup)
    quick = table_named("ablations").stages(replace(setup, scale=QUICK))
    assert quick[0].words[:2] == ("train", "backbone")
    given = table_named("ablations").stages(replace(setup, scale=QUICK, kit="mine.kit"))
    assert len(given) == len(quick) - 1


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_order_two_in_the_time_of_order_one_has_half_the_updates(scale: Scale) -> None:
    setup = Setup(("--records", "R"), ("a", "b"), Path("OUT"), scale, "cpu", "narrow")
    usual = PRECONDITIONERS[scale.preset](setup.seen).settings.updates
    updates = {}
    for stage in ablations.ablations(setup):
        if stage.words[1] == "preconditioners":
            given = stage.words.count("--updates")
            assert given <= 1  # a flag takes the place of the scale's
            told = stage.words[stage.words.index("--updates") + 1] if given else usual
            updates[stage.makes.name.rsplit("-", 1)[0]] = int(told)
    assert updates["roots-order-2-short"] == updates["roots-order-2"] // 2 == updates["roots-gram"] // 2


@pytest.mark.slow
@pytest.mark.parametrize(("table", "rates"), [("ablations", ""), ("ablations-moved", "_tuned")])
def test_all_of_it_runs_at_tiny_sizes_and_its_tables_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, rates: str
) -> None:
    monkeypatch.setenv("FEWSHIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ablations, "DESIGNS", ablations.GRAM | ablations.FREE_MINUS)
    losses = {name: ablations.LOSSES[name] for name in ("ce-only", "aux-only")}
    monkeypatch.setattr(ablations, "LOSSES", losses)
    records, kit = write_records(tmp_path / "records"), write_kit(tmp_path / "tiny.kit")
    setup = Setup(("--records", str(records)), SEEN, tmp_path / "out", TINY, "cpu", str(kit))
    stages = table_named(table).stages(setup)
    run_stages(stages)
    made = {stage.makes.name.rsplit("-", 1)[0]: stage.makes for stage in stages}
    learned = load_kit(made["roots-free-minus"]).preconditioners
    assert learned is not None
    assert learned.design == "free"
    one, other = (load_kit(made[name]).classifier for name in ("gram", "free-minus"))
    assert one is not None
    assert other is not None
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert mine.equal(theirs)  # cross-entropy alone knows nothing of P

    tool = page_tables()
    kept = tool.Kept(tmp_path / "scores.jsonl.gz", tmp_path / "training.jsonl.gz", rates)
    tool.pack(setup.file(""), kept)
    (board,) = gather(read_scores([kept.scores]))
    at_rates = {f"{name}{rates}" for name in ("gd", "tsp", "tsp_hard_label")}
    assert {c.method for c in board.contenders} == {"ncc", *at_rates}
    assert set(board.domains()) == {"far", "squares"}
    tables = tool.tables(kept)
    assert "| `free` from −I |" in tables["designs"]
    assert "| 100 % |" in tables["designs"].splitlines()[-1]  # two updates do not turn −I round
    assert set(tables) == {"designs", "training", "losses", "label", "order"}


def test_the_pages_show_what_the_kept_lines_say() -> None:
    tool = page_tables()
    pages = {"last-map": tool.PUBLISHED, "last-map-moved": tool.MOVED, "adapters": tool.ADAPTERS}
    for name, kept in pages.items():
        page = ROOT / "docs" / "ablations" / f"{name}.md"
        text = page.read_text(encoding="utf-8")
        for title, table in tool.tables(kept).items():
            assert table in text, f"{page}: print {title} of {kept.scores.name} anew (tools/ablations.py)"
