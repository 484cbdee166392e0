"""`fewshift train rates` writes pairs that a kit keeps, and refuses what it cannot tune."""

import json
import shutil
from pathlib import Path

import pytest
from tiny_world import Fewshift, options

from fewshift.data.protocol import ONE_SHOT
from fewshift.evaluation.evaluate import score
from fewshift.evaluation.scores import Score
from fewshift.nets.kit import load_kit, write_info


def rates(kit: Path, records: Path, out: Path, method: str) -> tuple[str, ...]:
    where = options(kit=kit, records=records, out=out)
    return ("train", "rates", *where, *options(methods=method, tasks=1, protocol="one-shot", device="cpu"))


def test_rates_are_chosen_on_validation_tasks_and_kept(
    fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path
) -> None:
    out = tmp_path / "b.kit"
    done = fewshift(*rates(tiny_kit, records, out, "pa"), "--precision", "float16")
    assert done.code == 0, done.err
    assert "fewshift: the precision float16 cannot be had here" in done.err
    assert "pa, seen: adapters 0" in done.out
    info = load_kit(out).info
    assert set(info["rates"]["pa"]) == {"seen", "unseen"}
    assert len({(adapters, last) for adapters, last, *_ in info["rates_tried"]["pa"]["unseen"]}) >= 3
    told = info["rates_chosen_on"]["pa"]
    assert told["protocol"] == ONE_SHOT.to_dict()
    assert (told["tasks"], told["seed"]) == (1, 0)
    assert told["domains"] == {"squares": "seen", "tiles": "seen", "near": "valid_unseen"}


def test_a_seen_domain_without_test_classes_takes_part(
    fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path
) -> None:
    own, out = tmp_path / "records", tmp_path / "b.kit"
    shutil.copytree(records, own)
    spec = own / "tiles" / "dataset_spec.json"
    told = json.loads(spec.read_text())
    told["classes_per_split"] = {"TRAIN": 10, "VALID": 10, "TEST": 0}
    spec.write_text(json.dumps(told))
    done = fewshift(*rates(tiny_kit, own, out, "pa"))
    assert done.code == 0, done.err
    chosen_on = load_kit(out).info["rates_chosen_on"]["pa"]
    assert chosen_on["domains"] == {"squares": "seen", "tiles": "seen", "near": "valid_unseen"}


def test_a_small_kit_stays_small(fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path) -> None:
    small, out = tmp_path / "small.kit", tmp_path / "rated.kit"
    assert fewshift("train", "shrink", "--kit", tiny_kit, "--out", small).code == 0
    assert fewshift(*rates(small, records, out, "pa")).code == 0
    assert out.stat().st_size < small.stat().st_size + 4000
    assert load_kit(out).backbone.fingerprint() == load_kit(small).backbone.fingerprint()


@pytest.mark.parametrize(("method", "stale"), [("pa", False), ("gd", True)])
def test_what_fits_were_measured_to_be_at_other_rates_is_left_out(
    fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path, method: str, stale: bool
) -> None:
    first, measured, again = tmp_path / "first.kit", tmp_path / "measured.kit", tmp_path / "again.kit"
    assert fewshift(*rates(tiny_kit, records, first, "pa")).code == 0  # also chooses the threshold
    validation = {"default_score": 0.5, "default_score_of": {"method": "tsp"}, "scale": 7.0}
    write_info(first, {**load_kit(first).info, "validation": validation}, measured)
    done = fewshift(*rates(measured, records, again, method))
    assert done.code == 0, done.err
    assert load_kit(again).info.get("validation") == (None if stale else validation)
    assert ("measured at other rates: `fewshift bench kits --write`" in done.err) == stale


def test_a_method_without_rates_is_answered_by_a_sentence(
    fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path
) -> None:
    done = fewshift(*rates(tiny_kit, records, tmp_path / "b.kit", "ncc"))
    assert done.code == 2
    assert "ncc has no rates to choose" in done.err
    done = fewshift(*rates(tiny_kit, records, tmp_path, "pa"))
    assert done.code == 2
    assert f"--out {tmp_path} is a folder" in done.err


def test_an_interrupted_search_goes_on_to_the_same_rates(
    fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out, kept = tmp_path / "whole.kit", tmp_path / "b.kit", tmp_path / "b.rates.jsonl"
    assert fewshift(*rates(tiny_kit, records, whole, "pa")).code == 0
    scored = []

    def impatient(*given: object) -> Score:
        if len(scored) == 5:
            raise KeyboardInterrupt
        scored.append(score(*given))  # type: ignore[arg-type]
        return scored[-1]

    with monkeypatch.context() as patch:
        patch.setattr("fewshift.presets.rates.score", impatient)
        stopped = fewshift(*rates(tiny_kit, records, out, "pa"))
    assert stopped.code == 130
    assert "points are kept. To go on: fewshift" in stopped.err
    assert not out.exists()
    before = len(kept.read_text().splitlines()) - 1
    assert before > 0
    done = fewshift(*rates(tiny_kit, records, out, "pa"))
    assert f"{before} points were tried before" in done.err
    assert not kept.exists()
    assert load_kit(out).info == load_kit(whole).info
