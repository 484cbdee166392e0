"""TA²-Net and TSP†† from the command line, and all methods that a kit can build."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

from tiny_world import SEEN, Fewshift, options

from fewshift.evaluation.scores import read_scores
from fewshift.nets.feature_kit import with_sites
from fewshift.nets.kit import load_kit, save_kit
from fewshift.nets.policy import PART, UNDER_POLICY

FEW = options(preset="quick", updates=1, tasks_per_update=1, validation_tasks=1, device="cpu")


def test_a_policy_its_preconditioners_and_their_scores(
    fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path
) -> None:
    ta2, both, results = tmp_path / "ta2.kit", tmp_path / "both.kit", tmp_path / "results.jsonl"
    train = ("--records", records, *FEW)
    done = fewshift("train", "policy", "--kit", tiny_kit, "--out", ta2, *train)
    assert done.code == 0, done.err
    assert "trained a policy on squares, tiles; wrote" in done.err
    done = fewshift("train", "preconditioners", "--policy", "--kit", ta2, "--out", both, *train)
    assert done.code == 0, done.err
    found = load_kit(both)
    assert set(found.parts) == {PART, UNDER_POLICY}
    assert found.preconditioners is not None, "TSP†'s stay"
    assert found.classifier is not None
    assert found.domains == SEEN
    assert found.info[UNDER_POLICY]["updates_done"] == 1
    for idle in (("--rank", 2), ("--start-rate", 0.1), ("--start-rank", 2)):
        done = fewshift(
            *("train", "preconditioners", "--policy", "--kit", ta2, "--out", tmp_path / "x.kit", *train),
            *idle,
        )
        assert done.code == 2, f"{idle[0]} would change nothing"
    done = fewshift("train", "policy", "--kit", both, "--out", tmp_path / "new.kit", *train, "--seed", 1)
    assert done.code == 0, done.err
    assert set(load_kit(tmp_path / "new.kit").parts) == {PART}, "what was learned under the old one is gone"
    lines = (tmp_path / "ta2.run" / "log.jsonl").read_text().splitlines()
    assert "reward" in json.loads(lines[0])
    for used, expected in ((ta2, "tsp"), (both, "policy")):
        out = results.with_name(f"{expected}.jsonl")
        done = fewshift(
            *("evaluate", "--kit", used, "--records", records, "--methods", "ta2,tsp_ta2", "--out", out),
            *("--tasks", 1, "--domains", "far", "--device", "cpu", "--quiet"),
        )
        assert done.code == 0, done.err
        scores = {read.score.method: read.score for read in read_scores([out])}
        assert scores["tsp_ta2"].notes["preconditioners"] == expected
        assert scores["ta2"].notes["adapters"] == scores["tsp_ta2"].notes["adapters"]
        assert len(scores["ta2"].notes["adapters"]) == 16


def test_what_is_missing_is_named(fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path) -> None:
    done = fewshift(
        *("train", "preconditioners", "--policy", "--kit", tiny_kit, "--records", records),
        *("--out", tmp_path / "x.kit", *FEW),
    )
    assert done.code == 2
    assert "run fewshift train policy" in done.err
    done = fewshift(
        *("train", "preconditioners", "--policy", "--kit", tiny_kit, "--records", records),
        *("--out", tmp_path / "x.kit", *FEW, "--preset", "small"),
    )
    assert done.code == 2
    assert "--policy has no settings for --preset small" in done.err


def test_a_kit_that_can_have_no_policy_is_refused_before_any_image_is_read(
    fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path
) -> None:
    last = tmp_path / "last.kit"
    save_kit(with_sites(load_kit(tiny_kit), "last"), last)
    torn = tmp_path / "torn"
    copytree(records, torn)
    for file in torn.rglob("*.tfrecords"):
        file.write_bytes(b"\0" * file.stat().st_size)
    for kit, more, said in (
        (last, (), "a policy needs"),
        (tiny_kit, ("--policy",), "nothing trained for policy"),
    ):
        stage = "preconditioners" if more else "policy"
        words = ("train", stage, "--kit", kit, "--records", torn, "--out", tmp_path / "x.kit", *FEW, *more)
        done = fewshift(*words)
        assert done.code == 2
        assert said in done.err


def test_all_are_those_that_the_kit_can_build(
    fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path
) -> None:
    out = tmp_path / "all.jsonl"
    done = fewshift(
        *("evaluate", "--kit", tiny_kit, "--records", records, "--methods", "all", "--out", out, "--quiet"),
        *("--tasks", 1, "--domains", "far", "--device", "cpu", "--protocol", "one-shot"),
    )
    assert done.code == 0, done.err
    methods = {read.score.method for read in read_scores([out])}
    assert {"ncc", "pa", "tsa", "gd", "tsp", "tsp_untrained"} <= methods
    assert not {"ta2", "tsp_ta2", "gd_tuned"} & methods
    left_out = [line for line in done.err.splitlines() if line.startswith("left out")]
    assert any(
        "ta2: the kit has nothing trained for policy: run fewshift train policy" in x for x in left_out
    )
    assert len([line for line in left_out if line.startswith("left out gd_tuned: ")]) == 1
