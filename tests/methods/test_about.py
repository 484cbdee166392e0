"""Every method says what it is."""

import inspect
import re
import sys

import pytest

from fewshift.methods import ABOUT, METHODS


def test_every_method_is_described() -> None:
    assert list(ABOUT) == list(METHODS)


@pytest.mark.parametrize("name", ABOUT)
def test_in_words_that_fit_a_table(name: str) -> None:
    about = ABOUT[name]
    for text in (about.title, about.source, about.moves, about.needs, about.cost):
        assert text
        assert text == text.strip()
        assert "\n" not in text
    needs_training = about.needs != "a backbone"
    assert needs_training == bool(about.trained_by), "what a kit must hold has a command that puts it there"
    assert all(part.strip().startswith("fewshift ") for part in about.trained_by.split(", ") if part)


def test_no_two_have_one_title() -> None:
    titles = [about.title for about in ABOUT.values()]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("name", ABOUT)
def test_the_grade_is_that_of_the_least_sure_fact_its_file_tells(name: str) -> None:
    told = inspect.getdoc(sys.modules[METHODS[name].__module__]) or ""  # type: ignore[attr-defined]
    if re.search(r"\b(Ours|Our own|Inferred)\b", told):
        assert ABOUT[name].fidelity in ("inferred", "our own")


@pytest.mark.parametrize("name", [name for name in ABOUT if name.endswith(("_tuned", "_steady"))])
def test_rates_chosen_here_are_our_own_and_a_need(name: str) -> None:
    assert ABOUT[name].fidelity == "our own"
    assert ABOUT[name].needs.endswith("rates chosen on validation tasks")
