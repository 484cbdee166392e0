from pathlib import Path

import pytest

from fewshift.errors import FewshiftError
from fewshift.nets import bundled
from fewshift.nets.backbone import freeze
from fewshift.nets.bundled import bundled_kits, default_kit_name, find_kit
from fewshift.nets.kit import Kit, load_kit, save_kit
from fewshift.nets.notices import say_once
from fewshift.nets.resnet import ResNet18


@pytest.fixture
def kits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bundled, "KITS", tmp_path)
    backbone = freeze(ResNet18(width=1))
    for name, score in {"fair": 0.4, "good": 0.6, "unknown": None}.items():
        info = {} if score is None else {"validation": {"default_score": score}}
        save_kit(Kit(backbone, info=info), tmp_path / f"{name}.kit")
    return tmp_path


def test_the_best_on_validation_is_the_default(kits: Path) -> None:
    assert list(bundled_kits()) == ["fair", "good", "unknown"]
    assert default_kit_name() == "good"
    name, kit = find_kit(None)
    assert name == "good"
    assert kit.info["validation"]["default_score"] == 0.6


def test_a_kit_whose_package_is_missing_is_no_default(kits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        bundled,
        "read_header",
        lambda path, kind: {
            "weights": path.stem != "good",
            "architecture": {"name": "lite0"},
            "info": {"validation": {"default_score": 0.6 if path.stem == "good" else 0.1}},
        },
    )
    monkeypatch.setattr(bundled, "available", lambda architecture: False)
    assert default_kit_name() == "fair"


def test_a_score_from_the_rates_that_were_tried() -> None:
    tried = {
        "gd": {"seen": [[0, 1, 1, 0.5], [0, 3, 1, 0.7]], "unseen": [[0, 1, 1, 0.3]]},
        "tsp": {"seen": [[0, 1, 1, 0.6]], "unseen": [[0, 1, 1, 0.6]]},
    }
    assert bundled.validation_score({"rates_tried": tried}) == 0.6
    assert bundled.validation_score({"rates_tried": tried, "validation": {"default_score": 0.1}}) == 0.1
    assert bundled.validation_score({}) == float("-inf")


def test_names_and_files(kits: Path, tmp_path: Path) -> None:
    assert find_kit("fair")[0] == "fair"
    assert load_kit("good").info == load_kit(kits / "good.kit").info == find_kit("good")[1].info
    assert find_kit(str(kits / "good.kit"))[0] == "good"
    with pytest.raises(
        FewshiftError,
        match="no kit 'bad', neither a file nor a bundled one: give a kit's file or one of fair",
    ):
        find_kit("bad")


@pytest.mark.parametrize("folder", [False, True])
def test_what_has_a_bundled_kits_name_does_not_hide_it(
    kits: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    folder: bool,
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    say_once.cache_clear()
    if folder:
        (here / "good").mkdir()
    else:
        save_kit(load_kit("fair"), here / "good")
    for kit in (find_kit("good")[1], load_kit("good")):
        assert kit.info["validation"]["default_score"] == 0.6
    told = ["fewshift: good is the kit that comes with Fewshift; ./good is the file of this name"]
    assert caplog.messages == ([] if folder else told)
    if not folder:
        for kit in (find_kit("./good")[1], load_kit("./good"), load_kit(here / "good")):
            assert kit.info["validation"]["default_score"] == 0.4


def test_a_package_without_kits_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "KITS", tmp_path / "none")
    with pytest.raises(FewshiftError, match="no kit is bundled"):
        find_kit(None)
