"""How tasks of different sizes are put together into batches of a few shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fewshift.nets.cells import Shape
from fewshift.nets.chunks import rounded

SIZES = (8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448, 480, 512)
SMALL = 64  # tasks of at most so many images share batches; larger ones fill a GPU by themselves
TOGETHER = 512  # images a shared batch
CELL = 8  # images


@dataclass(frozen=True)
class Batch:
    """Which tasks go together, and in what shape."""

    places: tuple[int, ...]
    shape: Shape


def padded_size(images: int) -> int | None:
    """The smallest size on the list that holds so many images; None when none does."""
    return next((size for size in SIZES if size >= images), None)


def packed(counts: Sequence[int]) -> list[Batch]:
    """Batches for tasks of so many images; a task that is alone, or large, gets a batch of its own.

    Where all small tasks have one size, each gets one cell of just that size, and nothing is padded.
    """
    small = [place for place, count in enumerate(counts) if count <= SMALL]
    small = small if len(small) > 1 else []
    alone = [place for place in range(len(counts)) if place not in small]
    batches = [Batch((place,), _alone(counts[place])) for place in alone]
    if not small:
        return batches
    sizes = {counts[place] for place in small}
    cell = sizes.pop() if len(sizes) == 1 else CELL
    for places in groups([-(-counts[place] // cell) for place in small], TOGETHER // cell):
        chosen = tuple(small[p] for p in places)
        cells = sum(-(-counts[place] // cell) for place in chosen)
        batches.append(Batch(chosen, shape_for(len(chosen), cells, cell)))
    return batches


def groups(sizes: Sequence[int], room: int) -> list[list[int]]:
    """Places in order, cut where the room is full; groups about as large as each other."""
    total = sum(sizes)
    count = max(1, -(-total // room))
    found: list[list[int]] = [[]]
    filled = 0
    for place, size in enumerate(sizes):
        share = total * len(found) / count  # where this group should end
        held = sum(sizes[p] for p in found[-1])
        if found[-1] and (held + size > room or filled + size / 2 > share):
            found.append([])
        found[-1].append(place)
        filled += size
    return found


def shape_for(tasks: int, cells: int, cell: int) -> Shape:
    """The next shape on the list: few shapes, few graphs.

    Where a task has several cells there must be more cells than tasks, rounded or not: as many mean one each.
    """
    count, room = rounded(tasks), rounded(cells)
    if tasks < cells and room == count:
        room = rounded(count + 1)
    return Shape(count, room, cell)


def _alone(count: int) -> Shape:
    size = padded_size(count)
    assert size is not None
    return Shape(1, 1, size)
