"""What the server changes or refuses before gradio sees it.

Gradio fetches a file from the web when a request names an address in place of an upload. Here a server asks
nothing of anybody, so such a request is refused. Names of uploaded files are made harmless on the way in.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fewshift.web.limits import LIMITS
from fewshift.web.upload_names import HarmlessNames, boundary_of, new_mark

MOST_BYTES = 2_000_000  # of a request that is no upload
UPLOAD = "/upload"  # where gradio takes files


class Guard:
    """Lets files in through the upload alone, and no name of theirs into a path."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        kinds = _values(scope, b"content-type")
        boundary = boundary_of(kinds[0]) if kinds else None
        if len(kinds) > 1:  # of which gradio may read another than is read here
            await PlainTextResponse("the request has two content types", 400)(scope, receive, send)
        elif boundary is None or not scope["path"].endswith(UPLOAD):
            await self._checked(scope, receive, send)
        elif (size := _size(scope)) is None:
            await PlainTextResponse("the upload does not say how large it is", 411)(scope, receive, send)
        elif size > LIMITS.upload_bytes:
            await PlainTextResponse("the upload is too large", 413)(scope, receive, send)
        else:
            await self.app(scope, _renamed(HarmlessNames(boundary, new_mark()), receive), send)

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more and len(body) <= MOST_BYTES:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if len(body) > MOST_BYTES:
            await PlainTextResponse("the request is too large", 413)(scope, receive, send)
        elif _names_an_address(body):
            await PlainTextResponse("images must be uploaded", 403)(scope, receive, send)
        else:
            await self.app(scope, _again(body, receive), send)


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key.lower() == name]


def _size(scope: Scope) -> int | None:
    lengths = _values(scope, b"content-length")
    return int(lengths[0]) if len(lengths) == 1 and lengths[0].isdigit() else None


def _renamed(names: HarmlessNames, receive: Receive) -> Receive:
    async def read() -> Message:
        message = await receive()
        if message["type"] != "http.request":
            return message
        more = message.get("more_body", False)
        return {**message, "body": names.take(message.get("body", b""), last=not more)}

    return read


def _again(body: bytes, receive: Receive) -> Receive:
    """The body that was read, then what follows."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return waiting.pop() if waiting else await receive()

    return read


def _names_an_address(body: bytes) -> bool:
    try:
        return _has_address(json.loads(body))
    except (ValueError, RecursionError):
        return False  # not JSON: gradio will not understand it either


def _has_address(value: Any) -> bool:
    if isinstance(value, dict):
        path = value.get("path")
        named = isinstance(path, str) and "://" in path
        return named or any(_has_address(inner) for inner in value.values())
    return isinstance(value, list) and any(_has_address(inner) for inner in value)
