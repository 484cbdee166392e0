"""The constants of an episode protocol, in one frozen value that checks itself.

`VARYING` is Meta-Dataset's standard (varying way, varying shot), `FIVE_SHOT` and `ONE_SHOT` its two usual
variants, `free(way, shot, query)` anything else. The name is derived from the constants, so that a result can
never carry the name of a protocol it was not made under.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from fewshift.errors import FewshiftError

_LN_2 = 0.6931471805599453  # written out: a platform's log may differ in the last bit


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How tasks are made from class sizes. The defaults are the standard varying-way varying-shot setting."""

    min_way: int = 5
    max_way: int = 50
    max_query: int = 10  # query images per class, at most
    max_support: int = 500  # support images of a task, at most
    max_contribution: int = 100  # what one class adds to the support size, at most; its shots may be more
    min_log_weight: float = -_LN_2
    max_log_weight: float = _LN_2
    max_span: int = 392  # leaves under a node of a hierarchy that may give a task, at most
    min_images: int = 0  # smaller classes are left out
    way: int | None = None  # fixed number of classes; None: drawn
    shot: int | None = None  # fixed support images per class; None: drawn
    query: int | None = None  # fixed query images per class; None: as many as the smallest class allows
    grouped: bool = True  # classes of a task share an alphabet or a node where the domain has them

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if field.name == "grouped":
                wanted, fine = "true or false", isinstance(value, bool)
            elif field.name.endswith("log_weight"):
                wanted = "a finite number"
                fine = (whole or isinstance(value, float)) and math.isfinite(value)
            elif field.name in {"way", "shot", "query"}:
                wanted, fine = "a whole number above 0, or nothing", value is None or (whole and value > 0)
            else:
                smallest = 0 if field.name == "min_images" else 1
                wanted, fine = f"a whole number from {smallest}", whole and value >= smallest
            if not fine:
                raise FewshiftError(f"protocol: {field.name} is {value!r}: give {wanted}")
        self._check_together()

    def _check_together(self) -> None:
        largest = self.way or self.max_way
        if min(self.min_way, self.way or self.min_way) < 2:
            raise FewshiftError("protocol: a task needs two classes: give min_way and way of 2 or more")
        if self.min_way > self.max_way:
            raise FewshiftError(
                f"protocol: min_way {self.min_way} is above max_way {self.max_way}: lower the first"
            )
        if self.min_log_weight > self.max_log_weight:
            raise FewshiftError(
                f"protocol: min_log_weight {self.min_log_weight} is above max_log_weight "
                f"{self.max_log_weight}: swap them"
            )
        if self.max_span < self.min_way:
            raise FewshiftError(
                f"protocol: max_span {self.max_span} is below min_way {self.min_way}: raise the first"
            )
        if self.way is not None and self.grouped:
            raise FewshiftError(
                f"protocol: a fixed way of {self.way} cannot keep to alphabets or nodes, which may be "
                "smaller: set grouped=False, or give min_way and max_way the same value"
            )
        if self.shot is None and self.max_support < largest:
            raise FewshiftError(
                f"protocol: max_support {self.max_support} is below the {largest} classes of the largest "
                "task: raise it or lower the way"
            )

    @cached_property
    def name(self) -> str:
        """A standard's name when every constant is that standard's, else the constants that differ."""
        for name, standard in STANDARDS.items():
            if self == standard:
                return name
        ours, usual = asdict(self), asdict(VARYING)
        changed = [f"{key}={value}" for key, value in ours.items() if value != usual[key]]
        return "free:" + ",".join(changed)

    @property
    def images_needed(self) -> int:
        """The fewest images a class can have and still take part: one for the support, one for the query."""
        return (self.shot or 1) + (self.query or 1)

    def to_dict(self) -> dict[str, Any]:
        """Every constant by name, ready for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(constants: Mapping[str, Any]) -> Protocol:
        """The protocol with these constants; all must be there, and none that are not known."""
        known = {field.name for field in fields(Protocol)}
        if set(constants) != known:
            odd = sorted(set(constants) ^ known)
            raise FewshiftError(
                f"protocol: the constants {json.dumps(odd)} are missing or not known: it was written "
                "by another version of fewshift"
            )
        return Protocol(**constants)


VARYING = Protocol()
FIVE_SHOT = Protocol(shot=5)
ONE_SHOT = Protocol(min_way=5, max_way=5, max_contribution=1)
STANDARDS: Mapping[str, Protocol] = {"varying": VARYING, "five-shot": FIVE_SHOT, "one-shot": ONE_SHOT}


def free(way: int | None = None, shot: int | None = None, query: int | None = None) -> Protocol:
    """A custom setting: what is None is drawn as in the standard.

    A fixed way takes its classes from the whole split, whatever alphabets or nodes they belong to.

    >>> free(way=5, shot=1, query=15).name
    'free:way=5,shot=1,query=15,grouped=False'
    """
    return Protocol(way=way, shot=shot, query=query, grouped=way is None)
