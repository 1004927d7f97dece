"""Select positions of a padded batch as consecutive rows, so that layers can skip all other positions.

     padded (B, L)         rows (n)       slots (B, K)
     a b . c .        a b c d e       a b c
     . d . . e    <-put-  |  -spread->    d e .
                   -take->   <-gather-

Layers that treat each position separately work on rows. Attention works on slots, and masks slots without a row. To
find the rows, the masks must be on the CPU. A GPU would have to wait for this, so on a GPU all positions are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from diptych.core import Batch
from diptych.runtime.errors import RecipeError

CUTTING = ("cpu",)  # types of devices on which unneeded positions are not computed
WORTH = 0.95  # if more than this share of the positions is needed, all positions are computed


@dataclass(frozen=True)
class Rows:
    """Selected positions of a batch, in order. If `home` is None, all positions are selected."""

    batch: int  # number of samples (B)
    length: int  # number of positions of a sample (L)
    most: int  # maximum number of selected positions of a sample (K)
    home: Int[Tensor, "n"] | None = None  # index of each selected position among the B x L positions
    slot: Int[Tensor, "n"] | None = None  # index of each selected position among the B x K slots
    # If not None, a layer reads the positions of this larger selection, and returns only the rows of the smaller one.
    within: Rows | None = None
    which: Int[Tensor, "n"] | None = None  # index of each selected position in `within`

    @classmethod
    def every(cls, batch: int, length: int) -> Rows:
        """Select all positions."""
        return cls(batch, length, length)

    @classmethod
    def of(cls, there: Bool[Tensor, "B L"], within: Rows | None = None) -> Rows:
        """Select the positions where `there` is True.

        If `within` is given, these positions must be among the positions of `within`.
        """
        batch, length = there.shape
        counts = there.sum(1)
        most = int(counts.max()) if batch else 0
        home = there.flatten().nonzero()[:, 0]
        row = home // max(length, 1)
        slot = row * most + (there.cumsum(1) - 1).flatten()[home]
        if within is None:
            return cls(batch, length, most, home, slot)
        if within.home is None:
            return cls(batch, length, most, home, slot, within, home)
        numbers = torch.empty(batch * length, dtype=torch.long)
        numbers[within.home] = torch.arange(len(within.home))
        return cls(batch, length, most, home, slot, within, numbers[home])

    @classmethod
    def worth(cls, there: Bool[Tensor, "B L"]) -> Rows:
        """Select the positions where `there` is True, or all positions if that would save little (WORTH)."""
        if whole(there) or int(there.sum()) >= WORTH * there.numel():
            return cls.every(*there.shape)
        return cls.of(there)

    def before(self, place: int) -> Bool[Tensor, "n 1"]:
        """Return a mask of the rows whose position in the sample is below `place`."""
        assert self.home is not None
        return (self.home % self.length < place)[:, None]

    def take(self, padded: Float[Tensor, "B L D"]) -> Float[Tensor, "n D"]:
        """Return the selected rows of padded states."""
        return _rows_of(padded.flatten(0, 1), self.home)

    def put(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "B L D"]:
        """Return padded states from rows. Other positions are 0."""
        return _laid(rows, self.home, self.batch, self.length)

    def own(self, rows: Float[Tensor, "N D"]) -> Float[Tensor, "n D"]:
        """Select the rows of this object from the rows of `within`."""
        return _rows_of(rows, self.which)

    def spread(self, rows: Shaped[Tensor, "n *D"]) -> Shaped[Tensor, "B K *D"]:
        """Arrange rows in slots, K per sample. Slots without a row are 0."""
        return _laid(rows, self.slot, self.batch, self.most)

    def gather(self, slots: Float[Tensor, "B K D"]) -> Float[Tensor, "n D"]:
        """Return the rows from their slots."""
        return _rows_of(slots.flatten(0, 1), self.slot)

    def cut(self, mask: Shaped[Tensor, "#B 1 #L P"]) -> Shaped[Tensor, "#B 1 #K P"]:
        """Select the rows of an attention mask, arranged in slots."""
        if self.home is None or mask.shape[2] == 1:
            return mask
        whole = mask.expand(self.batch, -1, -1, -1)
        return whole[torch.arange(self.batch)[:, None], 0, self._places()][:, None]

    def cut_both(self, allowed: Bool[Tensor, "B L L"]) -> Bool[Tensor, "B K P"]:
        """Select the rows of an attention mask, and the columns at the positions of `within`."""
        seen = self.within or self
        rows = self.cut(allowed[:, None])[:, 0]
        if seen.home is None:
            return rows
        columns = rows.gather(2, seen._places()[:, None].expand(-1, rows.shape[1], -1))
        return columns & seen.spread(torch.ones_like(seen.home, dtype=torch.bool))[:, None]

    def _places(self) -> Int[Tensor, "B K"]:
        """Return the position of each slot. It is 0 for slots without a row."""
        assert self.home is not None
        return self.spread(self.home % self.length)


def whole(like: Tensor) -> bool:
    """Return True if all positions must be kept: on a GPU, or while a program is compiled."""
    return like.device.type not in CUTTING or torch.compiler.is_compiling()


def special_tokens_read(batch: Batch, heads: nn.ModuleDict) -> frozenset[str] | None:
    """Return the special tokens whose states the batch requests. None means that all states are needed."""
    if batch.request is None or whole(batch.boxes):
        return None
    if missing := sorted(batch.request.heads - heads.keys()):
        raise RecipeError(
            f"an objective requests the states of the head {missing[0]!r}, but the model has only the heads "
            f"{', '.join(sorted(heads))}; in `StateRequest.heads`, list only heads from the objective's `heads`; "
            "for [CLS], list a head that has [CLS] in `reads`"
        )
    read = [getattr(heads[name], "reads", None) for name in batch.request.heads]
    return None if None in read else frozenset[str]().union(*(names for names in read if names is not None))


def requested_mask(
    batch: Batch,
    heads: nn.ModuleDict,
    length: int,
    offsets: Mapping[str, int],
    special: Mapping[str, Int[Tensor, "B"] | int],
) -> Bool[Tensor, "B L"] | None:
    """Return a mask of the requested positions in a sequence of `length` positions. None means all positions.

    `offsets`: {block: its first position}. `special`: {special token: its position}.
    """
    names = special_tokens_read(batch, heads)
    if names is None or batch.request is None:
        return None
    mask = torch.zeros(len(batch), length, dtype=torch.bool)
    for block, start in offsets.items():
        chosen: Tensor | None = getattr(batch.request, block)
        if chosen is not None:
            mask[:, start : start + chosen.shape[1]] |= chosen
    for name in names & special.keys():
        mask[torch.arange(len(batch)), special[name]] = True
    return mask


def _rows_of(rows: Tensor, index: Tensor | None) -> Tensor:
    return cast(Tensor, rows if index is None else _Select.apply(rows, index))


def _laid(rows: Tensor, index: Tensor | None, batch: int, length: int) -> Tensor:
    if index is not None:
        rows = rows.new_zeros(batch * length, *rows.shape[1:]).index_copy_(0, index, rows)
    return rows.reshape(batch, length, *rows.shape[1:])


class _Select(torch.autograd.Function):
    """index_select for an index without duplicates. Its backward copies gradients, which is faster than adding them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.count = len(rows)
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return grads[0].new_zeros(ctx.count, *grads[0].shape[1:]).index_copy_(0, index, grads[0]), None
