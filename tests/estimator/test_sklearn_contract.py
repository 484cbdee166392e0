"""scikit-learn's own checks of an estimator, those that make sense for images."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fewshift as fs
from fewshift.nets.kit import Kit

Pictures = Callable[..., tuple[list[Any], list[str]]]

ROWS = "an image has no number of features, and rows of numbers are refused with the remedy"
EXPECTED = {
    **dict.fromkeys(
        (
            "check_complex_data",
            "check_estimators_empty_data_messages",
            "check_estimators_nan_inf",
            "check_estimator_sparse_tag",
            "check_estimator_sparse_array",
            "check_estimator_sparse_matrix",
            "check_fit2d_predict1d",
            "check_n_features_in",
            "check_n_features_in_after_fitting",
            "check_classifiers_train",
        ),
        ROWS,
    ),
    "check_classifiers_regression_target": "numbers are labels like any others here",
    "check_supervised_y_2d": "a column of labels is taken as labels, without a warning",
    "check_methods_subset_invariance": "it asks for 1e-7, but features are computed in single precision",
}


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    """Its imports stand inside the tests: they take seconds, which collecting tests should not wait for."""
    pytest.importorskip("sklearn", minversion="1.6")


class OnRows(fs.FewShotClassifier):
    """Draws each row of numbers as an image, grey by grey, so that scikit-learn's tables can be used."""

    def fit(self, X: Any, y: Any = None, **more: Any) -> "OnRows":
        super().fit(_drawn(X), y, **more)
        return self

    def embed(self, X: Any, **more: Any) -> Any:
        return super().embed(_drawn(X), **more)

    def score(self, X: Any, y: Any = None) -> float:
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


def _drawn(rows: Any) -> Any:
    table = np.asarray(rows, float)
    if table.ndim != 2 or not table.size:
        raise fs.FewshiftError(f"{table.shape} is no table")
    grey = 1 / (1 + np.exp(-np.clip(table, -50, 50) / 4))
    side = int(np.ceil(np.sqrt(table.shape[1])))
    padded = np.pad(grey, ((0, 0), (0, side * side - table.shape[1])))
    images = padded.reshape(len(table), side, 1, side, 1, 1).repeat(8, 2).repeat(8, 4).repeat(3, 5)
    return images.reshape(len(table), side * 8, side * 8, 3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_estimator_checks_pass_or_are_listed_with_a_reason(kit_file: Path) -> None:
    from sklearn.utils.estimator_checks import check_estimator

    outcome = check_estimator(
        OnRows(kit=str(kit_file), method="ncc", quiet=True), expected_failed_checks=EXPECTED, on_fail=None
    )
    failed = {row["check_name"]: str(row["exception"]) for row in outcome if row["status"] == "failed"}
    assert failed == {}
    surprising = {row["check_name"] for row in outcome if row["check_name"] in EXPECTED} ^ EXPECTED.keys()
    assert not surprising, "listed, but not among the checks"
    passed = {row["check_name"] for row in outcome if row["status"] == "passed"}
    assert len(passed) > 20


def test_cloning_keeps_parameters_and_forgets_the_fit(small_kit: Kit, pictures: Pictures) -> None:
    from sklearn.base import clone, is_classifier
    from sklearn.exceptions import NotFittedError
    from sklearn.utils import get_tags
    from sklearn.utils.validation import check_is_fitted

    classifier = fs.FewShotClassifier(kit=small_kit, method="ncc", seed=4).fit(*pictures(2, 2))
    other = clone(classifier)
    assert other.get_params() | {"kit": None} == classifier.get_params() | {"kit": None}
    check_is_fitted(classifier)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        check_is_fitted(other)
    for kind in (NotFittedError, fs.FewshiftError):
        with pytest.raises(kind, match="call fit first"):
            other.predict(pictures(2, 1)[0])
    assert not hasattr(other, "classes_")
    assert is_classifier(classifier)
    assert not get_tags(classifier).input_tags.two_d_array
    with pytest.raises(fs.FewshiftError, match="no parameter 'metod'"):
        other.set_params(metod="tsa")
    tsa = fs.FewShotClassifier(method="tsa")
    assert repr(tsa) == repr(pickle.loads(pickle.dumps(tsa))) == "FewShotClassifier(method='tsa')"


def test_searches_and_cross_validation_run_on_images(small_kit: Kit, pictures: Pictures) -> None:
    from sklearn.model_selection import GridSearchCV, cross_val_score

    images, labels = pictures(2, 4)
    batch = np.stack(images)
    classifier = fs.FewShotClassifier(kit=small_kit, method="ncc", quiet=True)
    scores = cross_val_score(classifier, batch, np.array(labels), cv=2)
    assert scores.shape == (2,)
    assert np.isfinite(scores).all()
    search = GridSearchCV(classifier, {"method": ["ncc", "pa"]}, cv=2).fit(images, labels)
    assert search.best_params_["method"] in ("ncc", "pa")


def test_scores_may_weigh_images(small_kit: Kit, pictures: Pictures) -> None:
    images, labels = pictures(2, 2)
    classifier = fs.FewShotClassifier(kit=small_kit, method="ncc", quiet=True).fit(images, labels)
    said = [classifier.predict(images)[0], "something else", *labels[2:]]
    assert classifier.score(images, said, sample_weight=[1, 3, 0, 0]) == 0.25


def test_scikit_learn_is_not_imported(small_kit: Kit) -> None:
    code = (
        "import sys, fewshift as fs\n"
        "try: fs.FewShotClassifier().predict([])\n"
        "except fs.FewshiftError as problem: print(problem)\n"
        "sys.exit('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "call fit first" in done.stdout
