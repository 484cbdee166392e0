"""`fewshift demo`: the whole story on the default suite."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fewshift.cli.options import QuietOption


def demo(
    suite: Annotated[
        str | None,
        typer.Option(help="`open` or `drawn`. Not given: open, or drawn where it cannot be fetched."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for the kit, the results and the report.")] = Path(
        "runs/demo"
    ),
    tasks: Annotated[int, typer.Option(help="Test tasks a domain.", min=1)] = 8,
    seed: Annotated[int, typer.Option(help="Names the training run and the test tasks.")] = 0,
    quiet: QuietOption = False,
) -> None:
    """Data, a small backbone, preconditioners and classifier, then five methods on identical tasks.

    Takes some minutes on two CPU cores. Stop it whenever you like: the same command goes on where it was.

    Example: `fewshift demo`, `fewshift demo --suite drawn --tasks 5`
    """
    from fewshift.cli.console import bars
    from fewshift.cli.demo_steps import run

    run(suite, out, tasks, seed, bars(quiet))
