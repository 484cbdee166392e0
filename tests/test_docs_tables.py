"""The tables of results are what `fewshift report` prints, from the lines that are kept beside them."""

import re
import shlex
from pathlib import Path

import pytest
from docs_text import PAGES, ROOT, command_lines
from typer.testing import CliRunner

from fewshift.cli.app import app

# a report fills its cells up with spaces; tables that are written by hand do not
TABLE = re.compile(r"^\| \w+ {2,}.*\n(?:\|.*\n)+", re.M)


def reports(page: Path) -> list[str]:
    """The page's commands that read kept lines."""
    lines = command_lines(page.read_text())
    return [line for line in lines if line.startswith("fewshift report docs/lines/")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if TABLE.search(page.read_text())], ids=lambda p: str(p.relative_to(ROOT))
)
def test_tables_are_what_their_commands_print(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    printed = ""
    for line in reports(page):
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, f"{line}: {done.output}"
        printed += done.stdout
    for table in TABLE.findall(page.read_text()):
        assert table in printed, f"{page.name}: no command of the page prints\n{table}"


def test_every_kept_file_is_named_by_a_page() -> None:
    text = "".join(page.read_text() for page in PAGES)
    for kept in (ROOT / "docs" / "lines").iterdir():
        assert f"lines/{kept.name}" in text, f"no page says what {kept.name} is"
