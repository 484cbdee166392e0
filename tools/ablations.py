"""The tables and the plot of the pages in docs/ablations, from lines that are kept in the repository.

python tools/ablations.py            print the tables
python tools/ablations.py plot       draw docs/images/ablation-curves.png (needs matplotlib)
python tools/ablations.py pack DIR   keep the lines of `fewshift reproduce ablations` with its folder DIR

With `moved` behind it each is for the tables of `fewshift reproduce ablations-moved`, with `adapters` for
those of the same at `--scale adapters`; these have no plot.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fewshift.core.spectrum import effective_rank, eigenvalues
from fewshift.evaluation.boards import Board, Contender, gather
from fewshift.evaluation.scores import read_scores
from fewshift.evaluation.statistics import Interval, interval
from fewshift.nets.kit import load_kit
from fewshift.presets.ablations import DESIGNS, LOSSES, TOLD
from fewshift.presets.spectra import learned_part

DOCS = Path(__file__).parents[1] / "docs"
PLOT = DOCS / "images" / "ablation-curves.png"
TITLES = {
    "gram": "`gram`, MᵀM + I (the paper's)",
    "gram_only": "`gram_only`, MᵀM",
    "cholesky": "`cholesky`, LLᵀ",
    "cholesky_identity": "`cholesky_identity`, LLᵀ + I",
    "free": "`free` from 0.1·I",
    "free-minus": "`free` from −I",
    "order-2": "`gram`, order 2, as many tasks",
    "order-2-short": "`gram`, order 2, half the tasks",
    "ce-only": "cross-entropy only",
    "aux-only": "auxiliary loss only",
}
TITLES |= {name: f"`low_rank`, {name[5:]} rows" for name in DESIGNS if name.startswith("rank-")}
TITLES |= {name: f"λ = {name[7:]}" for name in LOSSES if name.startswith("lambda-")}
WITH, WITHOUT = ("gram", "gram_only", "cholesky", "cholesky_identity"), ("free", "free-minus")


class Kept(NamedTuple):
    """The lines of one experiment."""

    scores: Path
    training: Path
    rates: str  # what the methods' names end in

    def lines(self) -> list[dict[str, Any]]:
        """The logs, and what each P is like."""
        with gzip.open(self.training, "rt", encoding="utf-8") as file:
            return [json.loads(line) for line in file]


def _in_the_repository(name: str, rates: str) -> Kept:
    lines = DOCS / "lines"
    return Kept(lines / f"md-mini-{name}.jsonl.gz", lines / f"md-mini-{name}-training.jsonl.gz", rates)


PUBLISHED, MOVED = _in_the_repository("ablations", ""), _in_the_repository("ablations-moved", "_tuned")
ADAPTERS = _in_the_repository("adapters", "_tuned")


def tables(kept: Kept) -> dict[str, str]:
    """Every table of an experiment by its name, as far as its lines go."""
    (board,) = gather(read_scores([kept.scores]))
    by_kit = {contender: board.one_of(contender).kit for contender in board.contenders}
    method = {c: c.method.removesuffix(kept.rates) for c in board.contenders}
    tsp = {kit: c for c, kit in by_kit.items() if method[c] == "tsp" and kit}
    named = {method[c]: c for c in board.contenders if method[c] != "tsp"}
    lines = kept.lines()
    final = {line["run"]: line for line in lines if "effective_rank" in line}
    found = {"designs": _designs(board, tsp, named, final)}
    validated = any("validation" in line for line in lines)
    found["training"] = _training(lines) if validated else _on_training_tasks(lines)
    if set(LOSSES) & set(tsp):
        found["losses"] = _losses(board, tsp, named["gd"], lines)
    if "tsp_hard_label" in named:
        found["label"] = _label(board, tsp["gram"], named["tsp_hard_label"], named["gd"])
    found["order"] = _order(board, tsp, lines)
    return found


def _designs(
    board: Board, tsp: dict[str, Contender], named: dict[str, Contender], final: dict[str, Any]
) -> str:
    gd = named["gd"]
    head = ["", "seen", "unseen", "less gd: seen", "unseen", "all", "effective rank", "eigenvalues", "not PD"]
    rows = [["`gd`, P = I", *_accuracies(board, gd), "", "", "", "", "1", "0 %"]]
    if ncc := named.get("ncc"):
        rows.append(["`ncc`, no step", *_accuracies(board, ncc), *_differences(board, ncc, gd), "", "", ""])
    for name in (name for name in DESIGNS if name in tsp):
        line = final[name]
        known = [which for which in ("smallest", "mean", "largest") if f"{which}_eigenvalue" in line]
        spread = " / ".join(f"{line[f'{which}_eigenvalue']:.2g}" for which in known)
        spread = f"up to {spread}" if known == ["largest"] else spread
        share = 100 * line["non_pd_rate"]
        shape = [_rank(line), spread, f"{share:.1f} %" if 0 < share < 1 else f"{share:.0f} %"]
        rows.append(
            [TITLES[name], *_accuracies(board, tsp[name]), *_differences(board, tsp[name], gd), *shape]
        )
    return _markdown(head, rows)


def _rank(line: dict[str, float]) -> str:
    """A number, or where sites differ in size the share of each site's."""
    share = line.get("rank_share")
    return f"{line['effective_rank']:.1f}" if share is None else f"{100 * share:.0f} %"


def _losses(board: Board, tsp: dict[str, Contender], gd: Contender, lines: Sequence[dict[str, Any]]) -> str:
    head = ["", "seen", "unseen", "less gd: seen", "unseen", "all", "domain found, VALID"]
    found = {line["run"]: line["domain_accuracy"] for line in lines if "domain_accuracy" in line}
    rows = []
    for name in LOSSES:
        kit = "gram" if name == "ce-only" else name
        if kit in tsp:
            sure = f"{100 * found[kit]:.0f} %"
            rows.append(
                [TITLES[name], *_accuracies(board, tsp[kit]), *_differences(board, tsp[kit], gd), sure]
            )
    return _markdown(head, rows)


def _label(board: Board, blend: Contender, hard: Contender, gd: Contender) -> str:
    head = ["", "seen", "unseen", "less gd: seen", "unseen", "all", "largest coefficient"]
    rows = []
    for title, contender in (("blend", blend), ("likeliest domain alone", hard)):
        scores = [s for tasks in board.cells[contender].values() for s in tasks.values()]
        largest = statistics.mean(max(s.notes["coefficients"].values()) for s in scores)
        rows.append(
            [title, *_accuracies(board, contender), *_differences(board, contender, gd), f"{largest:.2f}"]
        )
    rows.append(["likeliest less blend", "", "", *_differences(board, hard, blend), ""])
    return _markdown(head, rows)


def _order(board: Board, tsp: dict[str, Contender], lines: Sequence[dict[str, Any]]) -> str:
    head = ["", "seen", "unseen", "less order 1: seen", "unseen", "all", "tasks", "tasks a second"]
    rows = []
    for name in (name for name in ("gram", "order-2", "order-2-short") if name in tsp):
        steps = [line for line in lines if line["run"] == name and "loss" in line]
        speed = f"{statistics.median(line['tasks_per_second'] for line in steps):.0f}"
        tasks = f"{16 * max(line['step'] for line in steps):,}"
        apart = _differences(board, tsp[name], tsp["gram"]) if name != "gram" else ["", "", ""]
        title = "`gram`, order 1" if name == "gram" else TITLES[name]
        rows.append([title, *_accuracies(board, tsp[name]), *apart, tasks, speed])
    return _markdown(head, rows)


def _training(lines: Sequence[dict[str, Any]]) -> str:
    steps = sorted({line["step"] for line in lines if "validation" in line and line["run"] == "gram"})
    head = ["VALID accuracy after updates", *map(str, steps), "not PD", "largest eigenvalue"]
    rows = []
    for name in [*DESIGNS, "order-2", "order-2-short"]:
        own = [line for line in lines if line["run"] == name]
        scores = {line["step"]: line["validation"] for line in own if "validation" in line}
        if not scores:
            continue
        cells = [f"{100 * scores[step]:.1f}" if step in scores else "" for step in steps]
        rows.append([TITLES[name], *cells, *_over_updates(own)])
    return _markdown(head, rows)


def _on_training_tasks(lines: Sequence[dict[str, Any]]) -> str:
    """Query accuracy after the inner steps, for runs without validation: their tasks were the same."""
    runs = {name: [a for a in lines if a["run"] == name and "loss" in a] for name in [*DESIGNS, "order-2"]}
    runs = {name: own for name, own in runs.items() if own}
    half = len(runs["gram"]) // 2
    head = ["training tasks, second half", "query accuracy", "less `gram`", "not PD", "largest eigenvalue"]
    rows = []
    for name, own in runs.items():
        late = [line["accuracy"] for line in own[half:]]
        apart = [a["accuracy"] - b["accuracy"] for a, b in zip(own[half:], runs["gram"][half:], strict=True)]
        less = "" if name == "gram" else _text(interval(apart), "+")
        rows.append([TITLES[name], f"{100 * statistics.mean(late):.1f}", less, *_over_updates(own)])
    return _markdown(head, rows)


def _over_updates(own: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """The share of matrices that are not positive definite and the largest eigenvalue, look by look."""
    looks = [line for line in own if "largest_eigenvalue" in line and "loss" in line]
    shares = " → ".join(f"{100 * line['non_pd_rate']:.0f} %" for line in looks if "non_pd_rate" in line)
    sizes = " → ".join(f"{line['largest_eigenvalue']:.3g}" for line in looks)
    return shares or "by construction 0 %", sizes


def _accuracies(board: Board, contender: Contender) -> list[str]:
    return [_text(board.average(contender, board.domains(role)), "") for role in ("seen", "unseen")]


def _differences(board: Board, ours: Contender, theirs: Contender) -> list[str]:
    groups = (("seen",), ("unseen",), ("seen", "unseen"))
    return [_text(board.average_difference(ours, theirs, board.domains(*roles)), "+") for roles in groups]


def _text(value: Interval | None, sign: str) -> str:
    if value is None:
        return "–"
    text = f"{100 * value.mean:{sign}.2f} ± {100 * value.half:.2f}"
    return f"**{text}**" if sign and value.excludes_zero else text


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plot() -> None:
    """VALID accuracy over updates, with and without positive definiteness."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = PUBLISHED.lines()
    figure, panels = pyplot.subplots(1, 2, figsize=(8, 3.2), dpi=90)
    for panel, shown in zip(panels, ((*WITH, *WITHOUT), (*WITH, "free")), strict=True):
        for color, name in enumerate(shown):
            points = [
                (a["step"], 100 * a["validation"]) for a in lines if a["run"] == name and "validation" in a
            ]
            style = "--o" if name in WITHOUT else "-o"
            label = TITLES[name].replace("`", "")
            panel.plot(
                *zip(*points, strict=True), style, color=f"C{color}", markersize=3, alpha=0.8, label=label
            )
        panel.set(xlabel="updates of 16 tasks", ylabel="VALID accuracy, %")
        panel.grid(alpha=0.3)
    panels[0].legend(fontsize=7, frameon=False, loc="center right")
    panels[1].set_title("the same without the one from −I", fontsize=8)
    figure.tight_layout()
    figure.savefig(PLOT)


def pack(folder: Path, kept: Kept) -> None:
    """Scores without their loss curves, and of each run what tables and plot need."""
    scores, training = [], []
    for path in sorted(folder.glob("five-shot-*.jsonl")):
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            line["kit"] = _plain(line["kit"])
            line.get("notes", {}).pop("losses", None)
            scores.append(line)
    for run in sorted(folder.glob("*.run")):
        name = _plain(run.name)
        log = [json.loads(text) for text in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
        if name.startswith("roots-"):
            training += [{"run": name[6:], **line} for line in log]
            training.append({"run": name[6:], **_look(run.with_suffix(".kit"))})
        else:
            best = max((line for line in log if "validation" in line), key=lambda line: line["validation"])
            training.append({"run": name.removeprefix(TOLD), "domain_accuracy": best["domain_accuracy"]})
    for path, lines in ((kept.scores, scores), (kept.training, training)):
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
        sys.stderr.write(f"wrote {path}: {len(lines)} lines, {path.stat().st_size} bytes\n")


def _look(kit: Path) -> dict[str, float]:
    """What the last state's matrices look like: means over domains, extremes over all."""
    learned = load_kit(kit).preconditioners
    assert learned is not None
    matrices = learned.matrices()
    values = [eigenvalues(of_site) for of_site in matrices.values()]
    ranks = {site: effective_rank(part) for site, part in learned_part(learned).items()}
    all_values = torch.cat([found.flatten() for found in values])
    look = {
        "effective_rank": torch.cat(list(ranks.values())).mean().item(),
        "smallest_eigenvalue": all_values.min().item(),
        "mean_eigenvalue": all_values.mean().item(),
        "largest_eigenvalue": all_values.max().item(),
        "non_pd_rate": torch.cat([found[..., 0] <= 0 for found in values]).double().mean().item(),
    }
    if len(ranks) > 1:
        shares = [found / matrices[site].shape[-1] for site, found in ranks.items()]
        look["rank_share"] = torch.cat(shares).mean().item()
    return look


def _plain(name: str) -> str:
    """A stage's name without its digest and ending."""
    return (
        name.rsplit(".", 1)[0].rsplit("-", 1)[0]
        if name.endswith((".run", ".kit"))
        else name.rsplit("-", 1)[0]
    )


if __name__ == "__main__":
    experiments = {"moved": MOVED, "adapters": ADAPTERS}
    words = [word for word in sys.argv[1:] if word not in experiments]
    chosen = next((kept for name, kept in experiments.items() if name in sys.argv), PUBLISHED)
    if words == ["plot"]:
        plot()
    elif len(words) == 2 and words[0] == "pack":
        pack(Path(words[1]), chosen)
    else:
        for name, table in tables(chosen).items():
            print(f"### {name}\n\n{table}\n")
