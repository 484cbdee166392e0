"""`fewshift train shrink`: the same kit in a smaller file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fewshift.cli.train_options import KitOption


def shrink(
    kit: KitOption,
    out: Annotated[Path, typer.Option(help="The kit to write.")],
    start_rank: Annotated[
        int | None,
        typer.Option(min=1, help="Keep so many directions of each domain's own starting values."),
    ] = None,
    half: Annotated[bool, typer.Option(help="Keep weights, roots and starting values in 16 bits.")] = True,
) -> None:
    """Write a kit in 16 bits, with starting values cut to a low rank: a third of the size, to ship it.

    Do it before train rates: rounded weights are another backbone, if only by a little. What other methods
    have in the kit stays as it is.

    Example: `fewshift train shrink --kit tsp.kit --start-rank 48 --out small.kit`
    """
    from dataclasses import replace

    import torch

    from fewshift.core.starts import DomainStarts, shortened
    from fewshift.errors import FewshiftError
    from fewshift.nets.bundled import find_kit
    from fewshift.nets.kit import save_kit

    _, loaded = find_kit(kit, "cpu")
    if start_rank is not None:
        if not isinstance(loaded.starts, DomainStarts):
            raise FewshiftError(f"--start-rank: {kit} has no starting values of full rank: leave it out")
        base = {**loaded.backbone.init(), **(loaded.starts.base or {})}
        loaded = replace(loaded, starts=shortened(loaded.starts, base, start_rank))
    kept = torch.float16 if half else None
    save_kit(loaded, out, weights_dtype=kept, roots_dtype=kept, starts_dtype=kept)
    typer.echo(f"wrote {out}: {out.stat().st_size / 1e6:.1f} MB", err=True)
