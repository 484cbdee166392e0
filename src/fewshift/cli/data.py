"""`fewshift data`: suites and domains, downloads, what a folder holds, conversion, the pixel cache."""

from __future__ import annotations

import typer

from fewshift.cli.data_cache import cache
from fewshift.cli.data_convert import convert
from fewshift.cli.data_fetch import fetch
from fewshift.cli.data_inspect import inspect
from fewshift.cli.data_list import list_suites

data = typer.Typer(
    no_args_is_help=True,
    help="Suites and their domains: what there is, fetch it, check it, convert your own.",
)
data.command("list")(list_suites)
data.command("fetch")(fetch)
data.command("inspect")(inspect)
data.command("convert")(convert)
data.command("cache")(cache)
