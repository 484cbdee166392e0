"""The errors that a user can cause, each one sentence.

Every error a user can cause is a `FewshiftError` whose message names the file, class or value and the remedy.
The command line prints that sentence and exits with code 2; a traceback is a bug in Fewshift.
"""

from __future__ import annotations


class FewshiftError(ValueError):
    """A mistake in what the user gave, with the way out in its message."""


class DataError(FewshiftError):
    """Records, specs, images or suites that cannot be used as they are."""


class MissingExtra(FewshiftError):
    """An optional dependency is not installed; the message holds the pip command that adds it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed: run pip install 'fewshift[{extra}]'")
        self.extra = extra
