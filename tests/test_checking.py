"""Shapes and types are checked in tests: early calls all, later ones now and then, and again in the next test."""

import pytest
import torch
from beartype import beartype
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from diptych.core.batch import collate
from tests import checking


def twice(x: Float[Tensor, "rows 3"]) -> Float[Tensor, "rows 3"]:
    return x * 2


def test_the_first_calls_are_checked_then_each_sixteenth_and_in_the_next_test_again() -> None:
    function, wrong = checking.sparing(twice, typechecker=beartype), torch.zeros(2, 4)
    for _ in range(checking.FIRST):
        with pytest.raises(TypeCheckError, match="twice"):
            function(wrong)
    later = 0
    for _ in range(2 * checking.EVERY):
        try:
            function(wrong)
        except TypeCheckError:
            later += 1
    assert later == 2
    checking.begin()
    with pytest.raises(TypeCheckError):
        function(wrong)


def test_the_package_is_checked() -> None:
    assert hasattr(collate, "sparing")
    with pytest.raises(TypeCheckError):
        collate(3)  # type: ignore[arg-type]
