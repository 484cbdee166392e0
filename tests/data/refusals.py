"""What a refusal said."""

from collections.abc import Callable

import pytest

from fewshift.errors import DataError


def said(work: Callable[[], object]) -> str:
    """The one sentence with which the work was refused."""
    with pytest.raises(DataError) as caught:
        work()
    assert "\n" not in str(caught.value)
    return str(caught.value)
