"""Masks as printed grids: a dot is closed, a cross is open."""

import pytest
import torch

from diptych.core import (
    BIDIRECTIONAL,
    QUERIES_BEFORE,
    REGIONS_AFTER_TEXT,
    TARGET_AFTER_BOTH,
    TEXT_AFTER_REGIONS,
    UNIMODAL,
    Attention,
    attention_mask,
)


def grid(table: Attention, sizes: tuple[int, int, int]) -> list[str]:
    mask = attention_mask([table], *sizes, present=torch.ones(1, sum(sizes), dtype=torch.bool))[0]
    return ["".join("x" if open_ else "." for open_ in row) for row in mask.tolist()]


GRIDS = [
    (BIDIRECTIONAL, (2, 2, 0), ["xxxx", "xxxx", "xxxx", "xxxx"]),
    (TEXT_AFTER_REGIONS, (2, 3, 0), ["xx...", "xx...", "xxx..", "xxxx.", "xxxxx"]),
    # Query t sees the words before t, and itself; no word and no region sees a query.
    (QUERIES_BEFORE, (1, 2, 2), ["x....", "xx...", "xxx..", "x..x.", "xx..x"]),
    (TARGET_AFTER_BOTH, (1, 1, 2), ["xx..", "xx..", "xxx.", "xxxx"]),
    # A region sees itself alone, and nobody sees it.
    (REGIONS_AFTER_TEXT, (2, 2, 2), ["x.....", ".x....", "..xx..", "..xx..", "..xxx.", "..xxxx"]),
    (UNIMODAL, (2, 2, 1), ["xx...", "xx...", "..xx.", "..xx.", "....x"]),
]


@pytest.mark.parametrize(("table", "sizes", "wanted"), GRIDS, ids=lambda v: v.name if isinstance(v, Attention) else "")
def test_a_table_makes_this_mask(table: Attention, sizes: tuple[int, int, int], wanted: list[str]) -> None:
    assert grid(table, sizes) == wanted


def test_absent_columns_are_closed_but_a_position_always_sees_itself() -> None:
    present = torch.tensor([[True, False, True]])
    mask = attention_mask([BIDIRECTIONAL], 2, 1, 0, present)[0]
    assert mask.tolist() == [[True, False, True], [True, True, True], [True, False, True]]


def test_each_sample_has_its_own_table() -> None:
    present = torch.ones(3, 4, dtype=torch.bool)
    masks = attention_mask([BIDIRECTIONAL, TEXT_AFTER_REGIONS, BIDIRECTIONAL], 2, 2, 0, present)
    assert masks[0].equal(masks[2])
    assert masks[0].all()
    assert not masks[1, 0, 2]
