"""Episodes: the planned images with the planned labels, from any source."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

import numpy as np
import pytest
import torch

from fewshift.data.domain import Domain, Item, Pixels
from fewshift.data.episodes import episodes, load_episode, reader
from fewshift.data.pixels import PROTOCOL_84, practical, prepare
from fewshift.data.plan import TaskPlan, plans
from fewshift.data.protocol import FIVE_SHOT, VARYING, free
from fewshift.data.spec import flat_spec
from fewshift.errors import DataError, FewshiftError


@dataclass(frozen=True)
class Patches:
    """Every image has its own size and holds its class and index."""

    broken: Item | None = None
    problem: Exception | None = None

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        if self.problem is not None and self.broken in items:
            raise self.problem
        return [np.full((5 + i % 3, 4 + c % 2, 1 + 2 * (i % 2)), 20 * c + i, np.uint8) for c, i in items]


SPEC = flat_spec("patches", tuple(map(str, range(10))), (18,) * 10, {"train": 3, "test": 7})
DOMAIN = Domain(SPEC, Patches())


def level(images: torch.Tensor) -> list[int]:
    """What the images hold, having checked that they hold one value each."""
    assert torch.equal(images.amin((1, 2, 3)), images.amax((1, 2, 3)))
    return [round(float(value)) for value in (images[:, 0, 0, 0] + 1) * 127.5]


def test_images_and_labels_are_the_planned_ones() -> None:
    for plan in plans(SPEC, "test", VARYING, 4, range(10)):
        episode = load_episode(DOMAIN, plan)
        assert (episode.address, episode.class_ids) == (plan.address, plan.class_ids)
        assert (episode.domain, episode.task.way) == ("patches", plan.way)
        for part, planned in ((episode.task.support, plan.support), (episode.query, plan.query)):
            assert part.images.dtype == torch.float32
            assert part.images.shape[1:] == (3, 84, 84)
            assert part.labels.dtype == torch.int64
            held = [20 * c + i for c, row in zip(plan.class_ids, planned, strict=True) for i in row]
            assert level(part.images) == held
            assert part.labels.tolist() == [label for label, row in enumerate(planned) for _ in row]


def test_support_and_query_own_their_memory() -> None:
    episode = next(episodes(DOMAIN, "test", FIVE_SHOT, 0, [0]))
    for images in (episode.task.support.images, episode.query.images):
        assert images.is_contiguous()
        assert images.untyped_storage().nbytes() == images.numel() * 4


def test_pixels_follow_the_rule() -> None:
    (plan,) = plans(SPEC, "test", free(5, 2, 2), 0, [3])
    items = [(c, i) for c, row in zip(plan.class_ids, plan.support, strict=True) for i in row]
    for rule in (PROTOCOL_84, practical(32)):
        found = load_episode(DOMAIN, plan, rule).task.support.images
        assert torch.equal(found, prepare(DOMAIN.source.read(items), rule))


def test_seen_is_told_only_when_asked() -> None:
    trained = replace(DOMAIN, role="seen")
    for domain, reveal, seen in [
        (trained, False, None),
        (DOMAIN, False, None),
        (trained, True, True),
        (DOMAIN, True, False),
        (replace(DOMAIN, role="valid_unseen"), True, False),
    ]:
        episode = next(episodes(domain, "test", VARYING, 0, [0], reveal_seen=reveal))
        assert episode.task.seen is seen


def test_numbered_and_endless_streams_are_the_same_tasks() -> None:
    endless = list(islice(episodes(DOMAIN, "test", VARYING, 9, count()), 4))
    numbered = list(episodes(DOMAIN, "test", VARYING, 9, range(4)))
    assert [e.address.index for e in endless] == [0, 1, 2, 3]
    for one, other in zip(endless, numbered, strict=True):
        assert one.address == other.address
        assert torch.equal(one.task.support.images, other.task.support.images)
        assert torch.equal(one.query.images, other.query.images)


def broken(problem: Exception) -> tuple[Domain, TaskPlan]:
    (plan,) = plans(SPEC, "test", VARYING, 1, [5])
    return Domain(SPEC, Patches((plan.class_ids[0], plan.query[0][0]), problem)), plan


@pytest.mark.parametrize(
    "problem",
    [DataError("3.tfrecords: record 4 is damaged: copy it again"), OSError(5, "Input/output error")],
)
def test_bad_data_name_the_task(problem: Exception) -> None:
    domain, plan = broken(problem)
    with pytest.raises(DataError, match=r"^task 5 of patches \(test split, seed 1\): ") as caught:
        load_episode(domain, plan)
    assert str(problem) in str(caught.value)


def test_bugs_name_the_task_and_stay_bugs() -> None:
    domain, plan = broken(KeyError("offset"))
    with pytest.raises(
        RuntimeError, match=r"task 5 of patches \(test split, seed 1\): KeyError: 'offset'"
    ) as caught:
        load_episode(domain, plan)
    assert not isinstance(caught.value, FewshiftError)


def test_a_source_that_skips_images_is_noticed() -> None:
    class Skipping(Patches):
        def read(self, items: Sequence[Item]) -> list[Pixels]:
            return super().read(items)[1:]

    (plan,) = plans(SPEC, "test", free(5, 2, 2), 0, [0])
    with pytest.raises(RuntimeError, match="gave 19 images for 20 places"):
        load_episode(Domain(SPEC, Skipping()), plan)


def test_tasks_of_other_domains_are_refused() -> None:
    (plan,) = plans(SPEC, "test", VARYING, 0, [0])
    with pytest.raises(
        FewshiftError, match=r"task 0 of patches .* cannot be read from no domains: give its own"
    ):
        reader([])(plan)
    other = Domain(replace(SPEC, name="coins"), Patches())
    with pytest.raises(ValueError, match="cannot be read from coins"):
        load_episode(other, plan)
