"""The command line. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; an early Ctrl-C, while it is still being imported, is heard as any other."""
    try:
        from fewshift.cli.app import main as run
    except KeyboardInterrupt:
        print("fewshift: interrupted", file=sys.stderr)
        sys.exit(130)
    run()
