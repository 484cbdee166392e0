"""The command line. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping


def main() -> None:
    """Run the command line; an early Ctrl-C, while it is still being imported, is heard as any other."""
    wait_politely(os.environ)
    try:
        from fewshift.cli.app import main as run
    except KeyboardInterrupt:
        print("fewshift: interrupted", file=sys.stderr)
        sys.exit(130)
    run()


def wait_politely(environment: MutableMapping[str, str]) -> None:
    """Let OpenMP's threads sleep sooner while they wait for each other; to be called before torch is loaded.

    They spin for milliseconds by default. Where another process has a core, each of the thousands of small
    steps of a task then waits for the scheduler, and a task takes thirty times as long. Alone none is slower.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "1000")
