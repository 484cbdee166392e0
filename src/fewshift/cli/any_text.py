"""Printing and reading names that may be any text, where a terminal or a pipe takes less than that."""

from __future__ import annotations

import io
import sys


def print_any_text(encoding: str | None = None) -> None:
    """Let stdout write what its encoding lacks as \\u0161; `encoding` is for formats that say their own."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding=encoding or sys.stdout.encoding, errors="backslashreplace")


def read_any_names() -> None:
    """Let stdin hold file names in bytes that are no text, as `ls` prints them."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")


def printable(text: str) -> str:
    """File names may hold bytes that no text has."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
