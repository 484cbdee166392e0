"""What the page does, without a page."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fewshift.errors import FewshiftError
from fewshift.estimator.kits import Opened
from fewshift.estimator.saved import load, write_classifier
from fewshift.web import views
from fewshift.web.steps import Adaptation, adapt_to, predict, watched
from fewshift.web.uploads import ClassUploads, Upload

Maker = Callable[[str, int], Upload]
COLOURS = ("red", "green", "blue")


def classes(upload: Maker, shot: int = 4) -> list[ClassUploads]:
    return [ClassUploads(colour, tuple(upload(colour, seed) for seed in range(shot))) for colour in COLOURS]


@pytest.fixture(scope="module")
def done(opened: Opened, upload: Maker) -> Adaptation:
    return adapt_to(classes(upload, 3), opened, "gd")


def test_colours_are_told_apart(done: Adaptation, upload: Maker) -> None:
    found = predict(done, [upload(colour, 100 + seed) for colour in COLOURS for seed in range(3)])
    assert [p.ranked[0][0] for p in found] == [colour for colour in COLOURS for _ in range(3)]
    for p in found:
        assert sum(share for _, share in p.ranked) == pytest.approx(1)
        assert [share for _, share in p.ranked] == sorted((s for _, s in p.ranked), reverse=True)
        assert p.thumbnail.startswith("data:image/jpeg;base64,")
        assert 0 <= p.unknown_score <= 1


def test_the_replay_is_the_descent_itself(opened: Opened, upload: Maker) -> None:
    done = adapt_to(classes(upload, 2), opened, "tsa")
    if not done.fitted.settings.steps:
        pytest.fail("choose a task on which steps are taken")
    steps, seen = done.fitted.settings.steps, watched(done)
    np.testing.assert_array_equal(seen.losses, done.fitted.losses)
    assert set(seen.moved) == set(done.fitted.params)
    assert {len(lengths) for lengths in seen.moved.values()} == {steps}
    assert all(length >= 0 for lengths in seen.moved.values() for length in lengths)
    assert seen.right[0][0] == 0
    assert seen.right[-1][0] == steps
    shown = views.changes(seen)
    assert "layer1.0.conv1, step 1:" in shown
    assert "polyline" in views.losses(done)


def test_without_adaptation_nothing_moved(opened: Opened, upload: Maker) -> None:
    done = adapt_to(classes(upload), opened, "ncc")
    assert watched(done).moved == {}
    assert "Nothing was moved" in views.losses(done)
    assert "Nothing was moved" in views.changes(watched(done))
    assert "held-out" not in views.losses(done)  # nobody asked them
    assert "ncc adapts nothing" in views.summary(done)


def test_one_image_a_class(opened: Opened, upload: Maker) -> None:
    done = adapt_to(classes(upload, 1), opened, "tsp")
    assert watched(done).right == ()
    assert predict(done, [upload("green", 50)])[0].ranked[0][0] == "green"
    views.changes(watched(done))


def test_a_picture_in_the_wrong_class_is_named(opened: Opened, upload: Maker) -> None:
    given = classes(upload, 5)
    odd = Upload("odd one.png", upload("red", 77).content)
    done = adapt_to([given[0], ClassUploads("green", (*given[1].uploads, odd)), given[2]], opened, "ncc")
    assert [hint.name for hint in done.fitted.hints] == ["odd one.png"]
    assert "odd one.png" in views.summary(done)


def test_the_download_predicts_alike(done: Adaptation, upload: Maker, tmp_path: Path) -> None:
    write_classifier(tmp_path / "x.fewshift", done.fitted, done.opened, done.method, with_backbone=True)
    found = predict(done, [upload("blue", 9)])[0]
    again = load(tmp_path / "x.fewshift")
    shares = dict(
        zip(again.classes_.tolist(), again.predict_proba([upload("blue", 9).content])[0], strict=True)
    )
    for name, share in found.ranked:
        assert shares[name] == pytest.approx(share, abs=1e-6)


def test_errors_name_the_upload(done: Adaptation, opened: Opened, upload: Maker) -> None:
    cut = Upload("cut.png", upload("red", 0).content[:200])
    with pytest.raises(FewshiftError, match=r"cut\.png: the picture is damaged or cut short"):
        adapt_to([*classes(upload), ClassUploads("cut", (cut,))], opened)
    with pytest.raises(FewshiftError, match="there are 41 images to try: 40 are the most at once"):
        predict(done, [cut] * 41)
    assert predict(done, []) == ()


def test_words_of_people_are_escaped(opened: Opened, upload: Maker) -> None:
    evil = '<img src=x onerror="alert(1)">'
    given = classes(upload, 3)
    odd = Upload(evil, upload("red", 77).content)
    given[1] = ClassUploads(evil, (*given[1].uploads, odd))
    done = adapt_to(given, opened, "ncc")
    found = predict(done, [odd, Upload(evil, upload("green", 8).content)])
    for shown in (views.summary(done), views.predictions(found), views.notice(evil), views.domains(done)):
        assert "<img src=x" not in shown
    assert "&lt;img src=x" in views.predictions(found)
    assert "&lt;img src=x" in views.summary(done)


def test_domains_are_bars(done: Adaptation) -> None:
    shown = views.domains(done)
    assert all(name in shown for name in ("one", "two", "three"))
    assert "width:" in shown
