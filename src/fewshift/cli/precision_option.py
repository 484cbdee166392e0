"""The option --precision of commands whose "auto" is the careful one on a GPU."""

from __future__ import annotations

from typing import Annotated

import typer

PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision",
        help="float32; tf32 or float16 on a GPU; bfloat16 on a CPU. auto: tf32 on a GPU, bfloat16 on a CPU "
        "that has instructions for it.",
    ),
]
