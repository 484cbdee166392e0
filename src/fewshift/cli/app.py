"""The `fewshift` command: one sub-command per file in this folder."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from fewshift import __version__
from fewshift.cli.bench import bench
from fewshift.cli.console import print_any_text
from fewshift.cli.data_cache import cache
from fewshift.cli.data_convert import convert
from fewshift.cli.data_fetch import fetch
from fewshift.cli.data_inspect import inspect
from fewshift.cli.data_list import list_suites
from fewshift.cli.demo import demo
from fewshift.cli.doctor import doctor
from fewshift.cli.evaluate import evaluate
from fewshift.cli.export import export
from fewshift.cli.fit import fit
from fewshift.cli.methods import methods
from fewshift.cli.predict import predict
from fewshift.cli.report import report
from fewshift.cli.reproduce import reproduce
from fewshift.cli.spectrum import spectrum
from fewshift.cli.train import train
from fewshift.cli.web import web
from fewshift.errors import FewshiftError

NO_ROOM = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))


class ReaderLeft(Exception):
    """The reader of the output has closed the pipe."""


class Commands(TyperGroup):
    """typer would answer these two itself, without a word or with a failure; so they reach `main`."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None
        except BrokenPipeError:
            raise ReaderLeft from None


app = typer.Typer(
    name="fewshift",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Cross-domain few-shot image classification: a frozen backbone, a few labelled images, a result.\n\n"
    "A kit, which most commands take, is one file: a backbone and all that was learned for it.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fewshift {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print it and stop."
    ),
) -> None:
    pass


data = typer.Typer(
    no_args_is_help=True,
    help="Suites and their domains: what there is, fetch it, check it, convert your own.",
)
data.command("list")(list_suites)
data.command()(fetch)
data.command()(inspect)
data.command()(convert)
data.command()(cache)

OWN, RESEARCH, MACHINE = "Your own images", "Research", "First look, this machine"
PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    OWN: (fit, predict, export, web),
    RESEARCH: (evaluate, report, methods, spectrum, reproduce),
    MACHINE: (demo, doctor),
}
for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(data, name="data", rich_help_panel=RESEARCH)
app.add_typer(train, name="train", rich_help_panel=RESEARCH)
app.add_typer(bench, name="bench", rich_help_panel=MACHINE)


def main() -> None:
    """Run the command line: 0 done, 1 a check found something, 2 bad input, 130 interrupted."""
    print_any_text()
    try:
        code = app(standalone_mode=False)  # that of typer.Exit comes back as a value
        sys.stdout.flush()  # while a reader's absence can still be answered
        sys.exit(code)
    except (KeyboardInterrupt, typer.Abort):
        print("fewshift: interrupted", file=sys.stderr)
        sys.exit(130)
    except (BrokenPipeError, ReaderLeft):
        _print_no_more()
        sys.exit(0)
    except Exception as problem:
        if hasattr(problem, "show"):  # a wrong option: the class of these errors moved between versions
            problem.show()
        elif sentence := _sentence(problem):
            print(f"fewshift: {sentence}", file=sys.stderr)
        else:
            raise
        sys.exit(2)


def _sentence(problem: Exception) -> str | None:
    """What went wrong and the way out; None for a fault of our own."""
    if isinstance(problem, FewshiftError):
        return str(problem)
    if isinstance(problem, OSError) and problem.filename is not None:
        why = f"{problem.filename}: {problem.strerror}"
        return f"{why}: look for its name, room and rights, or give another place"
    if isinstance(problem, OSError) and problem.errno in NO_ROOM:
        _print_no_more()
        what = f"what is printed, or a temporary file, cannot be written ({problem.strerror})"
        return f"{what}: make room, or send it elsewhere"
    torch = sys.modules.get("torch")  # who has not imported it has filled no GPU
    if torch is not None and isinstance(problem, torch.OutOfMemoryError):
        return (
            "the GPU's memory is full: end other programs on it, or give --device cpu; what was being "
            "trained or evaluated goes on with the same command (train: --resume)"
        )
    return None


def _print_no_more() -> None:
    """What is still to be flushed goes nowhere, without a complaint."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
