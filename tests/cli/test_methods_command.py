"""The list of methods on the command line."""

import json

from tiny_world import shell

from fewshift.methods import ABOUT


def run(*arguments: str) -> str:
    done = shell("methods", *arguments)
    assert done.code == 0, done.err
    return done.out


def test_the_table_has_every_method() -> None:
    table = run()
    for name in ABOUT:
        assert f"│{name} " in table
    assert "one forward" in table


def test_json_says_all_there_is() -> None:
    rows = {row.pop("name"): row for row in json.loads(run("--json"))}
    assert list(rows) == list(ABOUT)
    assert rows["tsp"]["oracle"] is True
    assert rows["ncc"]["needs"] == "a backbone"


def test_one_method_in_full() -> None:
    text = run("tsp", "ncc")
    assert text.index("Kang et al.") < text.index("Snell et al.")
    assert "fewshift train preconditioners, fewshift train classifier" in text
    assert "nothing: any kit will do" in text


def test_a_name_that_is_none_says_which_there_are() -> None:
    done = shell("methods", "tps")
    assert done.code == 2
    assert "there is no method 'tps': choose among ncc, " in done.err
