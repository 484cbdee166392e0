import torch

from fewshift.core.metagrad import root_gradients
from fewshift.core.precond import gram
from fewshift.training.named import add_where, length, together


def some(*shapes: tuple[int, int]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(len(shapes))
    return {
        str(k): torch.randn(shape, generator=generator, dtype=torch.float64) for k, shape in enumerate(shapes)
    }


def test_tensors_of_one_shape_go_together_and_keep_their_names() -> None:
    roots, pulls = some((3, 3), (2, 4), (3, 3)), some((3, 3), (4, 4), (3, 3))
    calls = []

    def pulled(some_roots: torch.Tensor, some_pulls: torch.Tensor) -> torch.Tensor:
        calls.append(len(some_roots))
        return root_gradients(gram, some_roots, some_pulls)

    found = together(pulled, roots, pulls)
    assert list(found) == list(roots)
    assert calls == [2, 1]
    for name in roots:
        torch.testing.assert_close(found[name], root_gradients(gram, roots[name], pulls[name]))


def test_what_is_not_usable_adds_nothing() -> None:
    totals, values = some((2, 2), (3, 1)), some((2, 2), (3, 1))
    before = {name: total.clone() for name, total in totals.items()}
    values["0"][0, 0] = torch.nan
    add_where(torch.tensor(False), totals, values)
    assert all(torch.equal(totals[name], before[name]) for name in totals)
    add_where(torch.tensor(True), totals, {"1": values["1"]})
    torch.testing.assert_close(totals["1"], before["1"] + values["1"])
    flat = torch.cat([total.flatten() for total in totals.values()])
    torch.testing.assert_close(length(totals.values()), flat.norm())
