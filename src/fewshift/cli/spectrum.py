"""`fewshift spectrum`: what a kit's preconditioners look like."""

from __future__ import annotations

from typing import Annotated

import typer

from fewshift.cli.options import ToFileOption


def spectrum(
    kit: Annotated[str, typer.Argument(help="A kit with preconditioners: a file, or a bundled kit's name.")],
    out: ToFileOption = None,
) -> None:
    """Print, for each site and domain, the effective rank of P − I (of P for designs without the identity).

    Below them: the share of matrices that are not positive definite, and the largest eigenvalue.

    Example: `fewshift spectrum runs/tsp.kit`
    """
    import torch

    from fewshift.cli.outputs import keep_input, write_text
    from fewshift.errors import FewshiftError
    from fewshift.nets.bundled import find_kit, kit_path
    from fewshift.presets.spectra import spectrum_table

    keep_input(out, "--out", kit_path(kit), "kit", "spectrum.md")
    _, loaded = find_kit(kit, torch.device("cpu"))
    if loaded.preconditioners is None:
        raise FewshiftError(f"{kit} has no preconditioners: run fewshift train preconditioners")
    text = spectrum_table(loaded.preconditioners)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_text(out, text, "--out")
    typer.echo(f"wrote {out}", err=True)
