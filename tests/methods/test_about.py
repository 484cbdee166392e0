"""Every method says what it is."""

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
