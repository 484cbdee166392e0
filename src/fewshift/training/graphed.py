"""First-order meta-gradients on CUDA graphs: the inner steps and the query gradient are each one replay.

Order 1 needs only λ_T = ∇L_out(θ_T) and Σ g_t (see `fewshift.core.metagrad`), which graphs over padded sizes
give without the host. Equal to `OneByOne` by test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.core.descent import fresh_leaves
from fewshift.core.metagrad import MetaGradient
from fewshift.core.updates import Preconditioned
from fewshift.nets.backbone import Backbone
from fewshift.nets.folded_resnet import FoldedResNet, SupportFeatures
from fewshift.nets.graph import FAR, MAX_WAY, GraphEngine, capture, copy_heads, padded_size
from fewshift.training.metagradients import FoldedOneByOne, Job, OneByOne
from fewshift.training.settings import InnerLevel
from fewshift.types import Episode, TaskParams


class StaticOuter:
    """L_out, its gradient and the query accuracy at one padded size, on fixed buffers."""

    def __init__(self, net: FoldedResNet, batch: Tensor, start: TaskParams, support: int) -> None:
        self.features, self.support = SupportFeatures(net, batch, tuple(start)), support
        self.labels = torch.zeros(len(batch), dtype=torch.int64, device=batch.device)
        self.weights = torch.ones(len(batch), device=batch.device, dtype=batch.dtype)
        self.far = torch.zeros(MAX_WAY, device=batch.device, dtype=batch.dtype)
        self.params = {site: value.clone() for site, value in start.items()}
        self.adjoint = {site: torch.zeros_like(value) for site, value in start.items()}
        self.scores = batch.new_zeros(2)  # loss, accuracy
        self.graph: torch.cuda.CUDAGraph | None = None

    def load(self, fresh: SupportFeatures, episode: Episode, params: TaskParams) -> None:
        """Put an episode, already padded and through the stem, into the buffers."""
        copy_heads(self.features, fresh)
        self.labels.zero_()
        self.weights.zero_()
        for first, part in ((0, episode.task.support), (self.support, episode.query)):
            self.labels[first : first + len(part.labels)].copy_(part.labels)
            self.weights[first : first + len(part.labels)].fill_(1.0)
        self.far.fill_(FAR)[: episode.task.way].zero_()
        for site, value in params.items():
            self.params[site].copy_(value)

    def run(self) -> None:
        """One joint pass over support and query, forwards and backwards."""
        with torch.enable_grad():
            leaves = fresh_leaves(self.params)
            features = self.features(leaves)
            known, asked = features[: self.support], features[self.support :]
            centres = prototypes(known, self.labels[: self.support], MAX_WAY, self.weights[: self.support])
            logits = cosine_logits(asked, centres) + self.far
            labels, weights = self.labels[self.support :], self.weights[self.support :]
            losses = F.cross_entropy(logits, labels, reduction="none")
            loss = (losses * weights).sum() / weights.sum()
            found = torch.autograd.grad(loss, list(leaves.values()))
        right = (logits.detach().argmax(dim=-1) == labels).to(weights.dtype)
        self.scores[0].copy_(loss.detach())
        self.scores[1].copy_((right * weights).sum() / weights.sum())
        for site, gradient in zip(leaves, found, strict=True):
            self.adjoint[site].copy_(gradient)

    def __call__(self) -> None:
        """Replay the graph; without one, compute as it is written."""
        self.run() if self.graph is None else self.graph.replay()


@dataclass(frozen=True)
class GraphedOneByOne:
    """One task after the other on graphs; second order and tasks that fit no graph take the usual way."""

    backbone: Backbone
    captured: bool = True
    outers: dict[Any, StaticOuter] = field(default_factory=dict, compare=False, repr=False)
    engines: list[GraphEngine] = field(default_factory=list, compare=False, repr=False)

    @property
    def engine(self) -> GraphEngine:
        """The engine whose inner steps are used, made with the first task."""
        if not self.engines:
            self.engines.append(GraphEngine(self.backbone, captured=self.captured))
        return self.engines[0]

    def __call__(self, jobs: Iterable[Job], inner: InnerLevel, starts: bool) -> Iterator[MetaGradient]:
        """Equal to `OneByOne` up to rounding."""
        if inner.order == 2:
            yield from OneByOne(self.backbone)(jobs, inner, starts)
            return
        for job in jobs:
            way, support = job.episode.task.way, len(job.episode.task.support.labels)
            sizes = padded_size(support), padded_size(len(job.episode.query.labels))
            if sizes[0] is None or sizes[1] is None or way > MAX_WAY:
                yield from FoldedOneByOne(self.backbone)([job], inner, starts)
            else:
                yield self._one(job, inner, sizes[0], sizes[1])

    @torch.no_grad()
    def _one(self, job: Job, inner: InnerLevel, support: int, query: int) -> MetaGradient:
        rates = inner.rates(job.start)
        rule = Preconditioned(job.preconditioner, rates)
        step = self.engine.loaded(job.episode.task, job.start, rule, support)
        losses = step.loss.new_empty(inner.steps)
        for index in range(inner.steps):
            step()
            losses[index].copy_(step.loss)
        final = {site: value.clone() for site, value in step.params.items()}
        outer = self._outer(job.episode, final, support, query)
        outer()
        pulls = {site: -rates[site] * (outer.adjoint[site] @ step.summed[site].mT) for site in final}
        return MetaGradient(
            loss=outer.scores[0].clone(),
            preconditioner=pulls,
            start={site: value.clone() for site, value in outer.adjoint.items()},
            final=final,
            inner_losses=losses,
            inner_norms=torch.full_like(losses, torch.nan),  # not taken: the graph keeps only their sum
            accuracy=outer.scores[1].clone(),
        )

    def _outer(self, episode: Episode, params: TaskParams, support: int, query: int) -> StaticOuter:
        images = episode.task.support.images
        parts = [_padded(images, support), _padded(episode.query.images, query)]
        batch, net = torch.cat(parts), self.engine.folded.net
        key = (support, query, tuple(images.shape[1:]))
        if key not in self.outers:
            new = self.outers[key] = StaticOuter(net, batch, params, support)
            new.load(new.features, episode, params)
            new.graph = capture(new.run, self.engine.pool) if self.captured else None
        outer = self.outers[key]
        outer.load(SupportFeatures(net, batch, tuple(params)), episode, params)
        return outer


def _padded(images: Tensor, size: int) -> Tensor:  # (n, 3, h, w) -> (size, 3, h, w)
    return F.pad(images, (0, 0, 0, 0, 0, 0, 0, size - len(images)))
