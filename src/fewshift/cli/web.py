"""`fewshift web`: a page in the browser for own images."""

from __future__ import annotations

from typing import Annotated

import typer

from fewshift.cli.options import DeviceOption


def web(
    host: Annotated[str, typer.Option(help="The address to listen on; the default is this machine only.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="The port to listen on.", min=1, max=65535)] = 7860,
    kit: Annotated[
        str | None, typer.Option(help="A kit's file or name. Not given: the best of those installed.")
    ] = None,
    device: DeviceOption = "auto",
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Serve a page where images are dragged into classes, adapted to, and tried out.

    It shows predictions with probabilities, the weights of the training domains, the loss and what each step
    changed, and offers the fitted file, which `fewshift predict` and `fewshift.load` read. Nothing is
    requested from outside; uploads are removed within an hour or when the page is stopped (Ctrl-C).

    Example: `fewshift web`

    Example: `fewshift web --kit runs/tsp.kit --port 8000 --no-browser`
    """
    import signal
    import threading
    import webbrowser
    from contextlib import suppress

    from fewshift.estimator.kits import open_kit
    from fewshift.web.server import Address, serving

    address = Address(host, port)
    if not address.is_loopback:
        typer.echo(
            f"warning: {host} can be reached from other machines: anybody there can upload images and use "
            "this machine's processor; there is no password",
            err=True,
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stopped either way, uploads are removed
    opened = open_kit(kit, device, "auto", quiet=False)
    with serving(opened, address) as url:
        typer.echo(f"the page is at {url} (kit {opened.name}); Ctrl-C stops it", err=True)
        if browser:
            webbrowser.open(url)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    typer.echo("stopped; uploads are removed", err=True)
