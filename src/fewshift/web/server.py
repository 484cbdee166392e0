"""Serving the page on this machine: no outside request, and nothing of an upload left behind."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fewshift.errors import FewshiftError, MissingExtra
from fewshift.estimator.kits import Opened
from fewshift.web.limits import LIMITS
from fewshift.web.style import STYLE

FOLDERS = "fewshift-web-"  # then the number of the process that uses the folder

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]", "::1")

# gradio reads these when it is imported
QUIET = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}


@dataclass(frozen=True)
class Address:
    """Where the page is."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """What a browser on this machine opens."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@contextmanager
def serving(opened: Opened, address: Address) -> Iterator[str]:
    """The page is up inside the block; its uploads are removed at the end of it. Yields its address."""
    _sweep()
    with tempfile.TemporaryDirectory(prefix=f"{FOLDERS}{os.getpid()}-") as name:
        os.environ.update(QUIET, GRADIO_TEMP_DIR=name)
        _check_gradio()
        _check_free(address)
        import gradio as gr
        from starlette.middleware import Middleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware

        from fewshift.web.guard import Guard
        from fewshift.web.page import build_page

        guards = [Middleware(Guard)]
        if address.is_loopback:  # no other site may pass for this machine in a person's browser
            guards.insert(0, Middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK_NAMES, address.host]))

        page = build_page(opened, Path(name))
        page.queue(max_size=8, default_concurrency_limit=1, api_open=False)
        page.launch(
            server_name=f"[{address.host}]" if ":" in address.host else address.host,
            server_port=address.port,
            share=False,
            inbrowser=False,
            prevent_thread_lock=True,
            quiet=True,
            show_error=False,
            footer_links=[],
            enable_monitoring=False,
            ssr_mode=False,
            pwa=False,
            mcp_server=False,
            max_file_size=LIMITS.file_bytes,
            state_session_capacity=20,
            app_kwargs={"middleware": guards},
            css=STYLE,
            theme=gr.themes.Default(
                primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["monospace"]
            ),
        )
        try:
            yield address.url
        finally:
            page.close(verbose=False)


def _sweep() -> None:
    """Remove what pages left that were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDERS}*"):
        number = folder.name.removeprefix(FOLDERS).partition("-")[0]
        if number.isdecimal() and not folder.is_symlink() and not _runs(int(number)):
            shutil.rmtree(folder, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another person's
        return True
    return True


def _check_gradio() -> None:
    try:
        from gradio import Blocks  # noqa: F401  (what a removed gradio leaves of its folder can be imported)
    except ImportError:
        raise MissingExtra("gradio", "web") from None


def _check_free(address: Address) -> None:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
    except (OSError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise FewshiftError(
            f"{address.host} port {address.port} cannot be used ({reason}): give another --host or --port"
        ) from None
