"""What the documents show: pages, code blocks, command lines, and the command line's own word on them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import typer

from fewshift.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("*.md", "docs/**/*.md", "benchmarks/*.md", "src/fewshift/kits/*.md")
PAGES = sorted(page for place in PLACES for page in ROOT.glob(place))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_COMMAND: Any = typer.main.get_command(app)


def code_blocks(text: str, language: str) -> list[str]:
    """The blocks of this language, in order; "" is a block that names none."""
    return [body for named, body in BLOCK.findall(text) if named == language]


def anchors(text: str) -> set[str]:
    """The headings as a link names them, on the site and on a code host."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading).strip().lower() for heading in headings]
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading)) for heading in plain}


def command_lines(text: str) -> list[str]:
    """Every line of a block that runs `fewshift`, without prompt, comment, pipes and redirections."""
    blocks = [body for language in ("", "console", "bash", "sh") for body in code_blocks(text, language)]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    parts = [part.strip() for line in lines for part in line.removeprefix("$ ").split(" | ")]
    return [re.split(r"\s+[#>]", part)[0] for part in parts if part.startswith("fewshift ")]


def mentioned_commands(text: str) -> list[str]:
    """Commands inside a sentence, which may leave out what they need."""
    return re.findall(r"`(fewshift [^`\n]+)`", BLOCK.sub("", text))


def parse_command(line: str, whole: bool = True) -> str | None:
    """What the command line says is wrong with these words, or None; nothing is run.

    Unless `whole`, arguments and options may be missing, and capitals or … may stand for a command.
    """
    words = shlex.split(line)[1:]
    command, context = _COMMAND, None
    try:
        while hasattr(command, "commands"):
            context = command.make_context("fewshift", words[:0], parent=context, resilient_parsing=True)
            if not words or (not whole and re.fullmatch(r"[A-Z]+|…", words[0])):
                return "a command is missing" if whole else None
            if words[0].startswith("-"):
                known = {name for option in command.params for name in option.opts} | {"--help"}
                return None if words[0] in known else f"there is no option {words[0]}"
            name, words = words[0], words[1:]
            if name not in command.commands:
                return f"there is no command {name}"
            command = command.commands[name]
        if "--help" in words:
            return None
        words = [word for word in words if word != "…"] if not whole else words
        command.make_context(command.name, words, parent=context)
    except Exception as problem:  # the class of usage errors moved between versions of typer
        if not hasattr(problem, "format_message"):
            raise
        missing = type(problem).__name__ in ("MissingParameter", "NoArgsIsHelpError")
        return None if missing and not whole else problem.format_message()
    return None
