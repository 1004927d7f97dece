"""Shapes and types are checked in tests."""

import pytest
import torch
from beartype import beartype
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from diptych.core.batch import collate
from tests.support import checking


def twice(x: Float[Tensor, "rows 3"]) -> Float[Tensor, "rows 3"]:
    return x * 2


def cut(x: Float[Tensor, "rows 3"], y: Float[Tensor, "rows 3"]) -> Float[Tensor, "rows 3"]:
    return x[: len(y) - 1]


def found(function, times: int) -> int:
    """How many calls with a wrong shape are refused."""
    refused = 0
    for _ in range(times):
        try:
            function(torch.zeros(2, 4))
        except TypeCheckError:
            refused += 1
    return refused


def test_all_calls_are_checked_and_of_a_test_that_learns_the_first_ones() -> None:
    function = checking.sparing(twice, typechecker=beartype)
    assert found(function, 200) == 200
    for _ in range(2):
        checking.begin(learns=True)
        assert found(function, 200) == checking.FIRST
    checking.begin()
    assert found(function, 200) == 200


@pytest.mark.parametrize("rows", [2, 3])
def test_the_sizes_of_one_call_agree_and_its_result_is_checked(rows: int) -> None:
    with pytest.raises(TypeCheckError, match="return" if rows == 2 else "parameter y"):
        checking.sparing(cut, typechecker=beartype)(torch.zeros(2, 3), torch.zeros(rows, 3))


def test_the_package_is_checked() -> None:
    assert hasattr(collate, "sparing")
    with pytest.raises(TypeCheckError):
        collate(3)  # type: ignore[arg-type]
