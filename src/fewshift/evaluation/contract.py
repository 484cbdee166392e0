"""The contract that every method keeps, as one suite that says how many checks ran.

`check_method(build(kit))` is all that a new method needs before an evaluation can trust it: the method adapts
to made-up tasks, and the first check that fails raises `ContractBroken` with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.evaluation.contract_bench import Bench, ContractBroken, tensors_of
from fewshift.types import Adapted, Labelled, Method, Task


@dataclass(frozen=True)
class Contract:
    """The checks that a method passed, by name."""

    method: str
    checks: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.method} passed {len(self.checks)} checks"


def has_a_name(bench: Bench) -> None:
    """The name goes into tables, file names and the command line."""
    name = bench.method.name
    if not name or name != name.strip() or any(c in name for c in ",|/\n"):
        raise ContractBroken(f"{name!r} is no name for a table or a command line")


def same_task_twice_gives_the_same_numbers(bench: Bench) -> None:
    """Nothing is drawn from a global generator."""
    task, images = bench.task([3, 3, 3])
    bench.equal(bench.logits(task, images), bench.logits(task, images), "the second time")


def a_task_leaves_no_trace(bench: Bench) -> None:
    """Neither on the next task nor on a classifier made before."""
    (first, images), (other, more) = bench.task([3, 3, 3]), bench.task([2, 4, 1, 1], seed=1)
    classifier = bench.method.adapt(first)
    alone = classifier(images)
    bench.logits(other, more)
    bench.equal(bench.logits(first, images), alone, "after another task")
    bench.equal(classifier(images), alone, "an older classifier, after another task")


def frozen_weights_stay_as_they_are(bench: Bench) -> None:
    """The frozen tensors, or all that can be reached from the method, are the same to the bit after tasks."""
    bench.logits(*bench.task([2, 2, 2]))  # what is made on first use exists from here on
    held = list(tensors_of(bench.method) if bench.frozen is None else bench.frozen)
    if not held:
        raise ContractBroken("no tensor can be reached from the method, so none can be watched")
    before = [tensor.detach().clone() for tensor in held]
    bench.logits(*bench.task([3, 3, 3], seed=1, seen=True))
    bench.logits(*bench.task([2, 4, 1], seed=2, seen=False))
    changed = sum(not torch.equal(now, then) for now, then in zip(held, before, strict=True))
    if changed:
        raise ContractBroken(f"{changed} of {len(held)} tensors of the method changed while it adapted")
    if any(tensor.grad is not None for tensor in held if tensor.is_leaf):
        raise ContractBroken("gradients were left on the method's tensors")


def the_task_stays_as_it_is(bench: Bench) -> None:
    """Support and query images are only read."""
    task, images = bench.task([3, 3, 3])
    before = [t.clone() for t in (task.support.images, task.support.labels, images)]
    bench.logits(task, images)
    for now, then in zip((task.support.images, task.support.labels, images), before, strict=True):
        if not torch.equal(now, then):
            raise ContractBroken("the task's own tensors were written to")


def relabelling_permutes_logits(bench: Bench) -> None:
    """Class numbers carry no meaning."""
    task, images = bench.task([3, 2, 4, 3])
    order = torch.tensor([2, 0, 3, 1], device=bench.device)  # old label -> new label
    renamed = Task(Labelled(task.support.images, order[task.support.labels]), task.way, task.seen)
    bench.same(bench.logits(renamed, images)[:, order], bench.logits(task, images), "after relabelling")


def queries_do_not_see_each_other(bench: Bench) -> None:
    """A method that uses the other queries follows another (transductive) protocol."""
    task, images = bench.task([3, 3, 3])
    classifier = bench.method.adapt(task)
    whole = classifier(images)
    single = torch.cat([classifier(image[None]) for image in images])
    close = bench.tolerance / 10  # one classifier: there are no steps that magnify rounding
    bench.same(single, whole, "one query at a time", close)
    bench.same(classifier(images.flip(0)).flip(0), whole, "queries in another order", close)


def one_shot_works(bench: Bench) -> None:
    """A class of one image is its own centroid."""
    bench.logits(*bench.task([1, 1, 1, 1, 1]))


def unequal_shots_work(bench: Bench) -> None:
    """Classes need not be of one size."""
    bench.logits(*bench.task([1, 7, 2]))


def two_ways_work(bench: Bench) -> None:
    """The smallest task."""
    bench.logits(*bench.task([3, 3]))


def fifty_ways_work(bench: Bench) -> None:
    """The protocol's largest way."""
    bench.logits(*bench.task([1] * 50))


def no_graph_is_left(bench: Bench) -> None:
    """Logits need no gradient, and the switch for gradients is left as it was."""
    task, images = bench.task([3, 3, 3])
    with torch.enable_grad():
        if bench.logits(task, images).requires_grad:
            raise ContractBroken("logits hold on to a graph")
        if not torch.is_grad_enabled():
            raise ContractBroken("gradients were switched off for the caller")


def adapts_without_gradients_too(bench: Bench) -> None:
    """A caller under `no_grad` gets the same classifier."""
    task, images = bench.task([3, 3, 3])
    plain = bench.logits(task, images)
    with torch.no_grad():
        bench.same(bench.logits(task, images), plain, "under no_grad")


def the_oracle_is_owned_up_to(bench: Bench) -> None:
    """Unless the notes say `oracle`, numbers do not depend on `seen`; where it is hidden none is noted."""
    found: dict[bool | None, Adapted] = {}
    images = bench.task([3, 3, 3])[1]
    for seen in (None, True, False):
        task, _ = bench.task([3, 3, 3], seen=seen)
        found[seen] = bench.method.adapt(task)
    if found[None].notes.get("oracle", False):
        raise ContractBroken("the oracle is noted as used though the task does not reveal it")
    for seen in (True, False):
        if not found[seen].notes.get("oracle", False):
            bench.equal(
                found[seen](images), found[None](images), f"seen={seen} changes what was noted as oracle-free"
            )


def bad_tasks_fail_with_a_clear_word(bench: Bench) -> None:
    """Integer images, missing classes, empty supports and labels past the way are a `FewshiftError` each."""
    for what, task in _bad_tasks(bench):
        _refused(bench, what, task)


def _refused(bench: Bench, what: str, task: Task) -> None:
    try:
        bench.method.adapt(task)
    except FewshiftError as problem:
        if not str(problem).strip():
            raise ContractBroken(f"{what}: the error says nothing") from problem
    except Exception as problem:
        raise ContractBroken(f"{what}: {type(problem).__name__} instead of FewshiftError") from problem
    else:
        raise ContractBroken(f"{what} was accepted")


def _bad_tasks(bench: Bench) -> Iterator[tuple[str, Task]]:
    task, _ = bench.task([2, 2, 2])
    images, labels = task.support.images, task.support.labels
    yield "integer images", Task(Labelled((images * 100).to(torch.uint8), labels), 3)
    yield "a missing class", Task(Labelled(images[labels != 1], labels[labels != 1]), 3)
    yield "an empty support", Task(Labelled(images[:0], labels[:0]), 3)
    yield "a label past the way", Task(Labelled(images, labels), 2)
    yield "fewer labels than images", Task(Labelled(images, labels[:-1]), 3)


CHECKS: tuple[Callable[[Bench], None], ...] = (
    has_a_name,
    same_task_twice_gives_the_same_numbers,
    a_task_leaves_no_trace,
    frozen_weights_stay_as_they_are,
    the_task_stays_as_it_is,
    relabelling_permutes_logits,
    queries_do_not_see_each_other,
    one_shot_works,
    unequal_shots_work,
    two_ways_work,
    fifty_ways_work,
    no_graph_is_left,
    adapts_without_gradients_too,
    the_oracle_is_owned_up_to,
    bad_tasks_fail_with_a_clear_word,
)


def check_method(
    method: Method,
    *,
    frozen: Iterable[Tensor] | None = None,
    size: int = 28,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    tolerance: float = 0.02,
) -> Contract:
    """Run every check; the first that fails raises `ContractBroken` with its name.

    `frozen` are the tensors that must never change; a method that keeps scratch memory has to name them, from
    others all that they can reach is watched. `size` is the images' side in pixels. `tolerance` suits single
    precision; give 0.1 where a GPU rounds convolutions to TF32.
    """
    watched = None if frozen is None else tuple(frozen)
    bench = Bench(method, size, device, dtype, tolerance, watched)
    for check in CHECKS:
        _run(check, bench)
    return Contract(method.name, tuple(check.__name__ for check in CHECKS))


def _run(check: Callable[[Bench], None], bench: Bench) -> None:
    words = f"{bench.method.name}, “{check.__name__.replace('_', ' ')}”"
    try:
        check(bench)
    except ContractBroken as broken:
        raise ContractBroken(f"{words}: {broken}") from None
    except Exception as problem:
        raise ContractBroken(f"{words}: {type(problem).__name__}: {problem}") from problem
