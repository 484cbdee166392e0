"""Support sets with something added or taken out, and prototypes that follow without re-adapting."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import torch
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.estimator.adapting import Support
from fewshift.estimator.fitted import Fitted
from fewshift.estimator.inputs import Prepared
from fewshift.estimator.labels import class_array


def place_of(classes: tuple[Hashable, ...], label: Hashable) -> int:
    """The number of a class that must be there."""
    if label not in classes:
        raise FewshiftError(f"there is no class {label!r}: the classes are {', '.join(map(repr, classes))}")
    return classes.index(label)


def check_new(classes: tuple[Hashable, ...], label: Hashable) -> None:
    """Refuse a class that is there already."""
    if label in classes:
        raise FewshiftError(f"the class {label!r} is there already: use add_images to give it more images")


def check_removable(classes: tuple[Hashable, ...], label: Hashable) -> None:
    """Refuse to leave one class alone."""
    place_of(classes, label)
    if len(classes) <= 2:
        raise FewshiftError(f"without {label!r} one class would be left: a classifier needs two")


def with_images(support: Support, label: Hashable, more: Prepared) -> Support:
    """These images added to a class, which is made when it is new."""
    classes = support.classes if label in support.classes else (*support.classes, label)
    labels = torch.full((len(more),), classes.index(label), dtype=support.labels.dtype)
    return Support(
        torch.cat([support.images, more.images]),
        torch.cat([support.labels, labels]),
        (*support.names, *more.names),
        classes,
    )


def without_class(support: Support, label: Hashable) -> Support:
    """All but one class."""
    gone = place_of(support.classes, label)
    kept = support.labels != gone
    labels = support.labels[kept]
    return Support(
        support.images[kept],
        labels - (labels > gone).to(labels.dtype),
        tuple(name for name, keep in zip(support.names, kept.tolist(), strict=True) if keep),
        tuple(c for c in support.classes if c != label),
    )


def prototypes_with(fitted: Fitted, label: Hashable, features: Tensor) -> Fitted:  # (n, d)
    """The classifier with these features counted in the mean of a class, which is made when it is new."""
    classes, counts = tuple(fitted.classes.tolist()), list(fitted.counts)
    centres, total = fitted.prototypes, features.sum(dim=0)
    if label not in classes:
        centres = torch.cat([centres, (total / len(features))[None]])
        return replace(
            fitted,
            classes=class_array((*classes, label)),
            prototypes=centres,
            counts=(*counts, len(features)),
        )
    place = classes.index(label)
    centres = centres.clone()
    centres[place] = (centres[place] * counts[place] + total) / (counts[place] + len(features))
    counts[place] += len(features)
    return replace(fitted, prototypes=centres, counts=tuple(counts))


def prototypes_without(fitted: Fitted, label: Hashable) -> Fitted:
    """The classifier without one class."""
    classes = tuple(fitted.classes.tolist())
    gone = place_of(classes, label)
    kept = [place for place in range(len(classes)) if place != gone]
    return replace(
        fitted,
        classes=class_array([classes[place] for place in kept]),
        prototypes=fitted.prototypes[kept],
        counts=tuple(fitted.counts[place] for place in kept),
        hints=tuple(hint for hint in fitted.hints if label not in (hint.label, hint.nearer_to)),
    )
