"""Post-norm transformer layers as in BERT, and what a decoder remembers of them.

x ── self-attention ── dropout ── + ── norm ── inner ── GELU ── outer ── dropout ── + ── norm
 └───────────────────────────────┘       └──────────────────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.models.dropout import Dropout
from diptych.models.rows import Rows, whole
from diptych.models.system import ModelConfig

FUSED = ("cuda",)  # devices on which attention is one kernel, which keeps no scores
MULTIPLE = 8  # of positions there: such sizes lie as a GPU's matrix units want them
CLOSED = -10000.0  # BERT's: far below any score, yet finite


@dataclass(frozen=True)
class LayerSizes:
    width: int  # D
    heads: int  # H
    ffn: int
    dropout: float
    attention_dropout: float
    norm_eps: float

    @classmethod
    def of(cls, shape: ModelConfig) -> LayerSizes:
        return cls(shape.width, shape.heads, shape.ffn, shape.dropout, shape.attention_dropout, shape.norm_eps)


class SelfAttention(nn.Module):
    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.heads, self.size = sizes.heads, sizes.width // sizes.heads
        self.qkv = nn.Linear(sizes.width, 3 * sizes.width)
        self.out = nn.Linear(sizes.width, sizes.width)
        self.dropout = Dropout(sizes.attention_dropout)

    def queries(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B H L d"]:
        """The first third of `project`, for rows that attend to the states of others."""
        width = x.shape[-1]
        return self._by_head(F.linear(x, self.qkv.weight[:width], self.qkv.bias[:width]))

    def keys_values(self, x: Float[Tensor, "B P D"]) -> tuple[Float[Tensor, "B H P d"], Float[Tensor, "B H P d"]]:
        """The rest of `project`, for the states that they attend to."""
        width = x.shape[-1]
        rows = F.linear(x, self.qkv.weight[width:], self.qkv.bias[width:])
        return self._by_head(rows[..., :width]), self._by_head(rows[..., width:])

    def among(self, x: Float[Tensor, "N D"], closed: Float[Tensor, "#B 1 #K P"], rows: Rows) -> Float[Tensor, "n D"]:
        """As `forward`, over rows; of those that are read, `rows` alone ask."""
        return self.found(*self.among_slots(x, rows), closed, rows)

    def among_slots(self, x: Float[Tensor, "N D"], rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of `rows`, keys and values of all rows that are read."""
        if rows.within is None:
            return self._thirds(rows.spread(self.qkv(x)))
        width = x.shape[-1]
        both = rows.within.spread(F.linear(x, self.qkv.weight[width:], self.qkv.bias[width:]))
        return self.asking(rows.own(x), rows), self._by_head(both[..., :width]), self._by_head(both[..., width:])

    def asking(self, own: Float[Tensor, "n D"], rows: Rows) -> Float[Tensor, "B H K d"]:
        """The queries of rows."""
        width = own.shape[-1]
        return self._by_head(rows.spread(F.linear(own, self.qkv.weight[:width], self.qkv.bias[:width])))

    def found(
        self, q: Tensor, k: Tensor, v: Tensor, closed: Float[Tensor, "#B 1 #K P"], rows: Rows
    ) -> Float[Tensor, "n D"]:
        """What rows find, whose queries stand in slots."""
        mixed: Tensor = self.out(rows.gather(self._weigh(q, k, v, closed)))
        return mixed

    def _by_head(self, rows: Float[Tensor, "B L D"]) -> Float[Tensor, "B H L d"]:
        return rows.view(*rows.shape[:-1], self.heads, self.size).transpose(1, 2)

    def project(self, x: Float[Tensor, "B L D"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values: (B, H, L, d) each."""
        return self._thirds(self.qkv(x))

    def _thirds(self, rows: Float[Tensor, "B L D3"]) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = rows.view(*rows.shape[:-1], 3, self.heads, self.size).permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def forward(self, x: Float[Tensor, "B L D"], closed: Float[Tensor, "#B 1 #L L"]) -> Float[Tensor, "B L D"]:
        return self.mix(*self.project(x), closed)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, closed: Float[Tensor, "#B 1 #L P"]) -> Float[Tensor, "B L D"]:
        mixed: Tensor = self.out(self._weigh(q, k, v, closed))
        return mixed

    def _weigh(self, q: Tensor, k: Tensor, v: Tensor, closed: Float[Tensor, "#B 1 #L P"]) -> Float[Tensor, "B L D"]:
        if q.device.type in FUSED:
            dropout = self.dropout.rate if self.training else 0.0
            mixed = F.scaled_dot_product_attention(q, k, v, closed, dropout)
            return mixed.transpose(1, 2).flatten(2)
        # Plain products: F.scaled_dot_product_attention with a mask takes 1.3 (base) to 2.8 (d128) times as long in
        # bfloat16 on an EPYC with avx512_bf16, and 5% less in fp32.
        weights = self.dropout(torch.softmax(torch.add(closed, q @ k.transpose(-1, -2), alpha=self.size**-0.5), -1))
        found: Tensor = (weights @ v).transpose(1, 2).flatten(2)
        return found

    def recall(
        self, x: Float[Tensor, "N 2 D"], remembered: Remembered, closed: Float[Tensor, "B 1 1 P"], written: int
    ) -> Float[Tensor, "N 2 D"]:
        """Rows (last word, [MASK]) of B x K beams attend to what was read, the words of their beam and themselves.

        What was read is stored once a picture: the rows of its beams are folded into one product, nothing is copied.
        """
        q, k, v = (rows.reshape(closed.shape[0], -1, *rows.shape[1:]) for rows in self.project(x))  # (B, K, H, 2, d)
        keys, values = remembered.keys[..., : written + 2, :], remembered.values[..., : written + 2, :]
        keys[..., written:, :], values[..., written:, :] = k, v
        q = q * self.size**-0.5
        to_read = _fold(q) @ remembered.read_keys.transpose(-1, -2) + closed
        to_words = q @ keys.transpose(-1, -2)
        to_words[..., 0, -1] = CLOSED  # the word does not see the [MASK] that asks for the next one
        weights = torch.softmax(torch.cat([_unfold(to_read), to_words], -1), -1)
        of_read, of_words = torch.split(weights, [closed.shape[-1], written + 2], -1)
        mixed = _unfold(_fold(of_read) @ remembered.read_values) + of_words @ values
        out: Tensor = self.out(mixed.flatten(0, 1).transpose(1, 2).flatten(2))
        return out


def closing(blocked: Bool[Tensor, "#B 1 #K P"], like: Tensor) -> Float[Tensor, "#B 1 #K P"]:
    """What is added to scores so that nobody attends there: once for all layers, of the type that a kernel wants."""
    kind = like.device.type
    fused = kind in FUSED and torch.is_autocast_enabled(kind)
    return blocked.to(torch.get_autocast_dtype(kind) if fused else like.dtype) * CLOSED


def _fold(rows: Float[Tensor, "B K H 2 n"]) -> Float[Tensor, "B H K2 n"]:
    return rows.transpose(1, 2).flatten(2, 3)


def _unfold(rows: Float[Tensor, "B H K2 n"]) -> Float[Tensor, "B K H 2 n"]:
    batch, heads, folded, size = rows.shape
    return rows.view(batch, heads, folded // 2, 2, size).transpose(1, 2)


class Layer(nn.Module):
    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.attention = SelfAttention(sizes)
        self.attention_norm = nn.LayerNorm(sizes.width, sizes.norm_eps)
        self.inner = nn.Linear(sizes.width, sizes.ffn)
        self.outer = nn.Linear(sizes.ffn, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, sizes.norm_eps)
        self.dropout = Dropout(sizes.dropout)

    def forward(
        self, x: Float[Tensor, "*N D"], closed: Float[Tensor, "#B 1 #K P"], *, rows: Rows | None = None
    ) -> Float[Tensor, "*n D"]:
        """Of a padded batch; with `rows`, of rows (N, D), and `closed` is theirs."""
        if rows is None:
            return self.finish(x, self.attention(x, closed))
        return self.finish(rows.own(x), self.attention.among(x, closed, rows))

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """All that follows attention."""
        return self.feed(self.attend(x, mixed))

    def attend(self, x: Tensor, mixed: Tensor) -> Tensor:
        """What attention found is added and normed."""
        normed: Tensor = self.attention_norm(x + self.dropout(mixed))
        return normed

    def feed(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x + self.dropout(self.outer(F.gelu(self.inner(x)))))
        return normed


def run_last(
    layer: nn.Module, x: Float[Tensor, "B L D"], closed: Tensor, *more: Any, requested: Bool[Tensor, "B L"] | None
) -> Float[Tensor, "B L D"]:
    """A layer for what is `requested` alone (None: for all), with rubbish elsewhere."""
    if requested is None:
        every: Tensor = layer(x, closed, *more)
        return every
    rows = Rows.of(requested, within=Rows.every(*requested.shape))
    return rows.put(layer(x.flatten(0, 1), rows.cut(closed), *more, rows=rows))


class Transformer(nn.Module):
    def __init__(self, sizes: LayerSizes, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(layers))

    def forward(self, x: Float[Tensor, "B L D"], allowed: Bool[Tensor, "B L L"]) -> list[Float[Tensor, "B L D"]]:
        """What went in and the states after each layer."""
        length, more = x.shape[1], -x.shape[1] % MULTIPLE if x.device.type in FUSED else 0
        if more:  # positions that nobody attends to
            x, allowed = F.pad(x, (0, 0, 0, more)), F.pad(allowed, (0, more, 0, more))
        closed, states = closing(~allowed[:, None], x), [x]
        for layer in self.layers:
            states.append(layer(states[-1], closed))
        return [state[:, :length] for state in states] if more else states

    def last(
        self,
        x: Float[Tensor, "B L D"],
        allowed: Bool[Tensor, "B L L"],
        present: Bool[Tensor, "B L"],
        requested: Bool[Tensor, "B L"] | None = None,
    ) -> Float[Tensor, "B L D"]:
        """The final states of the positions that are there, of those that are `requested` alone; rubbish elsewhere.

        Padding passes no layer where there is much of it (CPU), and the last layer is run for what is asked.
        """
        if whole(x):
            return self.forward(x, allowed)[-1]
        here = Rows.worth(present if requested is None else present | requested)
        last = here if requested is None else Rows.of(requested, within=here)
        rows, closed = here.take(x), closing(~here.cut_both(allowed)[:, None], x)
        for layer in self.layers[:-1]:
            rows = layer(rows, closed, rows=here)
        return last.put(self.layers[-1](rows, closing(~last.cut_both(allowed)[:, None], x), rows=last))

    def read(
        self, x: Float[Tensor, "B L D"], allowed: Bool[Tensor, "B L L"], room: int
    ) -> tuple[Float[Tensor, "B D"], Memory]:
        """Read all rows but the last, which asks for the first word: its state, and a memory of the others."""
        closed, layers = closing(~allowed[:, None], x), []
        for layer in self.layers:
            assert isinstance(layer, Layer)
            if layer is self.layers[-1]:  # of which the last row alone is read
                k, v = layer.attention.keys_values(x)
                x, closed = x[:, -1:], closed[:, :, -1:]
                q = layer.attention.queries(x)
            else:
                q, k, v = layer.attention.project(x)
            mixed = layer.attention.mix(q, k, v, closed)
            batch, heads, _, size = k.shape
            # One place more than words: [MASK] stands behind the last word while it asks.
            keys, values = (k.new_empty(batch, 1, heads, room + 1, size) for _ in range(2))
            layers.append(Remembered(k[:, :, :-1], v[:, :, :-1], keys, values))
            x = layer.finish(x, mixed)
        return x[:, -1], Memory(layers, closed[:, :, -1:, :-1])

    def write(self, x: Float[Tensor, "N 2 D"], memory: Memory) -> Float[Tensor, "N D"]:
        """One word more for every beam: the state of the [MASK] behind it."""
        for layer, remembered in zip(self.layers, memory.layers, strict=True):
            assert isinstance(layer, Layer)
            x = layer.finish(x, layer.attention.recall(x, remembered, memory.closed, memory.written))
        memory.written += 1
        return x[:, 1]


@dataclass
class Remembered:
    """Keys and values of one layer: of what was read, once a picture, and of what each beam has written."""

    read_keys: Float[Tensor, "B H P d"]
    read_values: Float[Tensor, "B H P d"]
    keys: Float[Tensor, "B K H room d"]
    values: Float[Tensor, "B K H room d"]


@dataclass
class Beams:
    """What all layers keep of what was written, in one tensor: one copy sorts the beams for a new word.

    A layer's `keys` and `values`, (B, K, H, room, d), are parts of it; they are None before the first word.
    """

    rows: Float[Tensor, "N B K H room d"] | None = None  # the layers' keys and values in turn
    spare: Float[Tensor, "N B K H room d"] | None = None  # to be copied to

    def take(self, layers: Sequence[Any], parents: Int[Tensor, "B K"], written: int) -> None:
        first, beams = layers[0].keys, parents.shape[1]
        if first is None or first.shape[1] == beams == 1:  # one beam goes on with itself
            return
        rows = self.rows
        if rows is None:
            rows = torch.stack([one for layer in layers for one in (layer.keys, layer.values)])
        batch, before = rows.shape[1:3]
        taken = self.spare
        if taken is None or taken.shape[2] != beams:
            taken = rows.new_empty(*rows.shape[:2], beams, *rows.shape[3:])
        if written:
            which = (torch.arange(0, batch * before, before, device=rows.device)[:, None] + parents).flatten()
            begun = (part.flatten(1, 2)[..., :written, :] for part in (rows, taken))
            torch.index_select(next(begun), 1, which, out=next(begun))
        self.rows, self.spare = taken, rows
        for number, layer in enumerate(layers):
            layer.keys, layer.values = taken[2 * number], taken[2 * number + 1]


@dataclass
class Memory:
    """What a decoder remembers. The row of [MASK] that asks for a word is never kept."""

    layers: list[Remembered]
    closed: Float[Tensor, "B 1 1 P"]  # added to scores: which of the read positions are absent
    written: int = 0  # words so far, the same for all beams
    beams: Beams = field(default_factory=Beams)

    def take(self, parents: Int[Tensor, "B K"]) -> None:
        """Beam k now continues what beam `parents[b, k]` had written."""
        self.beams.take(self.layers, parents, self.written)
