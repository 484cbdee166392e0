"""`FewShotClassifier`: scikit-learn's contract on top of few-shot adaptation."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewshift.core.centroids import prototypes
from fewshift.data.pixels import PixelRule
from fewshift.errors import FewshiftError
from fewshift.estimator import inputs, kits
from fewshift.estimator.fitted import SCALE, Fitted, Settings
from fewshift.estimator.labels import as_labels, encode
from fewshift.estimator.recipes import STEPS, recipe
from fewshift.evaluation.pixel_rule import pixel_rule
from fewshift.methods.coefficients import named
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.types import Labelled, Task

NAMES = ("method", "kit", "settings", "seed", "device", "engine", "quiet")


class FewShotClassifier:
    """Adapts a frozen backbone to a handful of labelled images.

    After `fit`: `classes_`, `coefficients_` (training domain -> weight), `settings_`, `losses_`,
    `seconds_`, and `fitted_`, `kit_`, `engine_` for those who build on it.
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
        quiet: bool = False,
    ) -> None:
        self.method = method
        self.kit = kit
        self.settings = settings
        self.seed = seed
        self.device = device
        self.engine = engine
        self.quiet = quiet

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters as they were given."""
        return {name: getattr(self, name) for name in NAMES}

    def set_params(self, **params: Any) -> FewShotClassifier:
        """Change parameters by name."""
        for name, value in params.items():
            if name not in NAMES:
                raise FewshiftError(
                    f"FewShotClassifier has no parameter {name!r}: there are {', '.join(NAMES)}"
                )
            setattr(self, name, value)
        return self

    def fit(self, X: inputs.Images, y: Any = None) -> FewShotClassifier:
        """Learn from a folder with a folder a class, or from images with their labels."""
        began = time.perf_counter()
        self._open()
        if y is None:
            if not isinstance(X, str | os.PathLike):
                raise FewshiftError("there are no labels: give fit(images, labels), or a folder a class")
            files, names = inputs.folder_items(X)
            items, labels = [*files], as_labels(names)
        else:
            items, labels = [*inputs.items_of(X)], as_labels(y)
        if len(items) != len(labels):
            raise FewshiftError(f"{len(items)} images and {len(labels)} labels: give each image its label")
        classes, codes = encode(labels)
        if len(classes) < 2:
            raise FewshiftError(
                f"all images are of the class {classes.tolist()[0]!r}: a classifier needs two classes"
            )
        support = inputs.read(items, self._rule)
        task = Task(
            Labelled(support.images.to(self._where), torch.tensor(codes).to(self._where)), len(classes)
        )
        plan = recipe(self.method, self.kit_, task)
        pair, steps = plan.published, STEPS if plan.start else 0
        trajectory = self.engine_.adapt(task, plan.start, plan.update(pair), steps)
        features = self.engine_.embed(trajectory.params, task.support.images)
        self.fitted_ = Fitted(
            classes,
            trajectory.params,
            prototypes(features, task.support.labels, task.way),
            tuple(np.bincount(codes).tolist()),
            SCALE,
            -1.0,
            Settings((pair.adapters, pair.last), steps, "published"),
            {} if plan.coefficients is None else named(plan.coefficients, self.kit_.domains),
            tuple(trajectory.losses.tolist()),
        )
        self.seconds_ = time.perf_counter() - began
        return self

    def predict(self, X: inputs.Images) -> NDArray[Any]:  # (n,)
        """The most probable class of each image."""
        found: NDArray[Any] = self.classes_[self._logits(X).argmax(1).cpu().numpy()]
        return found

    def predict_proba(self, X: inputs.Images) -> NDArray[np.float64]:  # (n, way)
        """The probability of each class, in the order of `classes_`."""
        return self._logits(X).double().softmax(1).cpu().numpy()

    def score(self, X: inputs.Images, y: Any) -> float:
        """The share of images that get their label."""
        return float(np.mean([a == b for a, b in zip(self.predict(X).tolist(), as_labels(y), strict=True)]))

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, as they were given."""
        return self.fitted_.classes

    @property
    def coefficients_(self) -> dict[str, float]:
        """How much of each training domain the support set is."""
        return dict(self.fitted_.coefficients)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the classifier as one file."""
        from fewshift.estimator.saved import write_fitted

        write_fitted(path, self.fitted_, self.kit_, self.kit_name_, self.method)

    def embed(self, X: inputs.Images) -> Tensor:  # (n, d)
        """The adapted features of images."""
        read = inputs.read(inputs.items_of(X), self._rule)
        return self.engine_.embed(self.fitted_.params, read.images.to(self._where))

    def _logits(self, X: inputs.Images) -> Tensor:
        return self.fitted_.logits(self.embed(X))

    def _open(self) -> None:
        self.kit_name_: str
        self.kit_: Kit
        self.kit_name_, self.kit_ = kits.resolve(self.kit, kits.choose_device(self.device), self.quiet)
        self.engine_: Engine = choose_engine(self.kit_.backbone, self.engine)

    @property
    def _where(self) -> torch.device:
        return self.kit_.backbone.device

    @property
    def _rule(self) -> PixelRule:
        return pixel_rule(self.kit_)
