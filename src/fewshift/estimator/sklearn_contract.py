"""What scikit-learn asks of a classifier, for those who have it; Fewshift itself does not need it."""

from __future__ import annotations

import inspect
import os
import sys
from typing import Any, TypeVar

from fewshift.errors import FewshiftError, MissingExtra

Own = TypeVar("Own", bound="SklearnContract")


class NotFitted(FewshiftError, AttributeError):
    """A classifier was asked before `fit`."""


class SklearnContract:
    """Parameters by keyword, as `__init__` has stored them, for `clone`, pipelines and searches."""

    _estimator_type = "classifier"  # for scikit-learn before 1.6

    @classmethod
    def _parameters(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters as they were given."""
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self: Own, **params: Any) -> Own:
        """Change parameters by name."""
        known = self._parameters()
        for name, value in params.items():
            if name not in known:
                raise FewshiftError(
                    f"{type(self).__name__} has no parameter {name!r}: there are {', '.join(known)}"
                )
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn from 1.6 on wants to know: a classifier of images, not of rows of numbers."""
        try:
            from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags
        except ImportError:
            raise MissingExtra("scikit-learn 1.6 or newer", "sklearn") from None
        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True, one_d_labels=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=False, three_d_array=True),
            non_deterministic=False,
        )

    def __repr__(self) -> str:
        given = inspect.signature(type(self).__init__).parameters
        changed = {n: v for n, v in self.get_params().items() if _shown(v) != _shown(given[n].default)}
        return f"{type(self).__name__}({', '.join(f'{n}={_shown(v)}' for n, v in changed.items())})"


def _shown(value: Any) -> str:
    """A value in a line of code; of a large one, such as a kit with all its tensors, the kind alone."""
    small = value is None or isinstance(value, str | bytes | int | float | os.PathLike)
    return repr(value) if small else f"<{type(value).__name__}>"


def not_fitted() -> NotFitted:
    """The error; where scikit-learn is in use it is one of its NotFittedErrors as well."""
    message = "this classifier is not fitted and has no classes yet: call fit first, or fewshift.load"
    exceptions = sys.modules.get("sklearn.exceptions")
    if exceptions is None:  # so no caller can be catching its kind of error
        return NotFitted(message)
    kind: type[NotFitted] = type("NotFitted", (NotFitted, exceptions.NotFittedError), {})
    return kind(message)
