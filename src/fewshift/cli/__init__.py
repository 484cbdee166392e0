"""The command line. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

from fewshift.cli.app import main

__all__ = ["main"]
