"""Rows in, tables out."""

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from fewshift.errors import DataError, FewshiftError
from fewshift.evaluation.board_tables import averaged
from fewshift.evaluation.boards import gather
from fewshift.evaluation.html import page
from fewshift.evaluation.report import Report, make_report
from fewshift.evaluation.scores import Read
from fewshift.evaluation.tables import escape_latex

MakeReads = Callable[..., list[Read]]

TABLE = {
    ("ncc", "birds"): [0.50, 0.60],
    ("tsa", "birds"): [0.60, 0.70],
    ("tsp", "birds"): [0.60, 0.80],
    ("ncc", "u_mnist"): [0.80, 0.80],
    ("tsa", "u_mnist"): [0.80, 0.90],
    ("tsp", "u_mnist"): [0.90, 1.00],
    ("ncc", "v_leaves"): [0.10, 0.10],
    ("tsa", "v_leaves"): [0.30, 0.30],
    ("tsp", "v_leaves"): [0.20, 0.20],
}


def cells(report: Report, kind: str) -> dict[tuple[str, str, str], tuple[float, float | None, int | None]]:
    """(group, row, column) -> mean, half-width, n, from the CSV face."""
    rows = list(csv.DictReader(io.StringIO(report.csv())))
    return {
        (r["group"], r["row"], r["column"]): (
            float(r["mean"]),
            float(r["half_width"]) if r["half_width"] else None,
            int(r["n"]) if r["n"] else None,
        )
        for r in rows
        if r["table"] == kind
    }


def test_means_averages_and_ranks_by_hand(make_reads: MakeReads) -> None:
    got = cells(make_report(make_reads(TABLE)), "accuracy")
    assert got["seen", "birds", "tsp"] == (70.0, pytest.approx(196 * 0.1 / 2**0.5, abs=1e-4), 2)
    mean, half, domains = got["average over domains", "all", "tsp"]
    assert mean == 82.5  # (70 + 95) / 2: valid_unseen is not in it
    assert domains == 2
    # half-widths 0.1·1.96/√2 and 0.05·1.96/√2 add in squares, over two domains
    assert half == pytest.approx(196 / 2**0.5 * (0.1**2 + 0.05**2) ** 0.5 / 2, abs=1e-4)
    assert got["average over domains", "unseen", "ncc"][:2] == (80.0, 0.0)
    assert got["average over domains", "valid_unseen", "tsa"][0] == 30.0
    ranks = {m: got["average rank", "competition", m][0] for m in ("ncc", "tsa", "tsp")}
    assert ranks == {"tsp": 1.0, "tsa": 2.0, "ncc": 3.0}


def test_who_lacks_a_domain_has_no_average_over_it(make_reads: MakeReads) -> None:
    partly = {key: value for key, value in TABLE.items() if key != ("tsp", "u_mnist")}
    assert partly != TABLE
    report = make_report(make_reads(partly))
    got = cells(report, "accuracy")
    assert got["average over domains", "seen", "tsp"][0] == 70.0
    assert ("average over domains", "all", "tsp") not in got
    assert ("average over domains", "all", "tsa") in got
    assert "lacks a domain" in report.markdown()
    ranks = {m: got["average rank", "competition", m] for m in ("ncc", "tsa", "tsp")}
    assert ranks == {"tsp": (1.0, None, 1), "tsa": (2.0, None, 1), "ncc": (3.0, None, 1)}  # on birds alone
    assert "ranks are over the 1 of 2 domains that all methods have" in report.markdown()
    assert "ranks are over" not in make_report(make_reads(TABLE)).markdown()
    said = report.markdown().split("### Difference to tsa")[1]
    assert "over the domains that both sides have: tsp without u_mnist" in said
    assert "both sides have" not in make_report(make_reads(TABLE)).markdown()
    short = make_report(make_reads(partly), ["tsa", "ncc"], summary=True).markdown()
    assert short.count("over the domains that both sides have: tsp without u_mnist") == 1


def test_paired_differences_by_hand(make_reads: MakeReads) -> None:
    report = make_report(make_reads(TABLE), ["tsa"])
    got = cells(report, "difference to tsa")
    assert got["seen", "birds", "tsp"] == (5.0, pytest.approx(196 * 0.05 / 2**0.5, abs=1e-4), 2)  # 0 and 10
    assert got["unseen", "u_mnist", "tsp"] == (10.0, pytest.approx(0.0, abs=1e-6), 2)
    assert got["average over domains", "all", "tsp"][0] == 7.5
    assert got["valid_unseen", "v_leaves", "ncc"][0] == -20.0
    assert ("seen", "birds", "tsa") not in got


def test_baselines_default_to_tsa_and_gd_and_unknown_ones_are_named(make_reads: MakeReads) -> None:
    reads = make_reads({**TABLE, ("gd", "birds"): [0.5, 0.5]})
    kinds = [t.kind for t in make_report(reads).sections[0].tables]
    assert kinds == ["accuracy", "difference to tsa", "difference to gd", "cost"]
    assert make_report(make_reads({("a", "birds"): [0.1]})).sections[0].tables[-1].kind == "cost"
    with pytest.raises(FewshiftError, match=r"no results of the baseline 'ta2'.*ncc, tsa, tsp"):
        make_report(make_reads(TABLE), ["ta2"])
    with pytest.raises(FewshiftError, match=r"no results of the baseline 'ta2'.*there are a"):
        make_report(make_reads({("a", "birds"): [0.1]}), ["ta2"])


def test_a_method_of_one_kit_can_be_asked_for_as_it_is_printed(make_reads: MakeReads) -> None:
    one = make_reads({("tsa", "birds"): [0.1, 0.3]}, kit="one", fingerprint="1")
    two = make_reads({("tsa", "birds"): [0.2, 0.5], ("ncc", "birds"): [0.1, 0.1]}, kit="two", fingerprint="2")
    (section,) = make_report([*one, *two], ["tsa @two°"], methods=["tsa@one"]).sections
    assert set(section.board.labels.values()) == {"tsa @one", "tsa @two"}
    assert [t.kind for t in section.tables] == ["accuracy", "difference to tsa @two", "cost"]
    kinds = [t.kind for t in make_report([*one, *two], ["tsa", "tsa @one"]).sections[0].tables]
    assert kinds == ["accuracy", "difference to tsa @one", "difference to tsa @two", "cost"]  # each once
    with pytest.raises(FewshiftError, match="'tsa @three'; there are ncc@two, tsa@one, tsa@two"):
        make_report([*one, *two], ["tsa @three"])


def test_of_two_kits_of_one_name_one_is_asked_for_as_tables_name_it(make_reads: MakeReads) -> None:
    one = make_reads({("tsa", "birds"): [0.5, 0.6], ("ncc", "birds"): [0.4, 0.4]}, oracle=True)
    two = make_reads({("tsa", "birds"): [0.7, 0.7]}, fingerprint="beef", oracle=True)
    heads = gather([*one, *two])[0].labels.values()
    assert set(heads) == {"tsa @small° (f00d)", "ncc° (f00d)", "tsa @small° (beef)"}
    for head in heads:
        (section,) = make_report([*one, *two], [head]).sections
        assert [t.kind for t in section.tables] == ["accuracy", f"difference to {head}", "cost"]
        assert len(make_report([*one, *two], methods=[head]).sections[0].board.contenders) == 1


def test_a_board_that_lacks_a_baseline_says_so_and_the_others_have_it(make_reads: MakeReads) -> None:
    other = make_reads({("ncc", "birds"): [0.4, 0.5], ("pa", "birds"): [0.5, 0.5]}, protocol="one-shot")
    sections = {s.title: s for s in make_report([*make_reads(TABLE), *other], ["tsa", "ncc"]).sections}
    (with_it,) = [s for title, s in sections.items() if "one-shot" not in title]
    (without,) = [s for title, s in sections.items() if "one-shot" in title]
    assert [t.kind for t in with_it.tables] == ["accuracy", "difference to tsa", "difference to ncc", "cost"]
    assert [t.kind for t in without.tables] == ["accuracy", "difference to ncc", "cost"]
    assert "no results of tsa here, so no differences to it" in without.warnings
    assert not any("no results of" in said for said in with_it.warnings)


def test_a_few_shared_tasks_are_said_to_be_few(make_reads: MakeReads) -> None:
    reads = make_reads({("a", "birds"): [0.1, 0.2] * 6, ("b", "birds"): [0.3, 0.4] * 6})
    parts = {"a": range(6), "b": range(5, 12)}  # of other shards, but for one task
    some = [read for read in reads if read.score.index in parts[read.score.method]]
    few = "1 task only: the intervals say next to nothing, give more --tasks"
    accuracy, differences, _ = make_report(some, ["a"]).sections[0].tables
    assert few not in accuracy.notes
    assert few in differences.notes
    assert few in make_report(some, ["a"], summary=True).sections[0].tables[0].notes
    assert few not in make_report(reads, ["a"]).sections[0].tables[1].notes


def test_a_few_tasks_are_said_to_be_few(make_reads: MakeReads) -> None:
    two = make_report(make_reads(TABLE), ["tsa"]).sections[0].tables[:2]
    assert all("2 tasks only: the intervals say next to nothing, give more --tasks" in t.notes for t in two)
    one = make_report(make_reads({("a", "birds"): [0.1]})).markdown()
    assert "1 task only" in one
    single = {("tsa", "birds"): [0.1], ("tsp", "birds"): [0.5]}
    assert "+40.0 ± 0.0" in make_report(make_reads(single)).markdown()
    assert "**+40.0" not in make_report(make_reads(single)).markdown(), "one task makes nothing clear"
    assert "1 task only" in make_report(make_reads(single), summary=True).markdown()
    many = make_report(make_reads({("a", "birds"): [0.1, 0.2, 0.3, 0.4, 0.5]})).markdown()
    assert "only" not in many


def test_markdown_marks_the_best_and_says_what_the_numbers_are(make_reads: MakeReads) -> None:
    reads = make_reads(TABLE, oracle=True)
    text = make_report(reads).markdown()
    (birds,) = (line for line in text.splitlines() if line.startswith("| birds ") and "55.0" in line)
    assert [cell.strip() for cell in birds.split("|")[2:-1]] == [
        "55.0 ± 6.9",
        "65.0 ± 6.9",
        "**70.0 ± 13.9**",
    ]
    assert re.search(r"\| domain +\| +ncc° \| +tsa° \| +tsp° \|", text)
    for word in (
        "protocol: varying",
        "pixels: protocol-84",
        "tasks: 2 a domain, seed 0",
        "kit: small (f00d)",
    ):
        assert word in text
    assert "seen/unseen oracle: used by ncc°, tsa°, tsp°" in text
    assert "° used the oracle" in text
    assert "used by no method" in make_report(make_reads(TABLE)).markdown()


def test_latex_escapes_and_rules(make_reads: MakeReads) -> None:
    text = make_report(make_reads(TABLE, oracle=True)).latex()
    assert r"u\_mnist & 80.0\,$\pm$\,0.0 & 85.0\,$\pm$\,6.9 & \textbf{95.0\,$\pm$\,6.9} \\" in text
    assert r"\multicolumn{4}{l}{\textit{valid\_unseen}} \\" in text
    assert r"tsp$^\circ$" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 3
    assert text.count("{") == text.count("}")


def test_every_latex_table_says_which_tasks_it_is_of(make_reads: MakeReads) -> None:
    reads = [*make_reads(TABLE), *make_reads(TABLE, protocol="one-shot")]
    report = make_report(reads)
    captions = [line for line in report.latex().splitlines() if line.startswith(r"\caption")]
    assert len(captions) == len(set(captions)) == 6
    for section in report.sections:
        assert sum(escape_latex(section.title) in caption for caption in captions) == 3


def test_averages_over_the_shots_of_a_curve_come_with_a_warning(make_reads: MakeReads) -> None:
    cells = {("ncc", "mine 1-shot"): [0.5, 0.6], ("ncc", "mine 2-shot"): [0.6, 0.7]}
    for protocol, warned in (("curve:way=3,query=10", True), ("one-shot", False)):
        (section,) = make_report(make_reads(cells, protocol=protocol)).sections
        assert any("too narrow" in warning for warning in section.warnings) == warned


def test_a_rank_is_no_percentage(make_reads: MakeReads) -> None:
    rows = csv.DictReader(io.StringIO(make_report(make_reads(TABLE)).csv()))
    assert {r["unit"] for r in rows if r["group"] == "average rank"} == {"rank"}


def test_one_method_needs_no_differences_and_no_ranks(make_reads: MakeReads) -> None:
    report = make_report(make_reads({("ncc", "birds"): [0.5, 0.7]}))
    assert [t.kind for t in report.sections[0].tables] == ["accuracy", "cost"]
    assert "rank" not in report.markdown()
    assert "**60.0" not in report.markdown()  # the best of one is no news


def test_oracle_and_no_oracle_are_two_columns(make_reads: MakeReads) -> None:
    with_oracle = make_reads({("tsp", "birds"): [0.5, 0.6]}, oracle=True)
    without = make_reads({("tsp", "birds"): [0.4, 0.5]}, oracle=False, revealed=False)
    (board,) = gather([*with_oracle, *without])
    assert sorted(board.labels.values()) == ["tsp", "tsp°"]


def test_kits_are_columns_when_there_are_several(make_reads: MakeReads) -> None:
    one = make_reads({("tsp", "birds"): [0.5, 0.6], ("ncc", "birds"): [0.5, 0.6]})
    two = make_reads({("tsp", "birds"): [0.6, 0.6]}, kit="other", fingerprint="beef")
    (board,) = gather([*one, *two])
    assert list(board.labels.values()) == ["tsp @small", "ncc", "tsp @other"]
    same_name = make_reads({("tsp", "birds"): [0.6, 0.6]}, fingerprint="beef")
    (board,) = gather([*one, *same_name])
    assert len(set(board.labels.values())) == 3


def test_other_tasks_are_another_section(make_reads: MakeReads) -> None:
    reads = [*make_reads(TABLE), *make_reads(TABLE, seed=1), *make_reads(TABLE, protocol="one-shot")]
    report = make_report(reads)
    assert [s.title for s in report.sections] == [
        "varying, test classes, seed 0, protocol-84",
        "varying, test classes, seed 1, protocol-84",
        "one-shot, test classes, seed 0, protocol-84",
    ]
    assert page(report).count("<section>") == 3


def test_contradictions_are_refused_with_both_places(make_reads: MakeReads) -> None:
    reads = make_reads({("ncc", "birds"): [0.5]})
    (again,) = make_reads({("ncc", "birds"): [0.5]})
    assert gather([*reads, again])[0].repeated == 1
    (other,) = make_reads({("ncc", "birds"): [0.6]})
    with pytest.raises(DataError, match=r"b:9: ncc on birds task 0 has another accuracy than at rows:1"):
        gather([*reads, Read(other.score, "b:9")])
    (moved,) = make_reads({("ncc", "birds"): [0.5]}, spec="zzzz")
    with pytest.raises(DataError, match=r"b:9: birds held other classes or images than at rows:1"):
        gather([*reads, Read(moved.score, "b:9")])
    (unseen,) = make_reads({("ncc", "birds"): [0.5]}, role="unseen", seen=False)
    with pytest.raises(DataError, match="birds is unseen here and seen at rows:1"):
        gather([*reads, Read(unseen.score, "b:9")])


def test_gaps_and_failures_are_said(make_reads: MakeReads) -> None:
    reads = make_reads({("ncc", "birds"): [0.5, 0.5, 0.5], ("tsp", "birds"): [0.5]})
    reads += make_reads(
        {("gd", "birds"): [0.0, 0.0, 0.0]}, failure="all 50 queries have logits that are not finite"
    )
    text = make_report(reads).markdown()
    assert "not finished: of 3 tasks on birds there are tsp 1" in text
    assert "gd failed on 3 tasks (birds 0, birds 1, birds 2)" in text


def test_gaps_that_differ_from_domain_to_domain_are_one_sentence(make_reads: MakeReads) -> None:
    scores = {("ncc", f"d{n}"): [0.5] * 9 for n in range(5)}
    scores |= {("tsp", f"d{n}"): [0.5] * (n + 2) for n in range(5)}
    text = make_report(make_reads(scores)).markdown()
    assert "not finished: of 9 tasks a domain there are tsp 2 to 6; means" in text
    assert text.count("not finished") == 1


def test_no_rows_is_an_error_with_a_way_out() -> None:
    with pytest.raises(FewshiftError, match="fewshift evaluate"):
        make_report([])


def test_published_numbers_stand_in_tables_of_their_own(make_reads: MakeReads) -> None:
    # domain names that md-mini and Meta-Dataset share must not bring their numbers together
    report = make_report(make_reads({("tsa", "omniglot"): [0.5, 0.6]}), with_published=True)
    assert [t.title for t in report.published] == [
        "Published, multi-domain (trained on 8), varying way and shot",
        "Published, single-domain (trained on ImageNet), varying way and shot",
    ]
    assert report.sections[0].tables[0].head == ("tsa",)
    text = report.markdown()
    assert "TSA [b]" in text
    assert "TSA README [a]" in text
    assert "tri-M, FLUTE: the paper's table has the headers of FLUTE and tri-M the wrong way round" in text
    assert "ALFA+Proto-MAML, BOHB: averages are without mnist, cifar10, cifar100: not to be compared" in text
    one_shot = make_report(make_reads(TABLE, protocol="one-shot"), with_published=True)
    assert "[b] unshuffled" in one_shot.markdown()
    assert make_report(make_reads(TABLE, protocol="free:way=5"), with_published=True).published == ()


def notes_of(reads: list[Read]) -> list[Read]:
    """The rows as TSP writes them, with coefficients and a loss curve."""
    notes = {"coefficients": {"birds": 0.75, "cars": 0.25}, "losses": [2.0, 1.0, 0.5]}
    return [Read(replace(r.score, notes=notes), r.where) for r in reads]


def test_the_page_is_whole_and_asks_nothing_from_outside(make_reads: MakeReads) -> None:
    reads = notes_of(make_reads({**TABLE, ("<tsp & co>", "birds"): [0.5, 0.6]}))
    text = page(make_report(reads, with_published=True))
    assert text.startswith("<!doctype html>")
    for outside in ("http:", "https:", "//", "<script", "<link", "<img", "@import", "url("):
        assert outside not in text
    assert "&lt;tsp &amp; co&gt;" in text
    assert "<tsp" not in text
    charts = re.findall(r'<svg [^>]*aria-label="([^"]+)"', text)
    assert charts[0] == "Accuracy by domain with 95 % intervals"
    assert "Paired differences to tsa with 95 % intervals" in charts
    assert "Task coefficients of tsp" in charts
    assert "Support loss by step" in charts
    for tag in ("svg", "g", "table", "section", "tr", "text"):
        assert len(re.findall(rf"<{tag}[ >]", text)) == text.count(f"</{tag}>"), tag
    assert "prefers-color-scheme:dark" in text
    assert "nan" not in re.sub(r"<style>.*</style>", "", text, flags=re.S)


def test_the_page_does_with_notes_that_say_nothing(make_reads: MakeReads) -> None:
    odd = {"coefficients": {"birds": None}, "losses": [0.0, 0.0]}
    reads = [Read(replace(read.score, notes=odd), read.where) for read in make_reads(TABLE)]
    assert page(make_report(reads), "title").startswith("<!doctype html>")


def test_the_page_does_without_notes(make_reads: MakeReads) -> None:
    text = page(make_report(make_reads({("ncc", "birds"): [0.5]})))
    assert text.count("<svg") == 1


def test_a_summary_has_one_row_a_method_and_the_best_first(make_reads: MakeReads) -> None:
    made = make_report(make_reads(TABLE), ["tsa"], summary=True)
    got = cells(made, "summary")
    assert got["", "tsp", "all"][0] == 82.5
    assert got["", "tsp", "less tsa"][0] == pytest.approx(7.5)  # (5 + 10) / 2
    assert got["", "ncc", "rank"][0] == 3.0
    assert got["", "tsa", "tasks"][0] == 2
    assert ("", "tsa", "less tsa") not in got
    rows = [line.split("|")[1].strip() for line in made.markdown().splitlines() if line.startswith("| t")]
    assert rows == ["tsp", "tsa"]
    assert "| ncc" in made.markdown()


def test_where_no_role_is_known_all_domains_are_averaged(make_reads: MakeReads) -> None:
    reads = [
        Read(replace(read.score, seen=None, role=None, revealed=None), read.where)
        for read in make_reads(TABLE)
    ]
    made = make_report(reads, ["tsa"], summary=True)
    assert made.sections[0].tables[0].head[0] == "all"
    assert "| all " in make_report(reads, ["tsa"]).markdown()
    assert "<circle" in page(made)


def test_a_summary_is_a_page_as_well(make_reads: MakeReads) -> None:
    report = make_report(make_reads(TABLE), ["tsa"], summary=True)
    made = page(report)
    assert made.count("<table>") == 1
    (chart,) = re.findall(r'<svg [^>]*aria-label="Average accuracy with 95 % intervals".*?</svg>', made)
    names = re.findall(r'class="label"[^>]*>([^<]+)<', chart)
    assert names == [row.label for row in report.sections[0].tables[0].rows]  # the best first, each by name
    assert chart.count("<circle") == len(names) * len(averaged(report.sections[0].board))
