"""The picture of the README: paired differences to TSA and to tuned descent.

    python tools/differences_picture.py    draw docs/images/differences.png (needs matplotlib)

The numbers are those of `fewshift report docs/lines/md-mini-narrow.jsonl.gz --baseline tsa,gd_tuned`.
"""

from __future__ import annotations

from pathlib import Path

from fewshift.evaluation.boards import Board, gather
from fewshift.evaluation.scores import read_scores

DOCS = Path(__file__).parents[1] / "docs"
LINES = DOCS / "lines" / "md-mini-narrow.jsonl.gz"
PICTURE = DOCS / "images" / "differences.png"
BASELINES = {
    "tsa": "difference to TSA, published rates",
    "gd_tuned": "difference to plain descent, tuned rates",
}
METHODS = {
    "tsa": "tsa\nTSA, published rates",
    "gd_tuned": "gd_tuned\nplain descent, tuned rates",
    "tsp": "tsp\nTSP†, published rates",
    "tsp_tuned": "tsp_tuned\nTSP†, tuned rates",
    "start_tuned": "start_tuned\nlearned starting values",
    "tsp_start_tuned": "tsp_start_tuned\nlearned starts and TSP†",
}
GROUPS = {  # label -> roles, colour, marker: those of the other pictures of results
    "unseen domains": (("unseen",), "#d08a00", "o"),
    "all domains": (("seen", "unseen"), "#0a8f6c", "D"),
    "seen domains": (("seen",), "#7a8194", "s"),
}


def draw(board: Board) -> None:
    """One panel a baseline, one row a method, one mark with its 95 % interval a group of domains."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    named = {contender.method: contender for contender in board.contenders}
    figure, panels = pyplot.subplots(1, 2, figsize=(7, 4.1), dpi=200, sharex=True, sharey=True)
    for panel, (baseline, title) in zip(panels, BASELINES.items(), strict=True):
        panel.axvline(0, color="#444a5e", linewidth=1, zorder=0)
        for row, method in enumerate(METHODS):
            if method == baseline:
                panel.text(
                    0.15, row, "the baseline", va="center", fontsize=7.5, color="#444a5e", style="italic"
                )
                continue
            for place, (label, (roles, colour, marker)) in enumerate(GROUPS.items()):
                found = board.average_difference(named[method], named[baseline], board.domains(*roles))
                assert found is not None
                panel.errorbar(
                    100 * found.mean,
                    row + 0.22 * (place - 1),
                    xerr=100 * found.half,
                    color=colour,
                    marker=marker,
                    markersize=3.4,
                    linewidth=1.8,
                    linestyle="none",
                    label=label if row == len(METHODS) - 1 else None,
                )
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("points of accuracy", fontsize=8)
        panel.grid(axis="x", alpha=0.3)
        panel.tick_params(labelsize=8, length=0)
        panel.spines[["top", "right", "left"]].set_visible(False)
    panels[0].set_yticks(range(len(METHODS)), list(METHODS.values()))
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=3, fontsize=8, frameon=False, loc="lower center")
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(PICTURE, metadata={"Software": None})


if __name__ == "__main__":
    (whole,) = gather(read_scores([LINES]))
    draw(whole)
