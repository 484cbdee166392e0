"""The bars that a person at a terminal sees."""

import io
import sys

import pytest
from rich.console import Console

from fewshift.cli import console


def test_a_bar_may_begin_while_another_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As features are computed when the first task of an evaluation asks for them."""
    screen = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=screen, force_terminal=True, width=100))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    track = console.bars()
    inside = [list(track(range(2), label="features", total=2)) for _ in track([0], label="tasks", total=1)]
    assert inside == [[0, 1]]
    assert "features" in screen.getvalue()
    assert "tasks" in screen.getvalue()
