"""The options that several commands have, with one help text each, and what stands between their commas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fewshift.errors import FewshiftError

RecordsOption = Annotated[Path | None, typer.Option(help="A folder of converted domains.")]
SuiteOption = Annotated[
    str | None,
    typer.Option(help="A suite: a name (see `fewshift data list`), a .json file or package.module:function."),
]
NamesOption = Annotated[str | None, typer.Option(help="Names with commas. Default: all.")]
OnlyOption = Annotated[
    list[str] | None, typer.Option("--only", help="This domain only; may be given several times.")
]
RecordsArgument = Annotated[
    str, typer.Argument(help="A records folder, one domain of it, or `open` or `md`.")
]
FittedArgument = Annotated[Path, typer.Argument(help="A file that `fewshift fit` wrote.", metavar="FITTED")]
ProtocolOption = Annotated[str, typer.Option(help="varying, five-shot or one-shot.")]
TaskSeedOption = Annotated[int, typer.Option(help="Names the tasks: the same seed, the same tasks.")]
MethodOption = Annotated[str, typer.Option(help="tsp, tsa, gd, pa or ncc.")]
EngineOption = Annotated[str, typer.Option(help="auto, plain, folded, graph or last-map.")]
PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision",
        help="float32; tf32 or float16 on a GPU; bfloat16 on a CPU. auto: tf32 on a GPU, bfloat16 on a CPU "
        "that has instructions for it.",
    ),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
ToFileOption = Annotated[Path | None, typer.Option(help="Write to this file, not to the terminal.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no bars.")]


def words(text: str | None) -> list[str]:
    """Words between commas, each once."""
    return list(dict.fromkeys(word.strip() for word in (text or "").split(",") if word.strip()))


def counts(text: str, option: str) -> list[int]:
    """Whole numbers from 1 up between commas, each once."""
    found = words(text)
    if not found or not all(word.isdecimal() and int(word) > 0 for word in found):
        raise FewshiftError(f"{option} is {text!r}: give whole numbers from 1 up with commas, such as 5,25")
    return [int(word) for word in found]
