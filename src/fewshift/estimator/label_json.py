"""Labels in a file: what they were comes back, and what cannot come back is refused."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

from fewshift.errors import FewshiftError


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
