"""What a table of methods says of each: its source, how surely it is that method, what it needs and costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

Fidelity: TypeAlias = Literal["confirmed from code", "stated in the paper", "inferred", "our own"]


@dataclass(frozen=True, kw_only=True)
class About:
    """One method in words, for `fewshift methods` and the documentation."""

    title: str  # "TSP†, task-specific preconditioned descent"
    source: str  # authors, venue and year
    fidelity: Fidelity  # the least sure fact that decides its numbers; the docstring of its file says which
    moves: str  # what changes for a task: "nothing", "17 matrices", "a linear head"
    needs: str = "a backbone"  # what the kit must hold
    trained_by: str = ""  # the commands that put it there; empty: any kit will do
    oracle: bool = False  # can its published rates ask whether the domain was trained on?
    cost: str = "one forward pass"  # per task, in passes over the support set
    features_only: bool = False  # does it leave the network alone, so that features can be computed once?

    def tuned(self, name: str, **changes: Any) -> About:
        """The same of the method at what `fewshift train rates` chose for it, by its name there."""
        trained_by = f"fewshift train rates --methods {name}"
        own: dict[str, Any] = {
            "title": f"{self.title}, at its own best rates",
            "fidelity": "our own",
            "needs": f"{self.needs}, rates chosen on validation tasks",
            "trained_by": f"{self.trained_by}, {trained_by}" if self.trained_by else trained_by,
        }
        return replace(self, **{**own, **changes})
