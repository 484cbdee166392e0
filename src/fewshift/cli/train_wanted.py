"""What a train command asks of the work behind it, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fewshift.cli.train_options import Run, Source


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options all these commands have; `changes` are those that replace a setting of the preset."""

    source: Source
    run: Run
    preset: str
    changes: Mapping[str, Any]
    domains: str | None = None
    support_cap: int | None = None

    @property
    def quick(self) -> bool:
        """Is it the small preset?"""
        return self.preset == "quick"


@dataclass(frozen=True, kw_only=True)
class MetaWanted(Wanted):
    """The same for meta-training of preconditioners, classifier and policy."""

    classes: str
    inner: Mapping[str, Any] = field(default_factory=dict)  # replaces settings of the inner level
    stream: bool | None = None  # None: where the images would fill the memory
    sites: str | None = None  # None: the kit's own
    train_images: int | None = None  # of a domain, at most
    vary: bool = False  # the images of training tasks
    strangers: int = 0  # made-up domains beside the real ones
    needs_images: tuple[str, ...] = ()  # options that were given and that tasks of features cannot keep
    precision: str = "tf32"  # of the inner steps
    validate_every: int | None = None  # updates, if not the preset's
    keep_last: bool = False  # the last state counts, not the best validated one
