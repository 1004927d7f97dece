"""Post-norm transformer layers as in BERT, and the key-value cache of decoding.

x ── self-attention ── dropout ── + ── norm ── inner ── GELU ── outer ── dropout ── + ── norm
 └───────────────────────────────┘       └──────────────────────────────────────────┘
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from diptych.models.dropout import Dropout
from diptych.models.rows import Rows, whole
from diptych.models.system import ModelConfig

FUSED = ("cuda",)  # types of devices on which a fused kernel computes attention
# All backends except cuDNN. Its backward pass gives NaN for a position that may not attend to any other, if the last
# tile of 128 keys is half empty (pytorch/pytorch#196678). On an H100 this happened with 64 positions.
SAFE = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
MULTIPLE = 8  # with fused kernels, positions are padded to a multiple of this
# Attention score of a position that is not attended to. As in BERT, it is far below other scores, but finite.
CLOSED = -10000.0
KeysValues = tuple[Tensor, Tensor]  # keys and values: two tensors (B, H, P, d)


@dataclass(frozen=True)
class LayerSizes:
    """The sizes of a transformer layer."""

    width: int  # size of the states (D)
    heads: int  # number of attention heads (H)
    ffn: int
    dropout: float
    attention_dropout: float
    norm_eps: float

    @classmethod
    def of(cls, shape: ModelConfig) -> LayerSizes:
        return cls(shape.width, shape.heads, shape.ffn, shape.dropout, shape.attention_dropout, shape.norm_eps)


class SelfAttention(nn.Module):
    """Multi-head attention with one matrix for queries, keys and values. It has H heads of size d = D / H.

    `closed` is added to the scores before the softmax. It is CLOSED where a position must not be attended to, else 0.
    If `rows` is given, states are rows (N, D) instead of (B, L, D). Queries are then computed for `rows`, keys and
    values for `rows.within`.
    """

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.heads, self.size = sizes.heads, sizes.width // sizes.heads
        self.qkv = nn.Linear(sizes.width, 3 * sizes.width)
        self.out = nn.Linear(sizes.width, sizes.width)
        self.dropout = Dropout(sizes.attention_dropout)

    def forward(
        self, x: Float[Tensor, "*N D"], closed: Float[Tensor, "#B 1 #K P"], rows: Rows | None = None
    ) -> Float[Tensor, "*n D"]:
        return self.mix(*self.project(x, rows), closed, rows)

    def project(self, x: Float[Tensor, "*N D"], rows: Rows | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each (B, H, L, d)."""
        if rows is not None and rows.within is not None:
            return self.queries(rows.own(x), rows), *self.keys_values(x, rows.within)
        projected = _spread(self.qkv(x), rows)
        q, k, v = projected.view(*projected.shape[:-1], 3, self.heads, self.size).permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def queries(self, x: Float[Tensor, "*n D"], rows: Rows | None = None) -> Float[Tensor, "B H L d"]:
        """Return only the queries."""
        width = x.shape[-1]
        return self._by_head(_spread(F.linear(x, self.qkv.weight[:width], self.qkv.bias[:width]), rows))

    def keys_values(self, x: Float[Tensor, "*N D"], rows: Rows | None = None) -> KeysValues:
        """Return only the keys and values."""
        width = x.shape[-1]
        both = _spread(F.linear(x, self.qkv.weight[width:], self.qkv.bias[width:]), rows)
        return self._by_head(both[..., :width]), self._by_head(both[..., width:])

    def _by_head(self, states: Float[Tensor, "B L D"]) -> Float[Tensor, "B H L d"]:
        return states.view(*states.shape[:-1], self.heads, self.size).transpose(1, 2)

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, closed: Float[Tensor, "#B 1 #K P"], rows: Rows | None = None
    ) -> Float[Tensor, "*n D"]:
        """Compute attention from queries, keys and values, then the output projection."""
        if q.device.type in FUSED:
            dropout = self.dropout.rate if self.training else 0.0
            with sdpa_kernel(SAFE) if k.shape[-2] % 128 == 64 else nullcontext():
                mixed = F.scaled_dot_product_attention(q, k, v, closed, dropout)
        else:
            # In bfloat16 on an EPYC with avx512_bf16, F.scaled_dot_product_attention with a mask takes 1.3 (base)
            # to 2.8 (width 128) times as long as the operations below. In fp32 it takes 5% less time.
            scores = torch.add(closed, q @ k.transpose(-1, -2), alpha=self.size**-0.5)
            mixed = self.dropout(torch.softmax(scores, -1)) @ v
        joined = mixed.transpose(1, 2).flatten(2)
        return cast(Tensor, self.out(joined if rows is None else rows.gather(joined)))

    def recall(
        self, x: Float[Tensor, "N n D"], cache: LayerCache, memory: DecoderCache, joint: bool = True
    ) -> Float[Tensor, "N n D"]:
        """Compute attention of the new rows of N = B x K beams to the beam's words and, if `joint`, to the input.

        A beam has n = 1 new row (a word), or n = 2 (a word, and the [MASK] that predicts the next word; the word does
        not attend to this [MASK]). Keys and values of the input are stored once per image, and all its beams use them
        without copies.
        """
        batch, new = memory.closed.shape[0], x.shape[1]
        q, k, v = (part.view(batch, -1, *part.shape[1:]) for part in self.project(x))  # q, k and v: (B, K, H, n, d)
        keys, values = cache.add(k, v, memory)
        q = q * self.size**-0.5
        scores = q @ keys.transpose(-1, -2)
        if new == 2:
            scores[..., 0, -1] = CLOSED
        if not joint or cache.read is None:
            return self._out(torch.softmax(scores, -1) @ values)
        read_keys, read_values = cache.read
        to_read = _unfold(_fold(q) @ read_keys.transpose(-1, -2) + memory.closed, new)
        weights = torch.softmax(torch.cat([to_read, scores], -1), -1)
        of_read, of_words = torch.split(weights, [read_keys.shape[2], keys.shape[3]], -1)
        return self._out(_unfold(_fold(of_read) @ read_values, new) + of_words @ values)

    def recall_read(self, x: Float[Tensor, "N 1 D"], cache: LayerCache, memory: DecoderCache) -> Float[Tensor, "N 1 D"]:
        """Compute attention of a new word of each beam to the encoder's states only."""
        assert cache.read is not None
        keys, values = cache.read
        q = self.queries(x) * self.size**-0.5
        q = q.view(memory.closed.shape[0], -1, *q.shape[1:])
        weights = torch.softmax(_fold(q) @ keys.transpose(-1, -2) + memory.closed, -1)
        return self._out(_unfold(weights @ values, 1))

    def _out(self, mixed: Float[Tensor, "B K H n d"]) -> Float[Tensor, "N n D"]:
        return cast(Tensor, self.out(mixed.flatten(0, 1).transpose(1, 2).flatten(2)))


def closing(blocked: Bool[Tensor, "#B 1 #K P"], like: Tensor) -> Float[Tensor, "#B 1 #K P"]:
    """Return the mask that is added to attention scores: CLOSED where `blocked`, else 0.

    It already has the data type that the attention kernel needs, so that all layers use it without a conversion.
    """
    kind = like.device.type
    fused = kind in FUSED and torch.is_autocast_enabled(kind)
    return blocked.to(torch.get_autocast_dtype(kind) if fused else like.dtype) * CLOSED


def _spread(states: Tensor, rows: Rows | None) -> Tensor:
    return states if rows is None else rows.spread(states)


def _fold(rows: Float[Tensor, "B K H n d"]) -> Float[Tensor, "B H Kn d"]:
    return rows.transpose(1, 2).flatten(2, 3)


def _unfold(rows: Float[Tensor, "B H Kn d"], new: int) -> Float[Tensor, "B K H n d"]:
    return rows.view(*rows.shape[:2], -1, new, rows.shape[-1]).transpose(1, 2)


class Layer(nn.Module):
    """A transformer layer: self-attention and feed-forward, each followed by residual connection and layer norm."""

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
        """Return the states of a padded batch (B, L, D), or of rows (N, D) if `rows` is given.

        `closed` must have been cut to the rows.
        """
        return self.finish(x if rows is None else rows.own(x), self.attention(x, closed, rows))

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Compute the rest of the layer from the layer's input `x` and the output of attention, `mixed`."""
        return self.feed(self.attend(x, mixed))

    def attend(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add the output of attention, `mixed`, to the input `x`, and apply layer norm."""
        return cast(Tensor, self.attention_norm(x + self.dropout(mixed)))

    def feed(self, x: Tensor) -> Tensor:
        """Apply the feed-forward part."""
        return cast(Tensor, self.norm(x + self.dropout(self.outer(F.gelu(self.inner(x))))))


def run_last(
    layer: nn.Module, x: Float[Tensor, "B L D"], closed: Tensor, *more: Any, requested: Bool[Tensor, "B L"] | None
) -> Float[Tensor, "B L D"]:
    """Run a layer for the requested positions only (None: all). Other states are undefined."""
    if requested is None:
        return cast(Tensor, layer(x, closed, *more))
    rows = Rows.of(requested, within=Rows.every(*requested.shape))
    return rows.put(layer(x.flatten(0, 1), rows.cut(closed), *more, rows=rows))


class Transformer(nn.Module):
    """A stack of transformer layers."""

    def __init__(self, sizes: LayerSizes, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(layers))

    def forward(self, x: Float[Tensor, "B L D"], allowed: Bool[Tensor, "B L L"]) -> list[Float[Tensor, "B L D"]]:
        """Return the input, then the states after each layer.

        `allowed` is True where the position of the row may attend to the position of the column.
        """
        length, more = x.shape[1], -x.shape[1] % MULTIPLE if x.device.type in FUSED else 0
        if more:  # the padding is masked, so no other position attends to it
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
        """Return the final states of the requested positions (None: all present ones). Other states are undefined.

        On a CPU, layers skip padding if that saves enough time. The last layer computes only the requested positions.
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
    ) -> tuple[Float[Tensor, "B D"], DecoderCache]:
        """Run the layers on the input for decoding.

        Return the state of the last position, which predicts the first word, and a cache of the other positions.

        `room`: number of words that the cache can hold.
        """
        closed, layers = closing(~allowed[:, None], x), []
        for layer in self.layers:
            assert isinstance(layer, Layer)
            if layer is self.layers[-1]:  # only the last position's state is read after the last layer
                k, v = layer.attention.keys_values(x)
                x, closed = x[:, -1:], closed[:, :, -1:]
                q = layer.attention.queries(x)
            else:
                q, k, v = layer.attention.project(x)
            mixed = layer.attention.mix(q, k, v, closed)
            batch, heads, _, size = k.shape
            # The cache has one position more than `room`, for the [MASK] after the last word.
            keys, values = (k.new_empty(batch, 1, heads, room + 1, size) for _ in range(2))
            layers.append(LayerCache((k[:, :, :-1], v[:, :, :-1]), keys, values))
            x = layer.finish(x, mixed)
        return x[:, -1], DecoderCache(layers, closed[:, :, -1:, :-1], room + 1)

    def write(self, x: Float[Tensor, "N 2 D"], memory: DecoderCache) -> Float[Tensor, "N D"]:
        """Run the layers on a new word of every beam and the [MASK] after it.

        Return the state of the [MASK], which predicts the next word.
        """
        for layer, cache in zip(self.layers, memory.layers, strict=True):
            assert isinstance(layer, Layer)
            x = layer.finish(x, layer.attention.recall(x, cache, memory))
        memory.written += 1
        return x[:, 1]


@dataclass
class LayerCache:
    """The cached keys and values of a layer: of the input (once per image), and of the words of each beam.

    `read` (of the input) is None if the layer attends to words only. `keys` and `values` are None before the first
    word.
    """

    read: KeysValues | None = None
    keys: Float[Tensor, "B K H room d"] | None = None
    values: Float[Tensor, "B K H room d"] | None = None

    def add(self, k: Tensor, v: Tensor, memory: DecoderCache) -> KeysValues:
        """Append keys and values of new rows (B, K, H, n, d).

        Return the keys and values of all words so far, including the new rows.
        """
        if self.keys is None or self.values is None:
            self.keys, self.values = (k.new_empty(*k.shape[:3], memory.room, k.shape[-1]) for _ in range(2))
        first, end = memory.written, memory.written + k.shape[3]
        self.keys[..., first:end, :], self.values[..., first:end, :] = k, v
        return self.keys[..., :end, :], self.values[..., :end, :]


@dataclass
class DecoderCache:
    """The key-value cache of a decoder, with a LayerCache per layer.

    The row of a [MASK] is overwritten by the next word.

    The words' keys and values of all layers are views of one tensor, so that a single copy reorders the beams.
    """

    layers: list[LayerCache]
    closed: Float[Tensor, "B 1 1 P"]  # attention mask of the input: 0, or CLOSED at padding
    room: int  # maximum number of positions that the cache of a layer holds
    written: int = 0  # number of words generated so far
    # All keys and values in one tensor: keys of layer 1, values of layer 1, keys of layer 2, and so on.
    rows: Float[Tensor, "N B K H room d"] | None = None
    spare: Float[Tensor, "N B K H room d"] | None = None  # buffer for the next reordering of beams

    def take(self, parents: Int[Tensor, "B K"]) -> None:
        """Reorder the beams: the new beam k is a copy of beam `parents[b, k]`."""
        first, beams = self.layers[0].keys, parents.shape[1]
        if first is None or first.shape[1] == beams == 1:  # a single beam needs no reordering
            return
        rows = self.rows
        if rows is None:
            rows = torch.stack([one for layer in self.layers for one in (layer.keys, layer.values) if one is not None])
        batch, before = rows.shape[1:3]
        taken = self.spare
        if taken is None or taken.shape[2] != beams:
            taken = rows.new_empty(*rows.shape[:2], beams, *rows.shape[3:])
        if self.written:
            which = (torch.arange(0, batch * before, before, device=rows.device)[:, None] + parents).flatten()
            source, target = (part.flatten(1, 2)[..., : self.written, :] for part in (rows, taken))
            torch.index_select(source, 1, which, out=target)
        self.rows, self.spare = taken, rows
        for number, layer in enumerate(self.layers):
            layer.keys, layer.values = taken[2 * number], taken[2 * number + 1]
