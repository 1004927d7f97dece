"""Attention masks, defined by tables over the three blocks of the input: regions, text and target.

A row of a table is the block that attends; a column is the block that is attended to. The cell defines which positions
of the column's block can be attended to:

    all     every position
    past    positions up to the index of the attending position, inclusive
    before  positions before that index
    none    no position

A position always attends to itself, so no row of the mask is empty. The model decides to which block special tokens
([CLS], [SEP], [IMG], [END]) belong. The target block holds the words that a decoder reads, or [MASK] queries. Position
t of the target belongs to word t of the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from diptych.runtime.devices import to_device

See = Literal["all", "past", "before", "none"]
Row = tuple[See, See, See]  # a block's attention to (the regions, the text, the target)


@dataclass(frozen=True)
class Attention:
    """A named attention table, with a row for each of the blocks regions, text and target."""

    name: str
    regions: Row
    text: Row
    target: Row = ("all", "all", "past")


BIDIRECTIONAL = Attention("bidirectional", regions=("all", "all", "none"), text=("all", "all", "none"))
# Unified VLP's seq2seq objective: a word attends to the regions and the words before it.
TEXT_AFTER_REGIONS = Attention("text after regions", regions=("all", "none", "none"), text=("all", "past", "none"))
# An encoder-decoder (XGPT, TDEN): the encoder reads regions and text, then the decoder generates the target.
TARGET_AFTER_BOTH = Attention("target after both", regions=("all", "all", "none"), text=("all", "all", "none"))
# MaskedQueries: query t attends to the regions and the words before t, as in step t of decoding.
QUERIES_BEFORE = Attention(
    "queries before", regions=("all", "none", "none"), text=("all", "past", "none"), target=("all", "before", "none")
)
# XGPT's TIFG (section 4.3) generates the regions as the target, so no block may attend to the regions.
REGIONS_AFTER_TEXT = Attention(
    "regions after text", regions=("none", "none", "none"), text=("none", "all", "none"), target=("none", "all", "past")
)
# Two separate encoders: neither the regions nor the text attend to the other.
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
    """Return the attention mask of each sample. It is True where the row's position may attend to the column's.

    `attention` has one table per sample. `regions`, `text` and `target` are the sizes of the blocks, which add up to L.
    Columns of padding (`present` is False) are False, except on the diagonal.
    """
    tables = list(dict.fromkeys(attention))
    masks = torch.stack([_mask(table, (regions, text, target), present.device) for table in tables])
    which = to_device([tables.index(a) for a in attention], present.device)
    allowed = masks[which] & present[:, None, :]
    return allowed | torch.eye(allowed.shape[-1], dtype=torch.bool, device=present.device)


def _mask(table: Attention, sizes: tuple[int, int, int], device: torch.device) -> Bool[Tensor, "L L"]:
    numbers = [torch.arange(size, device=device) for size in sizes]
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
