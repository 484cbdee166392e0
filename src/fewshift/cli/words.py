"""Words between commas, as options take lists."""

from __future__ import annotations


def words(text: str | None) -> list[str]:
    """Words between commas, each once."""
    return list(dict.fromkeys(word.strip() for word in (text or "").split(",") if word.strip()))
