"""Warnings that something slower is used than could be, each given once."""

from __future__ import annotations

import logging
from functools import cache

_log = logging.getLogger("fewshift")


@cache
def say_once(sentence: str) -> None:
    """Log a warning, which lands on stderr unless a program arranges otherwise; the same one only once."""
    _log.warning("fewshift: %s", sentence)
