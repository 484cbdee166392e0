"""The command line. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import _thread
import os
import sys
import threading
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


def main() -> None:
    """Run the command line; a Ctrl-C while it is being imported, or is clearing up, is heard as any other."""
    wait_politely(os.environ)
    before, sys.unraisablehook = sys.unraisablehook, interrupt_again
    try:
        from fewshift.cli.app import main as run

        run()
    except KeyboardInterrupt:
        print("fewshift: interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        sys.unraisablehook = before


def wait_politely(environment: MutableMapping[str, str]) -> None:
    """Let OpenMP's threads sleep sooner while they wait for each other; to be called before torch is loaded.

    They spin for milliseconds by default. Where another process has a core, each of the thousands of small
    steps of a task then waits for the scheduler, and a task takes thirty times as long. Alone none is slower.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "1000")


def interrupt_again(dropped: UnraisableHookArgs) -> None:
    """Give a Ctrl-C that fell into a finalizer once more; Python drops what is raised there.

    A little later and from another thread, since here it would be dropped, too.
    """
    if dropped.exc_type is KeyboardInterrupt:
        threading.Timer(0.05, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(dropped)
