"""What a report says beside its numbers: what they are, and what to beware of."""

from __future__ import annotations

from collections.abc import Sequence

from fewshift.evaluation.boards import ROLES, Board

CURVE = "curve:"  # how the protocol of a learning curve's lines begins
FEW_GROUPS = 3  # of domains that lack the same: more are not listed one by one


def facts(board: Board) -> tuple[tuple[str, str], ...]:
    """What these numbers are: protocol, tasks, pixels, kit, oracle, versions."""
    scores = board.scores()
    counts = [len(tasks) for by_domain in board.cells.values() for tasks in by_domain.values()]
    labels = [board.labels[c] for c in board.contenders if c.oracle]
    kits = sorted({f"{s.kit or 'unnamed'} ({s.fingerprint})" for s in scores if s.fingerprint})
    versions = sorted({f"{name} {version}" for s in scores for name, version in s.versions.items()})
    by_role = {role: len(board.domains(role)) for role in (*ROLES, "unknown")}
    return (
        ("protocol", board.tasks.protocol),
        ("classes", f"{board.tasks.split} split"),
        ("tasks", f"{_span(counts)} a domain, seed {board.tasks.seed}"),
        ("domains", ", ".join(f"{count} {role}" for role, count in by_role.items() if count)),
        ("pixels", board.tasks.pixels or "not stated"),
        ("kit", ", ".join(kits) or "not stated"),
        ("seen/unseen oracle", f"used by {', '.join(labels)}" if labels else "used by no method"),
        ("versions", ", ".join(versions) or "not stated"),
    )


def _unfinished(board: Board) -> list[str]:
    """Who lacks tasks that others have: by domain, or in one sentence where nearly every domain differs."""
    groups: dict[tuple[int, str], list[str]] = {}  # tasks, and who has how many of them -> where
    counts: dict[str, list[int]] = {}  # of those who lack some anywhere: how many they have
    for domain in board.roles:
        done = {label: board.accuracies(c, domain).keys() for c, label in board.labels.items()}
        whole = {index for indices in done.values() for index in indices}
        lacking = {label: len(indices) for label, indices in done.items() if indices != whole}
        for label, count in lacking.items():
            counts.setdefault(label, []).append(count)
        if lacking:
            few = ", ".join(f"{label} {count}" for label, count in lacking.items())
            groups.setdefault((len(whole), few), []).append(domain)
    beware = "means are over what is there, differences over shared tasks"
    if len(groups) > FEW_GROUPS:
        few = ", ".join(f"{label} {_span(numbers)}" for label, numbers in counts.items())
        return [f"not finished: of {_span([n for n, _ in groups])} tasks a domain there are {few}; {beware}"]
    return [
        f"not finished: of {count} tasks on {', '.join(domains)} there are {few}; {beware}"
        for (count, few), domains in groups.items()
    ]


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low}" if low == high else f"{low} to {high}"


def warnings(board: Board) -> tuple[str, ...]:
    """What a reader must know before trusting the numbers: failures, gaps, lines read twice."""
    found = []
    failed: dict[str, list[str]] = {}
    for contender in board.contenders:
        for tasks in board.cells[contender].values():
            for s in tasks.values():
                if s.failure:
                    failed.setdefault(board.labels[contender], []).append(f"{s.domain} {s.index}")
    for label, places in failed.items():
        some = ", ".join(places[:3]) + (", …" if len(places) > 3 else "")
        found.append(
            f"{label} failed on {len(places)} tasks ({some}): queries without finite logits count as wrong"
        )
    found += _unfinished(board)
    if board.tasks.protocol.startswith(CURVE):
        found.append(
            "one curve: its numbers of shots are tested on the same images, so intervals of averages over "
            "them are too narrow"
        )
    if board.repeated:
        found.append(f"{board.repeated} lines repeat others to the digit and count once")
    return tuple(found)
