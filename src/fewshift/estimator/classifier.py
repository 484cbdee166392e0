"""`FewShotClassifier`: scikit-learn's contract on top of few-shot adaptation."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.estimator import changes, inputs, kits
from fewshift.estimator.adapting import Support, Tools, adapt, readapt
from fewshift.estimator.choosing import check_parameters
from fewshift.estimator.fitted import Fitted
from fewshift.estimator.labels import as_label, check_kind, encode
from fewshift.estimator.modes import own_modes
from fewshift.estimator.results import FitResults
from fewshift.estimator.sklearn_contract import SklearnContract
from fewshift.nets.choice import check_precision
from fewshift.progress import Track, silent


class FewShotClassifier(SklearnContract, FitResults):
    """Adapts a frozen backbone to a handful of labelled images and classifies others by nearest centroid.

    `method` is tsp, tsa, gd, pa or ncc; `kit` a kit, its file, a bundled one's name, or None for the best on
    validation of those installed. `settings="auto"` adapts as the kit's validation says unless held-out
    support images clearly object, "published" takes the paper's rates and steps. `precision="auto"` adapts in
    bfloat16 on processors with instructions for it, "float32" never. Equal seeds and images give equal
    classifiers on one machine.

    Images are paths, Pillow pictures, encoded bytes, arrays (h, w, c) or (c, h, w), tensors, in a list of any
    mixture, or one array or tensor of four dimensions; floats are from 0 to 1.
    """

    def __init__(
        self,
        *,
        method: str = "tsp",
        kit: kits.KitLike = None,
        settings: str = "auto",
        seed: int = 0,
        device: str = "auto",
        engine: str = "auto",
        precision: str = "auto",
        quiet: bool = False,
    ) -> None:
        self.method = method
        self.kit = kit
        self.settings = settings
        self.seed = seed
        self.device = device
        self.engine = engine
        self.precision = precision
        self.quiet = quiet

    # --- learning -------------------------------------------------------------------------------------------

    @own_modes()
    def fit(self, X: inputs.Images, y: Any = None, *, track: Track = silent) -> FewShotClassifier:
        """Learn from a folder with one folder per class, or from images and their labels."""
        began = time.perf_counter()
        check_parameters(self.method, self.settings, self.seed)
        items, labels = inputs.labelled_items(X, y)
        classes, codes = encode(labels)
        if len(classes) < 2:
            raise FewshiftError(
                f"there is one class only, {classes.tolist()[0]!r}: a classifier needs two at least"
            )
        opened = kits.open_kit(self.kit, self.device, self.engine, self.quiet, self.precision)
        check_precision(self.precision, opened.engine)
        read = inputs.read(items, opened.rule, track)
        support = Support(read.images, torch.tensor(codes), read.names, tuple(classes.tolist()))
        fitted = adapt(Tools(opened.kit, opened.engine, *self._asked, track), support)
        from_its_file = self._carried[0] and self.kit is self._kit_of_fit  # then no other place has that kit
        # not before: a fit that fails changes nothing
        self._made_with(opened, opened.name if self.kit is None else self.kit, (from_its_file, False))
        self._keep(fitted, support, began)
        return self

    def add_class(
        self, label: Hashable, images: inputs.Images, *, adapt: bool = True, track: Track = silent
    ) -> FewShotClassifier:
        """A new class from its images; the others stay. `adapt=False`: only its prototype is made."""
        label = as_label(label)
        changes.check_new(self._labels, label)
        return self._changed(label, images, adapt, track)

    def add_images(
        self, label: Hashable, images: inputs.Images, *, adapt: bool = True, track: Track = silent
    ) -> FewShotClassifier:
        """More images of a class. `adapt=False`: only its prototype moves."""
        label = as_label(label)
        changes.place_of(self._labels, label)
        return self._changed(label, images, adapt, track)

    @own_modes()
    def remove_class(
        self, label: Hashable, *, adapt: bool = True, track: Track = silent
    ) -> FewShotClassifier:
        """Take a class out. `adapt=False`: the other prototypes stay where they are."""
        label = as_label(label)
        changes.check_removable(self._labels, label)
        began, fitted = time.perf_counter(), changes.prototypes_without(self.fitted_, label)
        support = changes.without_class(self._support(), label) if adapt or self._has_support else None
        if adapt and support is not None:
            fitted = readapt(self._tools(self._opened, track), support, fitted)
        self._keep(fitted, support, began)
        return self

    @own_modes()
    def _changed(
        self, label: Hashable, images: inputs.Images, again: bool, track: Track
    ) -> FewShotClassifier:
        began, opened = time.perf_counter(), self._opened
        items, before = inputs.items_of(images), sum(self.fitted_.counts)
        more = inputs.read(items, opened.rule, track, first=before)
        support = changes.with_images(self._support(), label, more) if again or self._has_support else None
        if again and support is not None:
            fitted = readapt(self._tools(opened, track), support, self.fitted_)
        else:
            features = opened.engine.embed(self.fitted_.params, more.images.to(opened.device))
            fitted = changes.prototypes_with(self.fitted_, label, features)
        self._keep(fitted, support, began)
        return self

    # --- predicting -----------------------------------------------------------------------------------------

    def predict(self, X: inputs.Images, *, track: Track = silent) -> NDArray[Any]:  # (n,)
        """The most probable class of each image."""
        found: NDArray[Any] = self.classes_[self._cosines(X, track).argmax(1).cpu().numpy()]
        return found

    def predict_proba(self, X: inputs.Images, *, track: Track = silent) -> NDArray[np.float64]:  # (n, way)
        """The probability of each class, in the order of `classes_`."""
        return self.fitted_.probabilities(self._cosines(X, track)).cpu().numpy()

    def decision_function(self, X: inputs.Images) -> NDArray[np.float64]:  # (n, way)
        """The calibrated logits; of two classes, as in scikit-learn, the second's over the first's: (n,)."""
        found: NDArray[np.float64] = (self.fitted_.scale * self._cosines(X).double()).cpu().numpy()
        return found[:, 1] - found[:, 0] if found.shape[1] == 2 else found

    def score(self, X: inputs.Images, y: Any = None, sample_weight: Any = None) -> float:
        """The share of images that get their label; like `fit`, it takes one folder per class, too."""
        items, labels = inputs.labelled_items(X, y)
        check_kind(labels, self._labels)
        weights = None if sample_weight is None else np.asarray(sample_weight, float)
        if weights is not None and (weights.shape != (len(labels),) or not weights.sum() > 0):
            raise FewshiftError(
                f"sample_weight has shape {weights.shape} and the sum {weights.sum():g} for {len(labels)} "
                "images: give one number an image, not all of them 0"
            )
        right = [bool(a == b) for a, b in zip(self.predict(items).tolist(), labels, strict=True)]
        return float(np.average(right, weights=weights))

    def unknown_score(self, X: inputs.Images) -> NDArray[np.float64]:  # (n,)
        """How unlike every class an image is: 0 to 1; half of the classes' own images are below 0.5."""
        return self.fitted_.familiar.scores(self._cosines(X)).cpu().numpy()

    def is_unknown(self, X: inputs.Images) -> NDArray[np.bool_]:  # (n,)
        """Whether the unknown score is over the limit that the support set set."""
        return self.unknown_score(X) > self.fitted_.familiar.limit

    @own_modes()
    def embed(self, X: inputs.Images, *, track: Track = silent) -> Tensor:  # (n, d)
        """The adapted features of images."""
        fitted, opened = self.fitted_, self._opened
        parts = inputs.read_in_parts(inputs.items_of(X), opened.rule, track)
        return torch.cat([opened.engine.embed(fitted.params, p.images.to(opened.device)) for p in parts])

    @own_modes()
    def _cosines(self, X: inputs.Images, track: Track = silent) -> Tensor:  # (n, way)
        return self.fitted_.cosines(self.embed(X, track=track))

    # --- keeping -------------------------------------------------------------------------------------------

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        with_backbone: bool | None = None,
        with_support: bool | None = None,
    ) -> None:
        """Write one small file, all or nothing.

        It names its kit; `with_backbone` puts the frozen weights in, so that no kit is needed to predict.
        `with_support` keeps the support images, small and in 8 bits, so that a loaded classifier can be
        re-adapted; with both, the whole kit goes in. If not said, a classifier keeps what it was loaded with,
        the backbone also when it is fitted again on it, and a fresh one neither.
        """
        from fewshift.estimator.saved import write_classifier

        fitted, (method, mode, seed) = self.fitted_, self._asked_of_fit
        had_backbone, had_support = self._carried
        if with_backbone is None:
            with_backbone = had_backbone
        if with_support is None:
            with_support = had_support and self._has_support
        write_classifier(
            path,
            fitted,
            self._opened,
            method,
            mode=mode,
            seed=seed,
            precision=self._precision_of_fit,
            support=self._support() if with_support else None,
            with_backbone=with_backbone,
        )

    # --- inside ---------------------------------------------------------------------------------------------

    @property
    def _carried(self) -> tuple[bool, bool]:
        """Whether the backbone, and the support images, came from the file that this was loaded from."""
        carried: tuple[bool, bool] = vars(self).get("_loaded_with", (False, False))
        return carried

    @property
    def _labels(self) -> tuple[Hashable, ...]:
        return tuple(self.classes_.tolist())

    @property
    def _has_support(self) -> bool:
        return vars(self).get("_support_set") is not None

    def _support(self) -> Support:
        self.fitted_  # noqa: B018  (not fitted comes first)
        if not self._has_support:
            raise FewshiftError(
                "this classifier was saved without its support images and cannot be re-adapted: "
                "fit it again, save it with_support=True, or say adapt=False to change prototypes only"
            )
        assert self._support_set is not None
        return self._support_set

    def _made_with(self, opened: kits.Opened, kit: kits.KitLike, carried: tuple[bool, bool]) -> None:
        """Keep what the classifier was made with: parameters may be set anew before the next fit."""
        self._now_open, self._kit_of_fit, self._loaded_with = opened, kit, carried
        self._rule_of_fit, self._name_of_fit = opened.rule, opened.name
        self._asked_of_fit, self._precision_of_fit = self._asked, self.precision

    def _keep(self, fitted: Fitted, support: Support | None, began: float | None) -> None:
        self._fitted = fitted
        self._support_set: Support | None = support
        if began is not None:
            self.seconds_ = time.perf_counter() - began

    @property
    def _asked(self) -> tuple[str, str, int]:
        return self.method, self.settings, self.seed

    def _tools(self, opened: kits.Opened, track: Track) -> Tools:
        """For changes: parameters that were set after `fit` are for the next one."""
        return Tools(opened.kit, opened.engine, *self._asked_of_fit, track)
