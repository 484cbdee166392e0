"""An engine around another changes how tasks get to it, and passes on the rest."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import Engine
from fewshift.types import TaskParams


class AroundEngine:
    """What such an engine has of the one inside; `adapt` and `adapt_many` are its own."""

    engine: Engine

    @property
    def name(self) -> str:
        """The inner engine's."""
        return self.engine.name

    @property
    def reason(self) -> str:
        """The inner engine's."""
        return self.engine.reason

    @property
    def backbone(self) -> Backbone:
        """The network that is adapted."""
        return self.engine.backbone

    def embed(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
        """Features under these parameters, without gradients."""
        return self.engine.embed(params, images)

    def embed_many(
        self, params: Sequence[TaskParams], images: Sequence[Tensor]
    ) -> list[Tensor]:  # (n, 3, h, w) each -> (n, d) each
        """As the inner engine does."""
        return self.engine.embed_many(params, images)
