"""Some positions of a padded batch as rows one after the other, so that no layer is run for the others.

     padded (B, L)         rows (n)       slots (B, K)
     a b . c .        a b c d e       a b c
     . d . . e    <-put-  |  -spread->    d e .
                   -take->   <-gather-

What works on each row by itself works on rows; attention works on slots, of which those without a row are closed.
Finding the rows reads masks, for which a GPU would have to wait: there, nothing is cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from diptych.core import Batch
from diptych.runtime.errors import RecipeError

CUTTING = ("cpu",)  # devices on which rows are found
WORTH = 0.95  # share of the positions from which on it is not worth cutting the others


@dataclass(frozen=True)
class Rows:
    """Rows of a batch in order, or (`home` is None) all of them."""

    batch: int  # B
    length: int  # L
    most: int  # K: rows of one sample at most
    home: Int[Tensor, "n"] | None = None  # where each stands among the B x L positions
    slot: Int[Tensor, "n"] | None = None  # where each stands among the B x K slots
    within: Rows | None = None  # the rows that a layer reads, where it hands back fewer
    which: Int[Tensor, "n"] | None = None  # of those

    @classmethod
    def every(cls, batch: int, length: int) -> Rows:
        return cls(batch, length, length)

    @classmethod
    def of(cls, there: Bool[Tensor, "B L"], within: Rows | None = None) -> Rows:
        """Those that are true; `within` has them all."""
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
        """Those that are there, or all of them where that saves little."""
        if whole(there) or int(there.sum()) >= WORTH * there.numel():
            return cls.every(*there.shape)
        return cls.of(there)

    def before(self, place: int) -> Bool[Tensor, "n 1"]:
        """Which of them stand in front of this position."""
        assert self.home is not None
        return (self.home % self.length < place)[:, None]

    def take(self, padded: Float[Tensor, "B L D"]) -> Float[Tensor, "n D"]:
        return _rows_of(padded.flatten(0, 1), self.home)

    def put(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "B L D"]:
        """Back to where they stand; zeros elsewhere."""
        return _laid(rows, self.home, self.batch, self.length)

    def own(self, rows: Float[Tensor, "N D"]) -> Float[Tensor, "n D"]:
        """Of the rows that a layer reads, those that it hands back."""
        return _rows_of(rows, self.which)

    def spread(self, rows: Shaped[Tensor, "n *D"]) -> Shaped[Tensor, "B K *D"]:
        return _laid(rows, self.slot, self.batch, self.most)

    def gather(self, slots: Float[Tensor, "B K D"]) -> Float[Tensor, "n D"]:
        return _rows_of(slots.flatten(0, 1), self.slot)

    def cut(self, mask: Shaped[Tensor, "#B 1 #L P"]) -> Shaped[Tensor, "#B 1 #K P"]:
        """Of a mask over all positions, what these rows may attend to."""
        if self.home is None or mask.shape[2] == 1:
            return mask
        whole = mask.expand(self.batch, -1, -1, -1)
        return whole[torch.arange(self.batch)[:, None], 0, self._places()][:, None]

    def cut_both(self, allowed: Bool[Tensor, "B L L"]) -> Bool[Tensor, "B K P"]:
        """The same, of what the rows of `within` may be attended to."""
        seen = self.within or self
        rows = self.cut(allowed[:, None])[:, 0]
        if seen.home is None:
            return rows
        columns = rows.gather(2, seen._places()[:, None].expand(-1, rows.shape[1], -1))
        return columns & seen.spread(torch.ones_like(seen.home, dtype=torch.bool))[:, None]

    def _places(self) -> Int[Tensor, "B K"]:
        """The position of each slot; 0 for those without a row."""
        assert self.home is not None
        return self.spread(self.home % self.length)


def whole(like: Tensor) -> bool:
    """Whether nothing is cut: on a GPU, and in a program that is written down for all batches."""
    return like.device.type not in CUTTING or torch.compiler.is_compiling()


def special_tokens_read(batch: Batch, heads: nn.ModuleDict) -> frozenset[str] | None:
    """The special tokens that are read of a batch; None: all states are, or nobody said which."""
    if batch.request is None or whole(batch.boxes):
        return None
    if missing := sorted(batch.request.heads - heads.keys()):
        raise RecipeError(
            f"an objective requests what the head {missing[0]!r} reads, and the model has {', '.join(sorted(heads))}; "
            "`StateRequest.heads` may name only the objective's own `heads`: to read [CLS], one whose `reads` has it"
        )
    read = [getattr(heads[name], "reads", None) for name in batch.request.heads]
    return None if None in read else frozenset[str]().union(*(names for names in read if names is not None))


def requested_mask(
    batch: Batch,
    heads: nn.ModuleDict,
    length: int,
    starts: Mapping[str, int],
    special: Mapping[str, Int[Tensor, "B"] | int],
) -> Bool[Tensor, "B L"] | None:
    """Which positions of a sequence are read; None: all. `starts`: where each block begins. `special`: the positions
    of special tokens."""
    names = special_tokens_read(batch, heads)
    if names is None or batch.request is None:
        return None
    mask = torch.zeros(len(batch), length, dtype=torch.bool)
    for block, start in starts.items():
        chosen: Tensor | None = getattr(batch.request, block)
        if chosen is not None:
            mask[:, start : start + chosen.shape[1]] |= chosen
    for name in names & special.keys():
        mask[torch.arange(len(batch)), special[name]] = True
    return mask


def _rows_of(rows: Tensor, index: Tensor | None) -> Tensor:
    picked: Tensor = rows if index is None else _Select.apply(rows, index)
    return picked


def _laid(rows: Tensor, index: Tensor | None, batch: int, length: int) -> Tensor:
    if index is not None:
        rows = rows.new_zeros(batch * length, *rows.shape[1:]).index_copy_(0, index, rows)
    return rows.reshape(batch, length, *rows.shape[1:])


class _Select(torch.autograd.Function):
    """index_select of rows that are all different, whose gradient is then a copy and no sum."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.count = len(rows)
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return grads[0].new_zeros(ctx.count, *grads[0].shape[1:]).index_copy_(0, index, grads[0]), None
