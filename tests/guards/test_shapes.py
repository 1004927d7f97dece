"""Signatures are checked while tests run, on every Python that is supported."""

import pytest
import torch
from jaxtyping import TypeCheckError

from diptych.core import BIDIRECTIONAL, StateModel, attention_mask
from tests.support import toy


def test_a_wrong_type_or_shape_is_refused() -> None:
    with pytest.raises(TypeCheckError):
        attention_mask([BIDIRECTIONAL], 1, 1, 1, torch.ones(1, 3))  # numbers, not truth values
    with pytest.raises(TypeCheckError):
        attention_mask([BIDIRECTIONAL], 1, 1, 1, torch.ones(3, dtype=torch.bool))  # no batch


def test_a_model_is_a_model_and_nothing_else_is() -> None:
    assert isinstance(toy.tden(), StateModel)
    assert not isinstance(torch.nn.Linear(1, 1), StateModel)
