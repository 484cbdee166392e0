"""What a fit leaves, under scikit-learn's names with a trailing underscore."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from fewshift.data.pixels import PixelRule
from fewshift.errors import FewshiftError
from fewshift.estimator import kits
from fewshift.estimator.fitted import Fitted, Settings
from fewshift.estimator.hints import Hint
from fewshift.estimator.modes import own_modes
from fewshift.estimator.sklearn_contract import not_fitted
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit


class FitResults:
    """Views of the fitted value and of the kit that it was made with, which is opened when needed."""

    kit: kits.KitLike
    device: str
    engine: str
    precision: str
    quiet: bool
    _fitted: Fitted
    _now_open: kits.Opened
    _kit_of_fit: kits.KitLike
    _rule_of_fit: PixelRule
    _name_of_fit: str  # a kit inside a file has none of its own
    _precision_of_fit: str
    _fingerprint_of_fit: str  # after a copy or a pickle

    @property
    def fitted_(self) -> Fitted:
        """Everything that predictions need besides the frozen backbone, as a value."""
        if "_fitted" not in vars(self):
            raise not_fitted()
        return self._fitted

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, as they were given."""
        return self.fitted_.classes

    @property
    def coefficients_(self) -> dict[str, float]:
        """How much of each training domain the support set is; empty when the kit cannot tell."""
        return dict(self.fitted_.coefficients)

    @property
    def settings_(self) -> Settings:
        """The rates and steps that were chosen, and why."""
        return self.fitted_.settings

    @property
    def losses_(self) -> tuple[float, ...]:
        """The support loss before each step."""
        return self.fitted_.losses

    @property
    def support_hints_(self) -> tuple[Hint, ...]:
        """Support images that look like another class, the surest first.

        Files keep no names of images, so a classifier that was loaded has none.
        """
        return self.fitted_.hints

    @property
    def kit_(self) -> Kit:
        """The kit in use."""
        return self._opened.kit

    @property
    def kit_name_(self) -> str:
        """Its name."""
        return self._opened.name

    @property
    def engine_(self) -> Engine:
        """Who runs the network."""
        return self._opened.engine

    def __sklearn_is_fitted__(self) -> bool:
        return "_fitted" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        """Without the opened kit, which is found again when it is needed, and known by its weights."""
        state = {name: value for name, value in vars(self).items() if name != "_now_open"}
        if "_now_open" in vars(self):
            state["_fingerprint_of_fit"] = self._now_open.kit.backbone.fingerprint()
        return state

    @property
    @own_modes()
    def _opened(self) -> kits.Opened:
        self.fitted_  # noqa: B018
        if "_now_open" not in vars(self):  # after a copy or a pickle
            precision = self._precision_of_fit
            opened = kits.open_kit(self._kit_of_fit, self.device, self.engine, self.quiet, precision)
            self._check_weights(opened)
            self._now_open = replace(opened, name=self._name_of_fit, rule=self._rule_of_fit)
        return self._now_open

    def _check_weights(self, opened: kits.Opened) -> None:
        """Refuse a kit that has been trained anew, or replaced, since the fit."""
        wanted = self._fingerprint_of_fit
        if opened.kit.backbone.fingerprint() != wanted:
            raise FewshiftError(
                f"the kit {opened.name} has another backbone than when this classifier was fitted "
                f"({wanted[:12]}): put that kit back in its place, or fit again"
            )
