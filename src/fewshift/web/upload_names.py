"""File names inside an upload made harmless, and no two uploads' alike, while it streams by.

Gradio stores an upload in a folder for its content, under the name the browser gave it. Names are rewritten
here to letters, digits, dots, hyphens and underscores, behind a mark of the request: else two people who drop
the same file would share one, and who forgets it first would take it from the other.
"""

from __future__ import annotations

import re
import secrets

MOST_HEADER = 16_384  # bytes of one part's header
_UNSAFE = re.compile(rb"[^A-Za-z0-9._-]")
_NAME = re.compile(rb'(filename)([^=\r\n]*)(=\s*)("(?:[^"\\\r\n]|\\.)*"|[^;\r\n]*)', re.IGNORECASE)


class HarmlessNames:
    """Takes the pieces of a multipart body in turn and gives them back with harmless file names."""

    def __init__(self, boundary: bytes, mark: bytes) -> None:
        self.opening, self.mark = b"--" + boundary, mark
        self.waiting = b""

    def take(self, piece: bytes, last: bool) -> bytes:
        """What can be passed on now; `last` passes on the rest."""
        self.waiting += piece
        out = []
        while True:
            start = self.waiting.find(self.opening)
            if start < 0:
                break
            end = self.waiting.find(b"\r\n\r\n", start)
            if end < 0:
                if len(self.waiting) - start > MOST_HEADER:
                    raise ValueError("the header of an uploaded part is too long")
                out.append(self.waiting[:start])
                self.waiting = self.waiting[start:]
                break
            out.append(
                self.waiting[:start] + harmless_header(self.waiting[start:end], self.mark) + b"\r\n\r\n"
            )
            self.waiting = self.waiting[end + 4 :]
        cut = len(self.waiting) if last else len(self.waiting) - self._kept()
        out.append(self.waiting[:cut])
        self.waiting = self.waiting[cut:]
        return b"".join(out)

    def _kept(self) -> int:
        """Bytes that may be the beginning of a boundary, or a header whose end has not come."""
        if self.waiting.startswith(self.opening):
            return len(self.waiting)
        return min(len(self.waiting), len(self.opening) - 1)


def harmless_header(header: bytes, mark: bytes) -> bytes:
    """The same header with every file name in it made harmless, byte for byte, behind the mark."""

    def harmless(found: re.Match[bytes]) -> bytes:
        name, extended, equals, value = found.groups()
        quote = b'"' if value.startswith(b'"') and len(value) >= 2 else b""
        value = _UNSAFE.sub(b"_", value[1:-1] if quote else value)
        return bytes(name + b"_" * len(extended) + equals + quote + mark + value + quote)

    return _NAME.sub(harmless, header)


def new_mark() -> bytes:
    """What the names of one request's files begin with."""
    return f"{secrets.token_hex(8)}-".encode()


def without_mark(name: str) -> str:
    """The name as the browser gave it, but for what was not harmless."""
    return re.sub("^[0-9a-f]{16}-", "", name)


def boundary_of(content_type: bytes) -> bytes | None:
    """The boundary that a multipart content type names."""
    found = re.search(rb'boundary="?([^";,\s]+)', content_type, re.IGNORECASE)
    return found[1] if content_type.lower().startswith(b"multipart/") and found else None
