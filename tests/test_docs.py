"""The documents: links lead somewhere, commands parse, tables are the code's, the site asks nobody."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs_text import PAGES, ROOT, anchors, command_lines, mentioned_commands, parse_command

from fewshift.methods import ABOUT


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_anchors_lead_to_headings(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        if "://" not in target:
            there = page.parent / target if target else page
            assert anchor in anchors(there.read_text()), f"{page.name}: {target} has no heading #{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_line_parses(page: Path) -> None:
    for line in command_lines(page.read_text()):
        fault = parse_command(line)
        assert fault is None, f"{page.name}: {line}: {fault}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_named_in_passing_exists(page: Path) -> None:
    for words in mentioned_commands(page.read_text()):
        fault = parse_command(words, whole=False)
        assert fault is None, f"{page.name}: {words}: {fault}"


def test_the_parser_finds_faults() -> None:
    assert sum(len(command_lines(page.read_text())) for page in PAGES) > 40
    assert parse_command("fewshift fit support/ -o x.fewshift") is None
    assert parse_command("fewshift fit support/") is not None
    assert parse_command("fewshift fit", whole=False) is None
    for wrong in (
        "fewshift fti support/ -o x",
        "fewshift fit support/ -o x --fast",
        "fewshift train nothing",
    ):
        assert parse_command(wrong) is not None
        assert parse_command(wrong, whole=False) is not None


def test_the_functions_of_the_equation_table_exist() -> None:
    """Every name in backticks beside a link to a module is defined in that module."""
    checked = 0
    for page in (ROOT / "README.md", ROOT / "docs" / "equations.md"):
        for link, names in re.findall(
            r"\]\((?:\.\./)?(src/fewshift/[\w/]+\.py)\): ((?:`[\w.]+`(?:, )?)+)", page.read_text()
        ):
            source = (ROOT / link).read_text()
            for name in re.findall(r"`(\w+)", names):
                assert re.search(rf"^(def|class) {name}\b|^{name}\b", source, re.M), (
                    f"{page.name}: {link} has no {name}"
                )
                checked += 1
    assert checked > 20


def test_the_table_of_methods_is_that_of_the_command() -> None:
    page = (ROOT / "docs" / "methods.md").read_text()
    for name, about in ABOUT.items():
        oracle = "yes" if about.oracle else "no"
        row = (
            f"| `{name}` | {about.title} | {about.moves} | {about.needs} | {about.cost} | {oracle} "
            f"| {about.fidelity} |"
        )
        assert row in page, f"docs/methods.md should have the row\n{row}"
    rows = re.findall(r"^\| `(\w+)` \|", page.split("## Every method")[1], re.M)
    assert rows == list(ABOUT)


def build_site(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def test_a_wrong_link_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[nowhere](nothing.md)")
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    (tmp_path / "mkdocs.yml").write_text((ROOT / "mkdocs.yml").read_text().split("\nnav:")[0])
    built = build_site(tmp_path, tmp_path / "site")
    assert built.returncode == 1
    assert "nothing.md" in built.stderr
    assert "Aborted with 1 warnings" in built.stdout + built.stderr


def test_the_site_is_built_strictly_and_asks_for_nothing_outside(tmp_path: Path) -> None:
    built = build_site(ROOT, tmp_path / "site")
    assert built.returncode == 0, built.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 14
    # what a browser loads by itself: not the links that a reader may follow
    loads = re.compile(
        r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?(?:https?:)?//"""
        r"""|<link\b[^>]*\bhref=["']?(?:https?:)?//|url\(["']?(?:https?:)?//|@import ["']?https?:"""
    )
    for page in [*pages, *sorted((tmp_path / "site").rglob("*.css"))]:
        found = loads.search(page.read_text())
        assert found is None, f"{page.relative_to(tmp_path)} loads {found and found[0]}"
    assert (tmp_path / "site" / "search" / "search_index.json").exists()
