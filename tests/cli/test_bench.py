"""`fewshift bench` writes the form that programs read."""

import json
from pathlib import Path

import pytest
from tiny_world import Fewshift

from fewshift.errors import FewshiftError
from fewshift.nets.device import device_named


def test_adapt_writes_a_row_for_each_size_and_engine(fewshift: Fewshift, tmp_path: Path) -> None:
    out = tmp_path / "adapt.json"
    words = "bench adapt --sizes 5,6 --steps 1 --width 2 --image-size 16 --repeats 1 --engines public,folded"
    result = fewshift(*words.split(), "--json", out)
    assert result.code == 0, result.err
    outcome = json.loads(out.read_text())
    assert {"device", "torch", "matrix_product_tflops"} <= set(outcome["machine"])
    rows = outcome["results"]
    assert [(row["size"], row["engine"]) for row in rows] == [
        (5, "public"),
        (5, "folded"),
        (6, "public"),
        (6, "folded"),
    ]
    assert rows[0]["ratio"] == 1.0
    assert {"seconds", "ratio", "tflops", "share", "accuracy"} <= set(rows[1])


def test_small_tasks_are_timed_alone_and_together(fewshift: Fewshift, tmp_path: Path) -> None:
    out = tmp_path / "small.json"
    words = "bench small --shots 1 --width 2 --image-size 16 --repeats 1 --tasks 3"
    result = fewshift(*words.split(), "--json", out)
    assert result.code == 0, result.err
    rows = json.loads(out.read_text())["results"]
    assert [(row["engine"], row["together"]) for row in rows] == [("public", 1), ("folded", 1), ("folded", 3)]
    assert all(row["tasks_per_second"] > 0 for row in rows)
    assert rows[2]["scored_per_second"] > 0


def test_the_gate_refuses_precisions_that_a_device_lacks(fewshift: Fewshift, tmp_path: Path) -> None:
    asked = ("bench", "gate", "--kit", tmp_path / "no.kit", "--device", "cpu", "--precision", "tf32,float16")
    result = fewshift(*asked)
    assert result.code == 2
    assert "bfloat16 is all that differs" in result.err


def test_a_precision_that_is_none_is_named(fewshift: Fewshift) -> None:
    result = fewshift("bench", "adapt", "--precision", "float8")
    assert "there is no precision 'float8'" in result.err


@pytest.mark.parametrize(
    ("words", "inside"),
    [
        ("adapt", "adapt"),
        ("small", "small_tasks"),
        ("meta", "meta_rate"),
        ("meta --updates 0", "meta_memory"),
        ("gap", "gap"),
        ("tuning", "tuning"),
        ("fit --precision float32", "fit_memory"),
    ],
)
def test_the_automatic_device_is_one_before_it_is_measured(
    fewshift: Fewshift, monkeypatch: pytest.MonkeyPatch, words: str, inside: str
) -> None:
    def told(*given: object, **named: object) -> None:
        raise FewshiftError(f"given {[*given, *named.values()]}")

    monkeypatch.setattr(f"fewshift.benchmarks.{inside}.run", told)
    done = fewshift("bench", *words.split(), "--device", "auto")
    assert f"'{device_named('auto', '', '')}'" in done.err
    assert "'auto'" not in done.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("adapt --sizes x", "--sizes is 'x': give whole numbers from 1 up"),
        ("adapt --sizes 5,0", "--sizes is '5,0'"),
        ("adapt --device abacus", "--device abacus cannot be used here"),
        ("small --shots 0", "--shots is '0'"),
        ("meta --device abacus", "--device abacus cannot be used here"),
        ("meta --orders 1,3", "--orders is '1,3': give 1, 2 or 1,2"),
        ("gap --device abacus", "--device abacus cannot be used here"),
        ("tuning --sizes x", "--sizes is 'x': give whole numbers"),
        ("fit --sizes 0", "--sizes is '0'"),
        ("own-images --records nowhere --shots x", "--shots is 'x'"),
        ("own-grid --records nowhere --candidates usual -o x.npz", "'usual' is no candidate"),
        ("own-rules nowhere.npz --candidates usual", "nowhere.npz: this is no file of arrays"),
        (f"own-rules {__file__} --candidates usual", "test_bench.py: this is no file of arrays"),
    ],
)
def test_mistakes_get_one_sentence(fewshift: Fewshift, words: str, sentence: str) -> None:
    result = fewshift("bench", *words.split())
    assert result.code == 2
    assert sentence in result.err
    assert result.err.count("\n") == 1


def test_a_bad_name_does_not_cost_the_measurement(fewshift: Fewshift, tmp_path: Path) -> None:
    words = "bench adapt --sizes 5 --steps 1 --width 2 --image-size 16 --repeats 1 --engines folded"
    result = fewshift(*words.split(), "--json", tmp_path / "nowhere" / "adapt.json")
    assert result.code == 2
    assert json.loads(result.out)["results"]
