"""Sets of images of one domain, and the periods of their learning rate."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fewshift.data.resident import ResidentDomain
from fewshift.training.augment import NONE, Augmentation
from fewshift.training.distributed import Team
from fewshift.training.domain_sets import domain_sets
from fewshift.training.schedule import cosine_doubling


def test_every_set_is_of_one_domain_and_processes_share_them(residents: dict[str, ResidentDomain]) -> None:
    sets = domain_sets(residents, "train", count=4, size=3, seed=0, augmentation=Augmentation(pad=2))
    whole = sets.at(5)
    assert whole.images.shape == (4, 3, 3, 28, 28)
    assert whole.domains.tolist() == [0, 1, 0, 1]
    grey = whole.images[whole.domains == 1]
    torch.testing.assert_close(grey[:, :, 0], grey[:, :, 1])  # one has no colours
    assert not torch.allclose(*whole.images[whole.domains == 0][:, :, :2].unbind(2))
    parts = [sets.at(5, Team(rank, 2)) for rank in range(2)]
    assert torch.equal(torch.stack([p.images for p in parts], dim=1).flatten(0, 1), whole.images)
    assert torch.equal(torch.stack([p.labels for p in parts], dim=1).flatten(0, 1), whole.labels)


def test_labels_name_the_images(residents: dict[str, ResidentDomain]) -> None:
    sets = domain_sets(residents, "valid", count=2, size=4, seed=0, augmentation=NONE)
    found = sets.at(0)
    for place, domain in enumerate(residents.values()):
        rows, labels = domain.rows("valid")
        held = domain.images(torch.from_numpy(rows))
        for image, label in zip(found.images[place], found.labels[place], strict=True):
            (match,) = np.flatnonzero((held == image).flatten(1).all(dim=1))
            assert labels[match] == int(label)


def test_a_favourite_gives_more_than_half_of_the_sets(residents: dict[str, ResidentDomain]) -> None:
    sets = domain_sets(residents, "train", count=300, size=1, seed=0, favourite="grey")
    share = np.mean([sets._domain(number)[0] == 1 for number in range(300)])
    assert 0.68 < share < 0.82  # a half, and half of the other half


def test_periods_double() -> None:
    assert [cosine_doubling(1.0, step, 5) for step in (0, 5, 15, 35)] == [1.0] * 4
    assert cosine_doubling(1.0, 10, 5) == pytest.approx(0.5)
