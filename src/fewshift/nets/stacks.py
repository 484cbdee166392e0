"""Task parameters of equal shape in one tensor each, so that a rule touches seven tensors, not seventeen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fewshift.types import TaskParams

Stack = tuple[Tensor, ...]  # one (k, tasks, m, n) for each shape


@dataclass(frozen=True)
class Stacks:
    """Which sites share a shape, and where each lies."""

    groups: tuple[tuple[str, ...], ...]
    shapes: tuple[tuple[int, int], ...]

    @property
    def place(self) -> dict[str, tuple[int, int]]:
        """Site -> its group and its row there."""
        return {site: (g, k) for g, group in enumerate(self.groups) for k, site in enumerate(group)}

    def zeros(self, tasks: int, like: Tensor, *, blank: bool = False) -> Stack:
        """Zeros for so many tasks; uninitialised if `blank`."""
        make = torch.empty if blank else torch.zeros
        return tuple(
            make(len(group), tasks, *size, dtype=like.dtype, device=like.device)
            for group, size in zip(self.groups, self.shapes, strict=True)
        )

    def matrices(self, tasks: int, like: Tensor, side: Literal["left", "right"]) -> Stack:
        """Room for the square matrices that multiply the values of so many tasks from this side."""
        own = 0 if side == "left" else 1
        square = replace(self, shapes=tuple((size[own], size[own]) for size in self.shapes))
        return square.zeros(tasks, like)

    def site(self, stack: Stack, site: str) -> Tensor:  # -> (tasks, m, n)
        """A site's values for all tasks, a view."""
        group, row = self.place[site]
        return stack[group][row]

    def named(self, stack: Stack, task: int) -> TaskParams:
        """A task's values by site, copied."""
        own = [values[:, task].clone() for values in stack]
        return {site: own[group][row] for site, (group, row) in self.place.items()}

    def fill(self, stack: Stack, many: Sequence[Mapping[str, Tensor]]) -> None:
        """Copy the values of several tasks into their places at once."""
        places = self.tasks(stack)[: len(many)]
        sites = [site for group in self.groups for site in group]
        targets = [place[site] for place in places for site in sites]
        torch._foreach_copy_(targets, [values[site] for values in many for site in sites])

    def tasks(self, stack: Stack) -> list[TaskParams]:
        """Every task's values by site, as views; one call a group, however many tasks there are."""
        views = [values.flatten(0, 1).unbind() for values in stack]
        count = stack[0].shape[1]
        return [
            {
                site: views[g][k * count + task]
                for g, group in enumerate(self.groups)
                for k, site in enumerate(group)
            }
            for task in range(count)
        ]


def stacks_of(params: Mapping[str, Tensor]) -> Stacks:
    """Group sites by shape, in the order in which shapes first appear."""
    groups: dict[tuple[int, int], list[str]] = {}
    for site, value in params.items():
        groups.setdefault((value.shape[0], value.shape[1]), []).append(site)
    return Stacks(tuple(tuple(group) for group in groups.values()), tuple(groups))
