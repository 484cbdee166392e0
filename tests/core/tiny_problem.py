"""A small non-linear network with two adapter sites and a last map, in float64, and tasks for it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fewshift.types import Address, Episode, Features, Labelled, Task, TaskParams

SITES = {"first": 6, "second": 5, "last": 5}  # site -> output channels
COLUMNS = {"first": 4, "second": 6, "last": 5}


@dataclass(frozen=True)
class Problem:
    features: Features
    start: TaskParams
    episode: Episode

    @property
    def task(self) -> Task:
        return self.episode.task


def tiny_features(generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Features:
    first = torch.randn(6, 4, generator=generator, dtype=torch.float64).to(dtype)
    second = torch.randn(5, 6, generator=generator, dtype=torch.float64).to(dtype) / 2

    def features(params: TaskParams, images: Tensor) -> Tensor:
        hidden = torch.tanh(images.flatten(1) @ (first + params["first"]).T)
        hidden = torch.tanh(hidden @ (second + params["second"]).T)
        return hidden @ params["last"].T

    return features


def tiny_start(dtype: torch.dtype = torch.float64) -> TaskParams:
    adapters = {
        site: 1e-4 * torch.eye(SITES[site], COLUMNS[site], dtype=dtype) for site in ("first", "second")
    }
    return adapters | {"last": torch.eye(5, dtype=dtype)}


def tiny_problem(seed: int = 0, way: int = 3, shot: int = 4, query: int = 5) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(way, 4, generator=generator, dtype=torch.float64)

    def drawn(count: int) -> Labelled:
        labels = torch.arange(way).repeat_interleave(count)
        noise = torch.randn(len(labels), 4, generator=generator, dtype=torch.float64)
        return Labelled((centres[labels] + noise).view(-1, 1, 2, 2), labels)

    episode = Episode(
        Task(drawn(shot), way), drawn(query), Address(seed, "tiny", "train", 0), tuple(range(way))
    )
    return Problem(tiny_features(generator), tiny_start(), episode)


def random_like(params: dict[str, Tensor], seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {s: torch.randn(p.shape, generator=generator, dtype=p.dtype) for s, p in params.items()}
