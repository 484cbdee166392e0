"""Fitting and predicting: every method, every kind of label, equal runs, later changes."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fewshift as fs
from fewshift.estimator import kits
from fewshift.estimator.choosing import STOPS
from fewshift.estimator.predictions import predictions
from fewshift.nets.kit import Kit

Pictures = Callable[..., tuple[list[Any], list[str]]]


@pytest.fixture(scope="module")
def fitted(small_kit: Kit, pictures: Pictures) -> fs.FewShotClassifier:
    return fs.FewShotClassifier(kit=small_kit).fit(*pictures())


@pytest.mark.parametrize("method", ["tsp", "tsa", "gd", "pa", "ncc"])
@pytest.mark.parametrize("settings", ["auto", "published"])
def test_every_method_fits_and_predicts(
    small_kit: Kit, pictures: Pictures, method: str, settings: str
) -> None:
    images, labels = pictures(3, 3)
    classifier = fs.FewShotClassifier(kit=small_kit, method=method, settings=settings).fit(images, labels)
    assert classifier.classes_.tolist() == ["shape 0", "shape 1", "shape 2"]
    query, truth = pictures(3, 6, first=10)
    shares = classifier.predict_proba(query)
    assert shares.shape == (18, 3)
    np.testing.assert_allclose(shares.sum(1), 1)
    assert (classifier.classes_[shares.argmax(1)] == classifier.predict(query)).all()
    assert classifier.score(query, truth) == np.mean(classifier.predict(query) == truth)
    assert classifier.score(images, labels) > 0.5
    assert len(classifier.losses_) == classifier.settings_.steps
    if settings == "published" and method != "ncc":
        assert classifier.settings_.steps == 40
    if method == "ncc":
        assert not classifier.fitted_.params


def test_published_settings_are_those_of_the_method(small_kit: Kit, pictures: Pictures) -> None:
    """The estimator's tsp at published settings is `methods.tsp` without the oracle."""
    images, labels = pictures()
    classifier = fs.FewShotClassifier(kit=small_kit, settings="published", precision="float32")
    classifier.fit(images, labels)
    support = classifier._support_set
    assert support is not None
    adapted = fs.methods.tsp(small_kit, oracle=False).adapt(support.task(torch.device("cpu")))
    logits = classifier.fitted_.logits(classifier.embed(images))
    torch.testing.assert_close(logits, adapted(support.images))


def test_a_folder_a_class_and_the_same_images_by_path_fit_equally(kit_file: Path, folder: Path) -> None:
    by_folder = fs.FewShotClassifier(kit=kit_file).fit(folder)
    files = sorted(folder.glob("*/*.png"), key=lambda f: (f.parent.name, f.name))
    names = [f.parent.name for f in files]
    by_path = fs.FewShotClassifier(kit=str(kit_file)).fit([str(f) for f in files], names)
    assert by_folder.classes_.tolist() == ["shape 0", "shape 1", "shape 2"]
    assert (by_folder.predict_proba(files) == by_path.predict_proba(files)).all()
    assert by_folder.score(folder) == by_path.score(files, names)
    numbered = fs.FewShotClassifier(kit=kit_file, method="ncc").fit(files, [int(n[-1]) for n in names])
    with pytest.raises(fs.FewshiftError, match="'shape 0' where there is 0: give labels as they were"):
        numbered.score(folder)
    assert by_folder.predict(folder).shape == (12,)  # for predictions a folder is all the files below it


def test_equal_seeds_give_equal_bits(small_kit: Kit, pictures: Pictures) -> None:
    first, second = (fs.FewShotClassifier(kit=small_kit, seed=3).fit(*pictures()) for _ in range(2))
    assert first.settings_ == second.settings_
    for site, value in first.fitted_.params.items():
        assert torch.equal(value, second.fitted_.params[site])
    assert torch.equal(first.fitted_.prototypes, second.fitted_.prototypes)


@pytest.mark.parametrize(
    "labels",
    [[7, 3, 5], ["b", "a", "c"], [("x", 1), ("x", 2), None], [2.5, -1.0, 0.0], [b"a", b"b", frozenset()]],
    ids=str,
)
def test_labels_come_back_as_they_were(small_kit: Kit, pictures: Pictures, labels: list[Any]) -> None:
    images, names = pictures(3, 2)
    given = [labels[int(name[-1])] for name in names]
    classifier = fs.FewShotClassifier(kit=small_kit, method="ncc").fit(images, given)
    found = classifier.predict(images).tolist()
    assert {type(label) for label in found} <= {type(label) for label in labels}
    assert set(found) <= set(labels)
    assert classifier.score(images, given) > 0.5
    kinds = {type(label) for label in labels}
    if kinds <= {int, str, float}:
        assert classifier.classes_.tolist() == sorted(labels)


def test_two_true_labels_of_numpy_tensors_and_booleans(small_kit: Kit, pictures: Pictures) -> None:
    images, names = pictures(2, 2)
    flags = [name == "shape 1" for name in names]
    for labels in (np.array(flags), torch.tensor(flags), flags):
        classifier = fs.FewShotClassifier(kit=small_kit, method="ncc").fit(images, labels)
        assert classifier.classes_.dtype == np.bool_
        assert classifier.classes_.tolist() == [False, True]


@pytest.mark.parametrize(
    "take_apart",
    [
        lambda codes: list(np.array(codes)),
        lambda codes: list(torch.tensor(codes)),
        lambda codes: [np.array(code) for code in codes],
        lambda codes: [code if place % 2 else np.int64(code) for place, code in enumerate(codes)],
    ],
    ids=["numpy numbers", "tensors", "arrays without axes", "Python's and numpy's"],
)
def test_a_list_of_single_numbers_is_as_good_as_their_array(
    small_kit: Kit, pictures: Pictures, tmp_path: Path, take_apart: Callable[[list[int]], list[Any]]
) -> None:
    images, names = pictures(3, 2)
    codes = [int(name[-1]) for name in names]
    classifier = fs.FewShotClassifier(kit=small_kit, method="ncc").fit(images, take_apart(codes))
    assert classifier.classes_.tolist() == [0, 1, 2]
    assert classifier.classes_.dtype == np.int64
    assert classifier.score(images, take_apart(codes)) == classifier.score(images, codes)
    classifier.save(tmp_path / "numbers.fewshift")
    assert fs.load(tmp_path / "numbers.fewshift", kit=small_kit).classes_.tolist() == [0, 1, 2]


def test_numpy_texts_and_numbers_inside_tuples_can_be_saved(
    small_kit: Kit, pictures: Pictures, tmp_path: Path
) -> None:
    images, names = pictures(2, 2)
    for labels in (list(np.array(names)), [("shape", np.int64(name[-1])) for name in names]):
        classifier = fs.FewShotClassifier(kit=small_kit, method="ncc").fit(images, labels)
        classifier.save(tmp_path / "x.fewshift")
        kept = fs.load(tmp_path / "x.fewshift", kit=small_kit).classes_
        assert kept.tolist() == classifier.classes_.tolist()
        assert set(kept.tolist()) == set(labels)


def test_a_fit_that_fails_leaves_the_fit_before(small_kit: Kit, pictures: Pictures, tmp_path: Path) -> None:
    images, labels = pictures(2, 2)
    classifier = fs.FewShotClassifier(kit=small_kit, method="ncc").fit(images, labels)
    before = classifier.predict_proba(images)
    classifier.set_params(kit="narrow")
    with pytest.raises(fs.FewshiftError, match="cannot be read"):
        classifier.fit([*images[1:], tmp_path / "nowhere.png"], labels)
    assert (classifier.predict_proba(images) == before).all()


def test_one_image_a_class_takes_a_few_cautious_steps(small_kit: Kit, pictures: Pictures) -> None:
    classifier = fs.FewShotClassifier(kit=small_kit).fit(*pictures(5, 1))
    assert 0 < classifier.settings_.steps < 40
    assert "one image a class" in classifier.settings_.why
    assert classifier.unknown_score(pictures(5, 1)[0]).min() >= 0
    assert classifier.support_hints_ == ()


def test_many_classes_and_unequal_ones(small_kit: Kit, pictures: Pictures) -> None:
    images, labels = pictures(60, 1)
    more, names = pictures(2, 5, first=5)
    classifier = fs.FewShotClassifier(kit=small_kit).fit(images + more, labels + names)
    assert len(classifier.classes_) == 60
    assert sorted(set(classifier.fitted_.counts)) == [1, 6]
    assert classifier.settings_.steps in (0, *STOPS, 40)


def test_coefficients_are_the_kits_domains(fitted: fs.FewShotClassifier) -> None:
    assert list(fitted.coefficients_) == ["one", "two", "three"]
    assert sum(fitted.coefficients_.values()) == pytest.approx(1, abs=1e-3)
    assert fitted.seconds_ > 0


def test_copies_and_pickles_predict_the_same_bits(fitted: fs.FewShotClassifier, pictures: Pictures) -> None:
    query, _ = pictures(3, 2, first=8)
    wanted = fitted.predict_proba(query)
    meant_for_the_next_fit = copy.deepcopy(fitted).set_params(kit="narrow")
    for other in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted)), meant_for_the_next_fit):
        assert (other.predict_proba(query) == wanted).all()


@pytest.mark.parametrize("adapt", [True, False])
def test_classes_come_and_go(small_kit: Kit, pictures: Pictures, adapt: bool) -> None:
    images, labels = pictures(4, 3)
    classifier = fs.FewShotClassifier(kit=small_kit).fit(images[:9], labels[:9])
    classifier.add_class("shape 3", images[9:], adapt=adapt)
    assert classifier.classes_.tolist() == ["shape 0", "shape 1", "shape 2", "shape 3"]
    assert classifier.predict_proba(images).shape == (12, 4)
    assert classifier.score(images[9:], labels[9:]) > 0
    more, _ = pictures(4, 2, first=20)
    classifier.add_images("shape 1", more[2:4], adapt=adapt)
    assert classifier.fitted_.counts == (3, 5, 3, 3)
    classifier.remove_class("shape 0", adapt=adapt)
    assert classifier.classes_.tolist() == ["shape 1", "shape 2", "shape 3"]
    assert classifier.fitted_.counts == (5, 3, 3)
    support = classifier._support_set
    assert support is not None
    assert len(support.images) == 11
    features = classifier.embed(images[3:6] + more[2:4])
    torch.testing.assert_close(classifier.fitted_.prototypes[0], features.mean(0))


def test_changes_say_once_that_they_went_on(small_kit: Kit, pictures: Pictures) -> None:
    images, labels = pictures(4, 3)
    classifier = fs.FewShotClassifier(kit=small_kit, settings="published").fit(images[:9], labels[:9])
    for image in images[9:]:
        classifier.add_images("shape 1", [image])
    assert classifier.settings_.why.count("warm") == 1


@pytest.mark.parametrize("weights", [[1.0, 2.0], [0.0] * 9, [[1.0] * 9]])
def test_weights_of_a_score_are_one_an_image(
    fitted: fs.FewShotClassifier, pictures: Pictures, weights: list[Any]
) -> None:
    images, labels = pictures(3, 3)
    with pytest.raises(fs.FewshiftError, match="for 9 images: give one number an image"):
        fitted.score(images, labels, sample_weight=weights)
    assert fitted.score(images, labels, sample_weight=[1] * 9) == fitted.score(images, labels)


def test_later_changes_are_deterministic(small_kit: Kit, pictures: Pictures) -> None:
    images, labels = pictures(4, 3)
    found = []
    for _ in range(2):
        classifier = fs.FewShotClassifier(kit=small_kit).fit(images[:9], labels[:9])
        found.append(classifier.add_class("new", images[9:]).predict_proba(images))
    assert (found[0] == found[1]).all()


def test_changes_that_cannot_be_are_refused(fitted: fs.FewShotClassifier, pictures: Pictures) -> None:
    images, _ = pictures(1, 1)
    with pytest.raises(fs.FewshiftError, match="is there already"):
        fitted.add_class("shape 1", images)
    with pytest.raises(fs.FewshiftError, match="no class 'bird'"):
        fitted.add_images("bird", images)
    with pytest.raises(fs.FewshiftError, match="no class 'bird'"):
        fitted.remove_class("bird")
    with pytest.raises(fs.FewshiftError, match=r"the label is \['bird'\], which cannot name a class"):
        fitted.add_class(["bird"], images)  # type: ignore[arg-type]
    two = fs.FewShotClassifier(kit=fitted.kit_, method="ncc").fit(*pictures(2, 1))
    with pytest.raises(fs.FewshiftError, match="without 'shape 0' one class would be left"):
        two.remove_class(two.classes_[0])


def test_a_mislabelled_image_is_named(small_kit: Kit, folder: Path) -> None:
    wrong = folder / "shape 0" / "wrong.png"
    wrong.write_bytes(next((folder / "shape 2").iterdir()).read_bytes())
    classifier = fs.FewShotClassifier(kit=small_kit, method="ncc").fit(folder)
    hints = {hint.name: hint for hint in classifier.support_hints_}
    assert str(wrong) in hints
    assert (hints[str(wrong)].label, hints[str(wrong)].nearer_to) == ("shape 0", "shape 2")
    assert "looks more like 'shape 2'" in str(hints[str(wrong)])
    classifier.remove_class("shape 2", adapt=False)
    assert str(wrong) not in {hint.name for hint in classifier.support_hints_}


def test_progress_is_seen(small_kit: Kit, pictures: Pictures) -> None:
    seen: dict[str, int] = {}

    def track(items: Any, /, *, label: str, total: int | None = None) -> Any:
        for item in items:
            seen[label] = seen.get(label, 0) + 1
            yield item

    classifier = fs.FewShotClassifier(kit=small_kit, settings="published").fit(*pictures(), track=track)
    assert seen["reading images"] == 12
    assert seen["adapting"] == classifier.settings_.steps + 1


@pytest.mark.parametrize("method", ["tsp", "pa"])
def test_the_modes_of_a_caller_change_nothing(
    kit_file: Path, pictures: Pictures, tmp_path: Path, method: str
) -> None:
    images, labels = pictures()

    def work() -> list[Any]:
        kits._opened.cache_clear()
        fitted = fs.FewShotClassifier(kit=kit_file, method=method).fit(images, labels)
        fitted.save(tmp_path / "x.fewshift", with_support=True)
        loaded = fs.load(tmp_path / "x.fewshift", kit=kit_file)
        said = list(predictions(fitted, images))
        return [fitted, loaded, said, fitted.predict_proba(images), fitted.decision_function(images)]

    *_, answers, wanted, logits = work()
    for mode in (torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), torch.no_grad()):
        with mode:
            fitted, loaded, said, found, decided = work()
        assert said == answers
        assert (found == wanted).all()
        assert (decided == logits).all()
        for classifier in (fitted, loaded, pickle.loads(pickle.dumps(loaded))):
            classifier.add_images(labels[0], images[:1])  # what was loaded in such a mode can be adapted
