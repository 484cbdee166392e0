"""Varied tasks: the same each time, new pictures of the same classes, validation left alone."""

import torch

from fewshift.training.augment import NONE, Augmentation
from fewshift.training.tasks import ResidentTasks
from fewshift.training.varied import VariedTasks
from fewshift.types import Address

TRAIN, VALID = Address(3, "red", "train", 5), Address(3, "red", "valid", 5)


def test_a_task_is_varied_the_same_way_each_time(tasks: ResidentTasks) -> None:
    varied = VariedTasks(tasks, Augmentation(pad=3, flip=True, zoom=0.3))
    first, again, plain = varied.episode(TRAIN), varied.episode(TRAIN), tasks.episode(TRAIN)
    assert torch.equal(first.task.support.images, again.task.support.images)
    assert torch.equal(first.query.images, again.query.images)
    assert torch.equal(first.task.support.labels, plain.task.support.labels)
    assert not torch.allclose(first.task.support.images, plain.task.support.images, atol=0.1)


def test_validation_tasks_stay_as_they_are(tasks: ResidentTasks) -> None:
    varied = VariedTasks(tasks, Augmentation(pad=3))
    assert torch.equal(varied.episode(VALID).query.images, tasks.episode(VALID).query.images)


def test_without_ranges_nothing_is_varied(tasks: ResidentTasks) -> None:
    found = VariedTasks(tasks, NONE).episode(TRAIN).query.images
    torch.testing.assert_close(found, tasks.episode(TRAIN).query.images, atol=1e-5, rtol=0)


def test_a_run_on_varied_tasks_is_another_run(tasks: ResidentTasks) -> None:
    varied = VariedTasks(tasks, Augmentation(pad=3), ("red",))
    assert varied.identity() != tasks.identity()
    assert varied.domains == tasks.domains
    assert varied.has("red", "valid")
