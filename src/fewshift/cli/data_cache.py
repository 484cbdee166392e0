"""`fewshift data cache`: keep decoded pixels, so that tasks are read without decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fewshift.cli.options import OnlyOption, QuietOption, RecordsArgument


def cache(
    folder: RecordsArgument,
    to: Annotated[
        Path | None,
        typer.Option(help="Where the caches go, one folder a domain. Default: your cache folder."),
    ] = None,
    only: OnlyOption = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every byte of the finished caches.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Decode every image once into a memory-mapped 8-bit cache of at most 84 x 84 pixels.

    Images that are not larger keep their pixels, so tasks stay the same to the last bit, and suites are read
    from the cache by themselves. Larger ones are resized and rounded: such a cache is used only when a
    command is told so by --cache. An interrupted run goes on where it stopped.

    Example: `fewshift data cache open`, `fewshift data cache ~/records --only cu_birds`
    """
    from fewshift.cli.console import bars
    from fewshift.cli.data_inspect import records_root
    from fewshift.data.cache import read_info, verify_cache
    from fewshift.data.records import RecordSource
    from fewshift.data.records_folder import open_records
    from fewshift.data.spec_json import SPEC_FILE
    from fewshift.data.suite_cache import caches_of, keep_pixels

    root, track = records_root(folder), bars(quiet)
    above = root.resolve().parent if (root / SPEC_FILE).exists() else root
    caches = to or caches_of(above)
    for domain in open_records(root, only or None, track=track):
        assert isinstance(domain.source, RecordSource)
        target = caches / domain.source.folder.resolve().name
        made = keep_pixels(domain, target, track)
        info = verify_cache(target, domain, track=track) if verify else read_info(target)
        state = "made" if made else "here already"
        exact = f"{info.rounded:,} rounded" if info.rounded else "exact"
        typer.echo(f"{domain.name}: {state}, {info.images:,} images, {info.size / 1e6:.1f} MB, {exact}")
    typer.echo(f"Caches: {caches}")
