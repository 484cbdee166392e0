"""Fixtures that are made once."""

from __future__ import annotations

import pytest
from patterns import PROTOCOL, tiny_backbone, two_domains

from fewshift.data.resident import ResidentDomain
from fewshift.nets.backbone import Backbone
from fewshift.training.tasks import ResidentTasks


@pytest.fixture(scope="session")
def residents() -> dict[str, ResidentDomain]:
    return two_domains()


@pytest.fixture(scope="session")
def tasks(residents: dict[str, ResidentDomain]) -> ResidentTasks:
    return ResidentTasks(residents, PROTOCOL)


@pytest.fixture(scope="session")
def backbone() -> Backbone:
    return tiny_backbone()
