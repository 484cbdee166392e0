"""From words on the command line to domains, methods, kits and devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import cast

import torch

from fewshift.cli.options import words
from fewshift.data.domain import Domain
from fewshift.data.folder import folder_domain
from fewshift.data.pixels import PROTOCOL_84, PROTOCOL_84_ROUNDED, PixelRule
from fewshift.data.protocol import STANDARDS, Protocol
from fewshift.data.suite_cache import from_cache, with_exact_caches
from fewshift.data.suites import imported, open_folder, open_suite
from fewshift.errors import FewshiftError
from fewshift.methods import ABOUT, METHODS, Builder
from fewshift.nets.adapters import LAST
from fewshift.nets.device import device_named
from fewshift.nets.engine import Engine
from fewshift.nets.feature_kit import with_sites
from fewshift.nets.kit import Kit
from fewshift.nets.last_map import why_not_last_only
from fewshift.progress import Track
from fewshift.types import SPLITS, Method, Split


def split_named(name: str) -> Split:
    """A split by its name."""
    if name not in SPLITS:
        raise FewshiftError(f"--split is {name!r}: choose one of {', '.join(SPLITS)}")
    return name


def protocol_named(name: str) -> Protocol:
    """A standard protocol by its name."""
    if name not in STANDARDS:
        raise FewshiftError(f"--protocol is {name!r}: choose one of {', '.join(STANDARDS)}")
    return STANDARDS[name]


def named_methods(text: str) -> dict[str, Builder]:
    """Builders by name, or as package.module:function for a user's own method; "all" is every known one."""
    chosen = words(text)
    if not chosen:
        raise FewshiftError(f"--methods names none: choose among {', '.join(METHODS)}, or all")
    named = [name for word in chosen for name in (METHODS if word == "all" else [word])]
    return {name: _builder(name) for name in named}


BY_CERTAINTY = "pa"  # of the methods that any kit's features are enough for, the one with rates


def for_features(kit: Kit, methods: str, oracle: bool) -> Kit:
    """The kit with nothing but its last map to move, which is all that some methods ask of any kit."""
    more = why_not_last_only(kit.backbone)
    if more is None:
        return kit
    free = [name for name, about in ABOUT.items() if about.features_only]
    if not set(words(methods)) <= set(free):
        raise FewshiftError(
            f"--features needs a kit whose last map alone moves, but {more}: leave --features out, or "
            f"evaluate methods that move nothing there ({', '.join(free)})"
        )
    if not oracle and kit.classifier is not None and BY_CERTAINTY in words(methods):
        raise FewshiftError(
            f"--no-oracle: rates of {BY_CERTAINTY} follow what the kit's classifier says of images, which "
            "--features has not: leave one of the two out"
        )
    return replace(with_sites(kit, LAST), domains=kit.domains)


def build_methods(
    text: str, kit: Kit, engine: Engine, oracle: bool, say: Callable[[str], None]
) -> list[Method]:
    """The methods named; of "all" those that this kit can build; of others the reason is said once."""
    asked_for = set(words(text))

    def tried(name: str, build: Builder) -> Method | None:
        try:
            method = build(kit, engine, oracle)
        except FewshiftError as problem:
            if name in asked_for:
                raise
            say(f"left out {name}: {problem}")
            return None
        if not (hasattr(method, "name") and hasattr(method, "adapt")):
            raise FewshiftError(
                f"--methods {name} made a {type(method).__name__}, which is no method: return something "
                "with `name` and `adapt`"
            )
        return method

    built = [tried(name, build) for name, build in named_methods(text).items()]
    return [method for method in built if method is not None]


def _builder(name: str) -> Builder:
    if ":" not in name:
        if name not in METHODS:
            raise FewshiftError(
                f"there is no method {name!r}: choose among {', '.join(METHODS)}, or give your own as "
                "package.module:build"
            )
        return METHODS[name]
    build = imported(name, "--methods")
    try:
        signature(build).bind(None, None, True)
    except TypeError:
        raise FewshiftError(
            f"--methods {name} cannot be called as build(kit, engine, oracle): give a function that can"
        ) from None
    except ValueError:  # one that cannot say what it takes
        pass
    return cast(Builder, build)


def choose_device(name: str) -> torch.device:
    """The device of this name; for "auto" a GPU where there is one."""
    return device_named(name, f"--device {name}", "--device cpu")


def open_domains(
    records: Path | None,
    folder: Path | None,
    suite: str | None,
    names: list[str],
    split: Split | None,
    track: Track,
    options: str = "--records and --suite",
) -> list[Domain]:
    """The domains asked for; without names, all that have classes in the split, or all there are.

    `options` are those that the command has for it.
    """
    if sum(source is not None for source in (records, folder, suite)) != 1:
        raise FewshiftError(f"say where the images are by one of {options}")
    if records is not None:
        found = list(with_exact_caches(open_folder(records, names or None, track=track).domains))
    elif folder is not None:
        found = [folder_domain(folder)]
    else:
        found = list(open_suite(cast(str, suite), names or None, track=track))
    missing = [name for name in names if name not in {d.name for d in found}]
    if missing:
        raise FewshiftError(
            f"there is no domain {missing[0]!r} here, only {', '.join(d.name for d in found)}"
        )
    if names:
        chosen = [d for d in found if d.name in names]
    else:
        chosen = [d for d in found if split is None or len(d.spec.splits[split]) > 0]
    if not chosen:
        raise FewshiftError(f"no domain has classes in the {split} split: choose another --split")
    return chosen


def with_caches(
    domains: list[Domain], rule: PixelRule, allow_rounded: bool
) -> tuple[list[Domain], PixelRule]:
    """Domains read from their pixel caches where tasks stay the same, and the rule they are read by.

    A cache of pictures larger than 84 pixels keeps whole grey levels. Where that is allowed and the kit wants
    the protocol's pixels, all domains are read by the rounded rule: one file of results has one rule.
    """
    exact = list(with_exact_caches(domains))
    if not allow_rounded or rule not in (PROTOCOL_84, PROTOCOL_84_ROUNDED):
        return exact, rule
    found = [from_cache(domain, "rounded") or domain for domain in exact]
    return found, PROTOCOL_84_ROUNDED if found != exact else rule
