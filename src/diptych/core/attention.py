"""Who may attend to whom, as a table over three blocks: regions, text, target.

A row is what attends, a column what it attends to; a cell says how far:

    all     every position of that block
    past    positions up to its own number, itself included
    before  positions before its own number
    none    nothing

A position always sees itself, so a row is never empty. Marks ([CLS], [SEP], [IMG], [END]) belong to the block
that the model says. The target block holds what a decoder writes, or queries; its position t stands for word t of the
text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from diptych.runtime.devices import to_device

See = Literal["all", "past", "before", "none"]
Row = tuple[See, See, See]  # to regions, to text, to target


@dataclass(frozen=True)
class Attention:
    """Who attends to whom: a row for each block of the input, with how much it sees of regions, text and target."""

    name: str
    regions: Row
    text: Row
    target: Row = ("all", "all", "past")


BIDIRECTIONAL = Attention("bidirectional", regions=("all", "all", "none"), text=("all", "all", "none"))
# Unified VLP's seq2seq: the text is written after attending to the regions.
TEXT_AFTER_REGIONS = Attention("text after regions", regions=("all", "none", "none"), text=("all", "past", "none"))
# An encoder-decoder: the target is written after both have been read (XGPT, TDEN).
TARGET_AFTER_BOTH = Attention("target after both", regions=("all", "all", "none"), text=("all", "all", "none"))
# MaskedQueries: query t sees the regions and the words before t, which is what decoding asks at step t.
QUERIES_BEFORE = Attention(
    "queries before", regions=("all", "none", "none"), text=("all", "past", "none"), target=("all", "before", "none")
)
# XGPT's TIFG: target t stands for region t, and the text alone may tell of it: regions neither see nor are seen.
REGIONS_AFTER_TEXT = Attention(
    "regions after text", regions=("none", "none", "none"), text=("none", "all", "none"), target=("none", "all", "past")
)
# Two encoders that have not met.
UNIMODAL = Attention(
    "unimodal", regions=("all", "none", "none"), text=("none", "all", "none"), target=("none", "none", "past")
)

TABLES = {
    t.name: t
    for t in (BIDIRECTIONAL, TEXT_AFTER_REGIONS, TARGET_AFTER_BOTH, REGIONS_AFTER_TEXT, QUERIES_BEFORE, UNIMODAL)
}


def attention_mask(
    attention: Sequence[Attention], regions: int, text: int, target: int, present: Bool[Tensor, "B L"]
) -> Bool[Tensor, "B L L"]:
    """True where a row may attend to a column. L = regions, text, target, in that order; absent columns are closed."""
    tables = list(dict.fromkeys(attention))
    masks = torch.stack([_one(table, regions, text, target, present.device) for table in tables])
    which = to_device([tables.index(a) for a in attention], present.device)
    allowed = masks[which] & present[:, None, :]
    return allowed | torch.eye(allowed.shape[-1], dtype=torch.bool, device=present.device)


def _one(table: Attention, regions: int, text: int, target: int, device: torch.device) -> Bool[Tensor, "L L"]:
    numbers = [torch.arange(size, device=device) for size in (regions, text, target)]
    rows = []
    for row, of_row in zip((table.regions, table.text, table.target), numbers, strict=True):
        cells = [_cell(see, of_row[:, None], of_column[None]) for see, of_column in zip(row, numbers, strict=True)]
        rows.append(torch.cat(cells, 1))
    return torch.cat(rows)


def _cell(see: See, row: Tensor, column: Tensor) -> Bool[Tensor, "row column"]:
    match see:
        case "past":
            return column <= row
        case "before":
            return column < row
        case _:
            return torch.full((row.shape[0], column.shape[1]), see == "all", device=row.device)
