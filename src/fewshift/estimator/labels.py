"""Labels of any hashable kind to class numbers and back, and as a file can keep them."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fewshift.errors import FewshiftError


def as_labels(labels: Any) -> list[Hashable]:
    """The labels one by one, as Python has them; arrays, tensors and columns of tables are taken apart."""
    arrays = hasattr(labels, "__array__") or hasattr(labels, "tolist")
    rows = not isinstance(labels, str | bytes | Mapping | set | frozenset)  # in the order of the images
    if not rows or not (arrays or isinstance(labels, Iterable)):
        raise FewshiftError(f"the labels are {reprlib.repr(labels)}: give a list with one label an image")
    values = [_plain(value) for value in (_from_array(labels) if arrays else labels)]
    for place, value in enumerate(values):
        _check(value, f"label {place}")
    return values


def as_label(label: Any) -> Hashable:
    """One label, as Python has it: what comes out of an array of classes goes in again."""
    plain: Hashable = _plain(label)
    _check(plain, "the label")
    return plain


def check_kind(labels: Sequence[Hashable], classes: Sequence[Hashable]) -> None:
    """Refuse texts where no class is a text, and the other way round: every one would count as wrong."""
    texts = {isinstance(value, str) for value in labels}
    if len(texts) == 1 and not texts & {isinstance(value, str) for value in classes}:
        raise FewshiftError(
            f"the labels are of another kind than the classes, {labels[0]!r} where there is {classes[0]!r}: "
            "give labels as they were given to fit (a folder's are texts)"
        )


def encode(values: Sequence[Hashable]) -> tuple[NDArray[Any], list[int]]:
    """(classes, the class number of every label).

    Classes are in order of size where their kind has one, as in scikit-learn, and of appearance otherwise.
    """
    distinct: dict[Hashable, Hashable] = {}
    for value in values:
        first = distinct.setdefault(value, value)
        if type(first) is not type(value):
            raise FewshiftError(
                f"the labels {first!r} and {value!r} are equal for Python: make all labels of one kind"
            )
    order = list(distinct)
    if len({type(value) for value in order}) == 1 and isinstance(order[0], str | int | float):
        order = sorted(order)  # type: ignore[type-var]
    places = {value: number for number, value in enumerate(order)}
    return class_array(order), [places[value] for value in values]


def class_array(order: Sequence[Hashable]) -> NDArray[Any]:
    """The classes as scikit-learn keeps them; kinds that an array would change stay Python objects."""
    kinds = {type(value) for value in order}
    if len(kinds) == 1 and kinds <= {str, int, float, bool}:
        found = np.array(order)
        if found.tolist() == list(order):  # a text that ends in a zero byte, or a very large number, does not
            return found
    found = np.empty(len(order), dtype=object)
    for place, value in enumerate(order):
        found[place] = value
    return found


def _from_array(labels: Any) -> list[Any]:
    values = np.asarray(labels)
    if values.ndim == 2 and values.shape[1] == 1:  # one column of a table
        values = values[:, 0]
    if values.ndim != 1:
        raise FewshiftError(f"the labels have shape {values.shape}: give a list with one label an image")
    return list(values.tolist())


def _plain(value: Any) -> Any:
    """A single number or text out of an array or tensor as Python has it, also inside a tuple."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray | Tensor) and value.ndim == 0):
        return value.item()
    return tuple(map(_plain, value)) if type(value) is tuple else value


def _check(value: Any, name: str) -> None:
    try:
        if isinstance(value, Tensor):  # each of them is equal to itself alone
            raise TypeError
        hash(value)
    except TypeError:
        raise FewshiftError(
            f"{name} is {value!r}, which cannot name a class: give texts, numbers or tuples of these"
        ) from None
    if _is_missing(value):
        raise FewshiftError(f"{name} is missing ({value!r}): every image needs a label")


def _is_missing(value: Any) -> bool:
    """NaN is not equal to itself, and pandas' NA does not say whether it is."""
    try:
        return bool(value != value)
    except TypeError:
        return True


def to_json(label: Hashable) -> Any:
    """A label as JSON can say it; tuples and bytes are marked, since JSON has none."""
    if label is None or type(label) in (str, bool, int):
        return label
    if type(label) is float:
        return label if math.isfinite(label) else {"float": str(label)}
    if type(label) is tuple:
        return {"tuple": [to_json(part) for part in label]}
    if type(label) is bytes:
        return {"bytes": label.hex()}
    raise FewshiftError(
        f"the label {label!r} is of type {type(label).__name__}, which a file cannot keep: "
        "fit with texts, numbers, None or tuples of these as labels"
    )


def from_json(value: Any) -> Hashable:
    """The label again."""
    if not isinstance(value, dict):
        label: Hashable = value
        return label
    ((kind, content),) = value.items()
    if kind == "tuple":
        return tuple(from_json(part) for part in content)
    return bytes.fromhex(content) if kind == "bytes" else float(content)
