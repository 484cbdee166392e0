"""The documents: every relative link leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


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
