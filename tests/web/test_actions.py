"""What the page's buttons do, called as gradio calls them."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from fewshift.cli import main
from fewshift.estimator.kits import Opened
from fewshift.estimator.saved import load
from fewshift.web.limits import LIMITS
from fewshift.web.server import Address

Gallery = Callable[..., list[tuple[str, None]]]


@pytest.fixture(scope="module")
def actions() -> ModuleType:
    """The page's buttons; gradio takes seconds to import, which only these tests should wait for."""
    pytest.importorskip("gradio", reason="the web extra is not installed")
    return importlib.import_module("fewshift.web.actions")


def fields(*classes: tuple[str, list[tuple[str, None]] | None]) -> list[object]:
    """Names and galleries of all class slots."""
    empty = LIMITS.most_classes - len(classes)
    names = [name for name, _ in classes]
    names += [f"class {place}" for place in range(len(classes) + 1, LIMITS.most_classes + 1)]
    return [*names, *(images for _, images in classes), *[None] * empty]


def test_adapt_try_and_forget(actions: ModuleType, opened: Opened, gallery: Gallery, tmp_path: Path) -> None:
    given = fields(("rot", gallery("red", range(2))), ("grün", gallery("green", range(2))))
    fit, said, tabs, domains, _, _, download = actions.adapting(opened, tmp_path)(None, "ncc", *given)
    assert "2 classes from 4 images" in said
    assert tabs.visible
    assert "three" in domains
    file = next(tmp_path.rglob("classifier.fewshift"))
    assert file.name in str(download.value)
    assert load(file).classes_.tolist() == ["rot", "grün"]
    assert "Nothing was moved" in actions.watching(fit)
    assert actions.watching(None) == ""
    tries = gallery("green", range(5, 7))
    answers = actions.trying(tmp_path)(fit, tries)
    assert answers.count('class="card"') == 2
    assert answers.count('<div class="says">grün') == 2
    fit, *_ = actions.adapting(opened, tmp_path)(fit, "ncc", *given)
    assert not file.exists()  # nobody can fetch it any more
    outputs = actions.forgetting(tmp_path)(fit, *given[LIMITS.most_classes :], tries)
    assert outputs[0] is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_mistakes_are_sentences_on_the_page(
    actions: ModuleType, opened: Opened, gallery: Gallery, tmp_path: Path
) -> None:
    adapt, classify = actions.adapting(opened, tmp_path), actions.trying(tmp_path)
    done, said, *_ = adapt(None, "tsp", *fields(("a", gallery("red", range(1)))))
    assert done is None
    assert "drop images into two classes at least." in said
    (tmp_path / "uploads" / "text.jpg").write_text("hello")
    text = [(str(tmp_path / "uploads" / "text.jpg"), None)]
    _, said, *_ = adapt(None, "tsp", *fields(("a", gallery("red", range(1))), ("b", text)))
    assert "text.jpg: this is no picture, whatever its name says" in said
    assert "Adapt first" in classify(None, gallery("red", range(1)))
    assert "Drop images here" in classify(None, None)


def test_what_we_did_wrong_is_a_sentence_too(
    actions: ModuleType, opened: Opened, gallery: Gallery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret of the machine")

    monkeypatch.setattr(actions, "adapt_to", broken)
    given = fields(("a", gallery("red", range(1))), ("b", gallery("blue", range(1))))
    _, said, *_ = actions.adapting(opened, tmp_path)(None, "tsp", *given)
    assert "That did not work here (RuntimeError)" in said
    assert "secret" not in said


def test_one_more_class_until_there_are_ten(actions: ModuleType) -> None:
    shown, *cards, button = actions.one_more(3)
    assert shown == 4
    assert [card.visible for card in cards] == [True] * 4 + [False] * 6
    assert button.interactive
    shown, *cards, button = actions.one_more(9)
    assert shown == LIMITS.most_classes
    assert not button.interactive


def test_loopback_is_known() -> None:
    for host, own in (
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("host", False),
    ):
        assert Address(host, 1).is_loopback is own
    assert Address("::1", 80).url == "http://[::1]:80/"
    assert Address("0.0.0.0", 80).url == "http://127.0.0.1:80/"


@pytest.mark.usefixtures("actions")
def test_people_take_turns_on_a_gpu_alone() -> None:
    from fewshift.web.page import queue_on

    assert queue_on(torch.device("cuda", 1)) == "gpu"
    assert queue_on(torch.device("cpu")) is None


@pytest.mark.parametrize("left_of_it", [None, ModuleType("gradio")], ids=["nothing", "an empty folder"])
def test_the_command_without_gradio(
    left_of_it: ModuleType | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    opened: Opened,
) -> None:
    from fewshift.nets.kit import save_kit

    save_kit(opened.kit, tmp_path / "x.kit")
    monkeypatch.setitem(sys.modules, "gradio", left_of_it)
    words = ["fewshift", "web", "--kit", str(tmp_path / "x.kit"), "--host", "0.0.0.0", "--no-browser"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "warning: 0.0.0.0 can be reached from other machines" in said
    assert "gradio is not installed: run pip install 'fewshift[web]'" in said
