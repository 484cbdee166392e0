"""Ctrl-C and SIGTERM wait for the step in hand; a second one does not."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop; its state is saved."""

    def __init__(self, kind: str, step: int, folder: Path) -> None:
        super().__init__(
            f"train {kind} stopped after step {step}; its state is saved in {folder}: repeat the command "
            "with --resume to go on"
        )


class Stop:
    """A context in which the signals raise a flag instead of an exception."""

    def __init__(self) -> None:
        self.wanted = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._raised) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _raised(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
