"""The recipes for small domains through the command line, at the smallest sizes."""

from pathlib import Path

from tiny_world import SEEN, Fewshift

from fewshift.cli.train_shared import capped
from fewshift.core.starts import DomainStarts, LowRankStarts
from fewshift.data.protocol import VARYING
from fewshift.nets.kit import load_kit
from fewshift.nets.set_encoder import FeatureClassifier
from fewshift.presets.training import QUICK_TASKS


def test_small_domains_learn_bounded_matrices_and_starts_around_a_common_one(
    fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path
) -> None:
    out = tmp_path / "small.kit"
    common = ("--records", records, "--device", "cpu", "--quiet", "--preset", "small", "--updates", 1)
    few = ("--tasks-per-update", 2, "--inner-steps", 1)
    found = fewshift("train", "preconditioners", "--kit", tiny_kit, "--out", out, *common, *few, "--rank", 1)
    assert found.code == 0, found.err
    learned = load_kit(out)
    assert learned.domains == SEEN
    assert learned.preconditioners is not None
    assert learned.preconditioners.design == "bounded"
    assert isinstance(learned.starts, DomainStarts)
    assert learned.starts.base is not None
    assert learned.info["preconditioners"]["tasks"]["varied"]["augmentation"]["zoom"] == 0.4
    told = tmp_path / "told.kit"
    assert "float16" not in found.err
    more = ("--width", 4, "--validation-tasks", 1, "--precision", "float16")
    found = fewshift("train", "classifier", "--kit", out, "--out", told, *common, *few, *more)
    assert found.code == 0, found.err
    assert "float16 is for GPUs, this run computes in float32" in found.err
    assert "precision" not in load_kit(told).info["classifier"]  # it is the usual one
    assert load_kit(told).classifier is not None


def test_strangers_are_learned_from_and_the_kit_is_shrunk(
    fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path
) -> None:
    out, small = tmp_path / "out.kit", tmp_path / "small.kit"
    common = ("--records", records, "--device", "cpu", "--quiet", "--preset", "small", "--updates", 1)
    few = ("--tasks-per-update", 4, "--inner-steps", 1, "--design", "identity", "--strangers", 2)
    found = fewshift("train", "preconditioners", "--kit", tiny_kit, "--out", out, *common, *few)
    assert found.code == 0, found.err
    assert load_kit(out).info["preconditioners"]["tasks"]["strangers"]["count"] == 2
    picture = tmp_path / "curves.png"
    found = fewshift("train", "curves", out.with_suffix(".run"), "--out", picture)
    assert found.code == 0, found.err
    assert picture.stat().st_size > 5_000
    found = fewshift("train", "shrink", "--kit", out, "--start-rank", 1, "--out", small)
    assert found.code == 0, found.err
    assert isinstance(load_kit(small).starts, LowRankStarts)
    assert small.stat().st_size < out.stat().st_size
    again = fewshift("train", "shrink", "--kit", small, "--start-rank", 1, "--out", tmp_path / "x.kit")
    assert "leave it out" in again.err


def test_what_changes_images_is_refused_where_tasks_are_of_features(
    fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path
) -> None:
    words = ("train", "preconditioners", "--kit", tiny_kit, "--records", records, "--out", tmp_path / "x.kit")
    last = ("--preset", "last-map", "--sites", "last", "--device", "cpu", "--quiet")
    for option in (("--vary",), ("--strangers", 2)):
        found = fewshift(*words, *last, *option)
        assert found.code == 2
        assert f"{option[0]} changes images" in found.err
        assert not (tmp_path / "x.kit").exists()


def test_any_preset_of_a_classifier_reads_features_where_tasks_are_of_them(
    fewshift: Fewshift, records: Path, tiny_kit: Path, tmp_path: Path
) -> None:
    few = ("--preset", "quick", "--updates", 1, "--tasks-per-update", 1, "--validation-tasks", 0)
    rest = ("--records", records, *few, "--device", "cpu", "--quiet")
    roots, out = tmp_path / "p.kit", tmp_path / "c.kit"
    found = fewshift("train", "preconditioners", "--kit", tiny_kit, "--sites", "last", "--out", roots, *rest)
    assert found.code == 0, found.err
    found = fewshift("train", "classifier", "--kit", roots, "--out", out, *rest)
    assert found.code == 0, found.err
    assert isinstance(load_kit(out).classifier, FeatureClassifier)


def test_backbones_of_small_domains_are_varied_more(
    fewshift: Fewshift, records: Path, tmp_path: Path
) -> None:
    out = tmp_path / "b.kit"
    small = ("--preset", "small", "--width", 2, "--image-size", 16, "--updates", 1, "--batch", 4)
    rest = ("--precision", "float32", "--validation-tasks", 0, "--device", "cpu", "--quiet")
    found = fewshift("train", "backbone", "--records", records, "--out", out, *small, *rest)
    assert found.code == 0, found.err
    varied = load_kit(out).info["backbone"]["settings"]["augmentation"]
    assert (varied["zoom"], varied["flip"], varied["pad"]) == (0.4, True, 2)


def test_a_support_cap_makes_tasks_smaller_only() -> None:
    assert capped(QUICK_TASKS, 200) == capped(QUICK_TASKS, None) == QUICK_TASKS
    assert capped(VARYING, 200).max_support == 200
