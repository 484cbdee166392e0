"""What settings refuse: one sentence with whose they are, the name, the value and the remedy."""

from __future__ import annotations

from math import inf

from fewshift.errors import FewshiftError


def at_least(least: int, whose: str, settings: object, *names: str) -> None:
    """Refuse settings below this; None is one that was left out."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < least:
            raise FewshiftError(f"{whose}{name} is {value}: give {least} or more")


def above_zero(what: str, value: float) -> None:
    """Refuse a rate that is 0, negative or no finite number."""
    if not 0 < value < inf:
        raise FewshiftError(f"{what} is {value}: give more than 0")
