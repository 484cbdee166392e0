"""Learning curves: nested tasks, equal for all methods, and scores that say what happened."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from fewshift.errors import FewshiftError
from fewshift.estimator.classifier import FewShotClassifier
from fewshift.estimator.curve import Outcome, Pictures, contestants, learning_curve
from fewshift.estimator.curve_tasks import CurvePlan, draw, plan_curve
from fewshift.estimator.kits import Opened, open_kit
from fewshift.evaluation.curve_page import curve_page
from fewshift.evaluation.curve_scores import CurveScores, answers_of, mistakes
from fewshift.evaluation.scores import Key, from_line, to_line
from fewshift.nets.kit import Kit

Draw = Callable[..., tuple[list[Any], list[str]]]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, pictures: Draw) -> Path:
    """Four classes with seven files each, one of which is called as no browser should read it."""
    root = tmp_path_factory.mktemp("own") / "shapes"
    for place, (image, label) in enumerate(zip(*pictures(4, 7), strict=True)):
        name = "<script>alert(1)</script>" if label == "shape 0" else label
        name = name.replace("/", "\u2215")
        (root / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(root / name / f"{place:02d} & <i>.png")
    return root


@pytest.fixture(scope="module")
def opened(small_kit: Kit) -> Opened:
    return open_kit(small_kit, "cpu", "auto", quiet=True)


def test_shots_are_those_that_leave_a_query(own: Path) -> None:
    plan = plan_curve(own)
    assert (plan.shots, plan.way, plan.queries) == ((1, 2, 5), 4, 2)
    assert plan_curve(own, [6, 1, 1]).shots == (1, 6)
    assert plan_curve(own, [6]).queries == 1
    assert plan_curve(own, way=3).protocol == "curve:way=3,query=2"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"shots": [7]}, "--shots 7 needs 8 images of every class, one of them to ask about"),
        ({"shots": [0, 1]}, "numbers of images a class from 1 up"),
        ({"way": 5}, "--way is 5: .* has 4 classes"),
        ({"way": 1}, "--way is 1"),
    ],
)
def test_what_the_classes_do_not_allow_is_said(own: Path, words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FewshiftError, match=sentence):
        plan_curve(own, **words)


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file systems that only take text as names")
def test_names_that_are_no_text(own: Path, tmp_path: Path, opened: Opened) -> None:
    root = tmp_path / "odd"
    shutil.copytree(own, root)
    first = min(root.iterdir())
    for place, file in enumerate(sorted(first.iterdir())):
        os.rename(file, os.fsencode(first) + b"/\xff%d.png" % place)
    page = _page(plan_curve(root, [1], tasks=3), ["ncc"], opened)
    assert "\\udcff" in page.encode("utf-8", "backslashreplace").decode()
    os.rename(first, os.fsencode(root) + b"/\xff")
    with pytest.raises(FewshiftError, match=r"'\\udcff' is not UTF-8 text"):
        plan_curve(root)


def test_support_sets_grow_by_the_same_images_and_never_hold_a_query(own: Path) -> None:
    plan = plan_curve(own, way=3)
    for index in range(20):
        task = draw(plan, index)
        assert len(set(task.class_ids)) == 3
        few, many = set(task.support(2)), set(task.support(5))
        assert few < many
        assert not many & set(task.queries())
        assert (len(few), len(many), len(task.queries())) == (6, 15, 6)
    assert draw(plan, 3) == draw(plan, 3) != draw(plan, 4)
    assert draw(replace(plan, seed=1), 3) != draw(plan, 3)
    fewer = replace(plan, shots=(1, 2))  # equal queries: the same tasks whatever shots are asked for
    assert draw(fewer, 3).queries() == draw(plan, 3).queries()
    assert draw(fewer, 3).support(2) == draw(plan, 3).support(2)


def test_all_classes_and_images_get_their_turn(own: Path) -> None:
    plan = plan_curve(own, way=2)
    drawn = [draw(plan, index) for index in range(100)]
    assert {c for task in drawn for c in task.class_ids} == set(range(4))
    assert len({item for task in drawn for item in task.queries()}) == 28


def test_a_score_is_what_the_classifier_itself_would_get(own: Path, small_kit: Kit, opened: Opened) -> None:
    plan = plan_curve(own, [2], tasks=1)
    scores = list(learning_curve(plan, contestants(["tsp", "ncc"], opened, 0), opened))
    assert [score.method for score in scores] == ["tsp", "ncc"]
    task = draw(plan, 0)
    files = plan.source.files
    names = plan.domain.spec.class_names
    for score in scores:
        fit = FewShotClassifier(kit=small_kit, method=score.method, device="cpu", quiet=True)
        fit.fit([files[c][i] for c, i in task.support(2)], [names[c] for c, _ in task.support(2)])
        asked = [files[c][i] for c, i in task.queries()]
        shares = fit.predict_proba(asked)
        told = answers_of(score)
        assert [a.said for a in told] == fit.classes_[shares.argmax(1)].tolist()
        assert [a.probability for a in told] == pytest.approx(shares.max(1).tolist(), abs=1e-4)
        assert [a.file for a in told] == [f"{names[c]}/{files[c][i].name}" for c, i in task.queries()]
        assert score.accuracy == fit.score(asked, [names[c] for c, _ in task.queries()])
        assert score.notes["shot"] == 2
        assert from_line(to_line(score), "line") == score


def test_done_pairs_are_left_out_and_the_rest_is_the_same(own: Path, opened: Opened) -> None:
    plan = plan_curve(own, [1, 2], tasks=2)
    methods = contestants(["ncc", "linear_probe"], opened, 0)
    whole = list(learning_curve(plan, methods, opened))
    assert len(whole) == 8
    assert len({score.key for score in whole}) == 8
    done = {score.key for score in whole[:5]}
    rest = list(learning_curve(plan, methods, opened, done))
    assert [(s.key, s.accuracy, s.notes) for s in rest] == [(s.key, s.accuracy, s.notes) for s in whole[5:]]
    assert Key("ncc", "shapes 1-shot", "test", 0) in done


def test_pictures_beyond_the_room_are_read_again(own: Path, opened: Opened) -> None:
    plan = plan_curve(own)
    source = plan.source
    items = draw(plan, 0).queries()
    small = Pictures(source, opened, kept_bytes=3 * 12 * opened.rule.size**2)
    small.read_ahead(items)
    assert len(small.kept) == 3
    assert torch.equal(small(items), Pictures(source, opened)(items))


def test_probabilities_that_are_not_finite_count_as_wrong_and_are_told(own: Path, opened: Opened) -> None:
    plan = plan_curve(own, [1], tasks=1)

    def broken(support: Any, queries: torch.Tensor) -> Outcome:
        found = torch.eye(4).repeat_interleave(plan.queries, dim=0)
        found[0] = float("nan")
        return Outcome(found, found)

    (score,) = learning_curve(plan, {"broken": broken}, opened)
    asked = 4 * plan.queries
    assert score.accuracy == (asked - 1) / asked
    assert score.failure == f"1 of {asked} queries have probabilities that are not finite"
    assert len(answers_of(score)) == asked - 1


def test_methods_that_are_not_there_are_named(opened: Opened) -> None:
    with pytest.raises(FewshiftError, match="there is no method 'magic'"):
        contestants(["magic"], opened, 0)
    with pytest.raises(FewshiftError, match="--methods names none"):
        contestants([], opened, 0)


def _page(plan: CurvePlan, methods: list[str], opened: Opened) -> str:
    scores = tuple(learning_curve(plan, contestants(methods, opened, 0), opened))
    found = CurveScores(plan.domain.name, plan.domain.spec.class_names, tuple(methods), plan.shots, scores)
    wrong = mistakes(found.answers(methods[0], plan.shots[-1]), 5)
    return curve_page(
        found, [("kit", "a & b")], wrong, {m.file: "data:image/jpeg;base64,AA==" for m in wrong}
    )


def test_the_page_is_whole_and_every_name_in_it_is_escaped(own: Path, opened: Opened) -> None:
    page = _page(plan_curve(own, [1, 2], tasks=2), ["ncc", "linear_probe"], opened)
    assert "<script" not in page
    assert "<i>" not in page
    assert "&lt;script&gt;" in page
    assert "a &amp; b" in page
    assert "http" not in page
    for heading in ("more images help", "mixed up", "be trusted", "of the mistakes", "Cost"):
        assert heading in page
    assert page.count("<svg") == page.count("</svg>") == 3
    assert "over linear probe" in page


def test_one_method_at_one_number_of_shots_makes_a_page_too(own: Path, opened: Opened) -> None:
    page = _page(plan_curve(own, [1], tasks=1), ["linear_probe"], opened)
    assert "linear probe, as it is" in page
    assert "before the temperature" not in page
    assert "What linear probe gains" not in page
