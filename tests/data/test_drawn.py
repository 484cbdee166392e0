"""The drawn domains: the same on every machine, different in kind, neither hopeless nor trivial."""

import hashlib
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fewshift.data.domain import Domain
from fewshift.data.drawn import drawn_domain, drawn_suite
from fewshift.data.drawn.dice import Dice
from fewshift.data.episodes import episodes
from fewshift.data.pixels import PixelRule
from fewshift.data.protocol import Protocol
from fewshift.errors import DataError
from fewshift.types import SPLITS

SUITE = drawn_suite()


def test_roles_and_splits() -> None:
    roles = [domain.role for domain in SUITE]
    assert len(SUITE) >= 6
    assert roles.count("unseen") >= 2
    assert roles.count("valid_unseen") == 1
    for domain in SUITE:
        assert domain.provenance.licence == "Apache-2.0"
        assert min(domain.spec.images_per_class) >= 20
        classes = [len(domain.spec.splits[s]) for s in SPLITS]
        assert classes == ([40, 10, 14] if domain.role == "seen" else [0, 0, 40])


@pytest.mark.parametrize("domain", SUITE, ids=lambda domain: domain.name)
def test_an_image_depends_on_its_place_and_the_seed_alone(domain: Domain) -> None:
    items = [(c, i) for c in (0, 3, 20) for i in (0, 1, 29)]
    images = domain.source.read(items)
    again = drawn_domain(domain.name).source.read(items[::-1])[::-1]
    assert all(np.array_equal(a, b) for a, b in zip(images, again, strict=True))
    assert len({image.tobytes() for image in images}) == len(items)
    other = drawn_domain(domain.name, seed=1).source.read(items)
    assert not any(np.array_equal(a, b) for a, b in zip(images, other, strict=True))
    for image in images:
        assert image.dtype == np.uint8
        assert image.shape == ((64, 64, 1) if domain.name == "glyphs" else (64, 64, 3))
        assert image.std() > 5
    copied = pickle.loads(pickle.dumps(domain.source))
    assert np.array_equal(copied.read(items[:1])[0], images[0])


def test_dice_fall_the_same_way_for_ever() -> None:
    dice = Dice("for ever", 1)
    assert [dice.share() for _ in range(3)] == [0.40733059966884677, 0.9224602805211316, 0.3049162688576387]
    assert dice.whole(0, 1000) == 577
    assert dice.grain(2, 2).tolist() == [
        [-0.029411792755126953, -0.039215683937072754],
        [-0.5803921222686768, 0.14509809017181396],
    ]
    values = [dice.about(5, 2) for _ in range(2000)]
    assert min(values) > 1
    assert max(values) < 9
    assert abs(np.mean(values) - 5) < 0.1
    assert {dice.whole(1, 3) for _ in range(99)} == {1, 2, 3}
    noise = dice.grain(50, 50)
    assert abs(noise.mean()) < 0.03
    assert 0.2 < noise.std() < 0.4


MEANS = {  # of the four quarters of image 7 of class 5, seed 0
    "shapes": [70.5, 58.4, 60.5, 55.7],
    "glyphs": [12.0, 40.7, 24.7, 16.3],
    "textures": [115.7, 116.1, 116.9, 116.9],
    "faces": [159.5, 139.5, 126.7, 107.3],
    "landscapes": [101.4, 71.1, 62.1, 56.1],
    "dots": [39.1, 76.7, 55.3, 68.4],
    "plants": [206.1, 206.7, 200.9, 188.2],
    "cells": [159.5, 195.8, 213.6, 211.6],
}


@pytest.mark.parametrize("domain", SUITE, ids=lambda domain: domain.name)
def test_pictures_look_the_same_on_every_machine(domain: Domain) -> None:
    image = domain.source.read([(5, 7)])[0].astype(float)
    quarters = image.reshape(2, 32, 2, 32, -1).mean(axis=(1, 3, 4)).ravel()
    np.testing.assert_allclose(quarters, MEANS[domain.name], atol=1.0)  # Pillow may draw an edge otherwise


def digest_of_some() -> str:
    images = [domain.source.read([(9, 4)])[0].tobytes() for domain in drawn_suite()]
    return hashlib.sha256(b"".join(images)).hexdigest()


@pytest.mark.slow
def test_another_process_draws_the_same() -> None:
    script = "from test_drawn import digest_of_some; print(digest_of_some())"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True, cwd=Path(__file__).parent
    )
    assert run.stdout.strip() == digest_of_some()


@pytest.mark.parametrize("domain", SUITE, ids=lambda domain: domain.name)
def test_nearest_centroid_on_pixels_is_above_chance_and_far_from_perfect(domain: Domain) -> None:
    five = Protocol(min_way=5, max_way=5)
    scores = []
    for episode in episodes(domain, "test", five, 1, range(12), rule=PixelRule(32, "protocol")):
        support, query = episode.task.support, episode.query
        flat = support.images.flatten(1)
        centroids = torch.stack([flat[support.labels == k].mean(dim=0) for k in range(5)])
        nearest = torch.cdist(query.images.flatten(1), centroids).argmin(dim=1)
        scores.append((nearest == query.labels).float().mean().item())
    assert 0.27 < np.mean(scores) < 0.93


def test_an_unknown_domain_is_named() -> None:
    with pytest.raises(DataError, match="there is no drawn domain 'cars': choose one of shapes, glyphs"):
        drawn_domain("cars")
