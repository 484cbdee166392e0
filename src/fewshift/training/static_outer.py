"""The outer level of a batch of tasks on fixed buffers: the query gradient and its way back through steps."""

from __future__ import annotations

import torch

from fewshift.nets.curvature import hessian_products
from fewshift.nets.precision import arithmetic
from fewshift.nets.static import StaticStep
from fewshift.nets.static_batch import StaticBatch


class StaticOuter(StaticBatch):
    """L_out of a batch of tasks, its gradient and the query accuracy, on fixed buffers."""

    graph: torch.cuda.CUDAGraph | None = None
    scores = True

    def prepare(self) -> None:
        """Make the buffer for the result."""
        self.adjoint = tuple(torch.zeros_like(values) for values in self.params)

    def run(self) -> None:
        """One joint pass over support and query, forwards and backwards."""
        torch._foreach_copy_(list(self.adjoint), list(self.gradients()))

    def __call__(self) -> None:
        """Replay the graph; without one, compute as it is written."""
        self.run() if self.graph is None else self.graph.replay()


class StaticCurvature:
    """λ ← λ − H (β Pᵀ λ) on the buffers of a step, at the parameters that are put there."""

    def __init__(self, step: StaticStep) -> None:
        self.step = step
        self.adjoint = tuple(torch.zeros_like(values) for values in step.params)
        self.graph: torch.cuda.CUDAGraph | None = None

    def run(self) -> None:
        """One step of the adjoint backwards, in place."""
        step = self.step
        assert step.matrices is not None
        with torch.no_grad(), arithmetic(step.precision):
            direction = tuple(
                matrix.mT @ adjoint  # the step's matrices are β P
                for matrix, adjoint in zip(step.matrices, self.adjoint, strict=True)
            )
            torch._foreach_sub_(list(self.adjoint), list(hessian_products(step, direction)))

    def __call__(self) -> None:
        """Replay the graph; without one, compute as it is written."""
        self.run() if self.graph is None else self.graph.replay()
