"""The options that the train commands of further methods have in common, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options these commands have; `changes` are those that replace a setting of the preset."""

    kit: str
    out: Path
    records: Path | None
    suite: str | None
    domains: str | None
    preset: str
    device: str
    save_every: int | None
    resume: bool
    exact: bool
    quiet: bool
    changes: Mapping[str, Any]
    support_cap: int | None = None

    @property
    def quick(self) -> bool:
        """Is it the small preset?"""
        return self.preset == "quick"
