"""Decoder layers, post-norm as in BERT, and a memory that makes each new word cost one row.

x ── self-attention ── + ── norm ── attention to an encoder ── + ── norm ── inner ── GELU ── outer ── + ── norm
     (words so far)

The target block of a batch holds what a decoder reads (the words, shifted by one), `target_labels` what it must say. A
model stacks layers of three kinds: `Layer` (words alone), `Layer` over what was read and the words together, as in one
stream, and `DecoderLayer` (words, then an encoder's states).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from diptych.models.dropout import Dropout
from diptych.models.transformer import CLOSED, Layer, LayerSizes, SelfAttention, take_beams

KeysValues = tuple[Float[Tensor, "B H P d"], Float[Tensor, "B H P d"]]


class DecoderLayer(nn.Module):
    """`layer` and `cross`, where given, are shared with another part of the model (XGPT shares them with its encoder).

    What is shared is held but not registered, so that a checkpoint stores it once and an optimizer moves it once.
    """

    def __init__(self, sizes: LayerSizes, layer: Layer | None = None, cross: SelfAttention | None = None) -> None:
        super().__init__()
        self.shared = (layer, cross)
        if layer is None:
            self.own_layer = Layer(sizes)
        if cross is None:
            self.own_cross = SelfAttention(sizes)
        self.cross_norm = nn.LayerNorm(sizes.width, sizes.norm_eps)
        self.dropout = Dropout(sizes.dropout)

    @property
    def layer(self) -> Layer:
        """Self-attention and feed-forward."""
        shared = self.shared[0]
        return self.own_layer if shared is None else shared

    @property
    def cross(self) -> SelfAttention:
        """Attention to an encoder's states."""
        shared = self.shared[1]
        return self.own_cross if shared is None else shared

    def look_up(self, encoded: Float[Tensor, "B P D"]) -> KeysValues:
        """Keys and values of the encoder's states: they do not change while words are written."""
        return self.cross.keys_values(encoded)

    def forward(
        self,
        x: Float[Tensor, "B U D"],
        closed: Float[Tensor, "#B 1 #U U"],
        encoded: Float[Tensor, "B P D"],
        encoded_closed: Float[Tensor, "#B 1 #U P"],
    ) -> Float[Tensor, "B U D"]:
        x = self.layer.attend(x, self.layer.attention(x, closed))
        keys, values = self.look_up(encoded)
        mixed = self.cross.mix(self.cross.queries(x), keys, values, encoded_closed)
        return self.layer.feed(self.cross_norm(x + self.dropout(mixed)))


@dataclass
class Past:
    """Keys and values of one layer: of what is read, once a picture, and of what each beam has written.

    A plain layer looks at both in one softmax, a decoder layer at one after the other.
    """

    read: KeysValues | None = None
    keys: Float[Tensor, "B K H room d"] | None = None  # made with the first word
    values: Float[Tensor, "B K H room d"] | None = None

    def add(self, k: Tensor, v: Tensor, written: int, room: int) -> tuple[Tensor, Tensor]:
        """One word more, (B, K, H, 1, d); hands back all that the beams have written."""
        if self.keys is None or self.values is None:
            empty = k.new_empty(2, *k.shape[:3], room, k.shape[-1])
            self.keys, self.values = empty[0], empty[1]
        self.keys[..., written : written + 1, :], self.values[..., written : written + 1, :] = k, v
        return self.keys[..., : written + 1, :], self.values[..., : written + 1, :]


@dataclass
class DecoderMemory:
    """What a decoder remembers: one Past a layer."""

    layers: list[Past]
    closed: Float[Tensor, "B 1 1 P"]  # added to scores: which of the read positions are absent
    room: int  # words at most
    written: int = 0  # words so far, the same for all beams

    def take(self, parents: Int[Tensor, "B K"]) -> None:
        """Beam k now continues what beam `parents[b, k]` had written."""
        for past in self.layers:
            if past.keys is not None and past.values is not None:
                past.keys = take_beams(past.keys, parents, self.written)
                past.values = take_beams(past.values, parents, self.written)


def write_word(layers: Iterable[nn.Module], x: Float[Tensor, "B K D"], memory: DecoderMemory) -> Float[Tensor, "B K D"]:
    """One word more for each of K beams, embedded: the state that the next word is guessed from.

    A row a beam passes the layers; of the words before it, only keys and values are left.
    """
    rows = x.flatten(0, 1)[:, None]
    for layer, past in zip(layers, memory.layers, strict=True):
        if isinstance(layer, DecoderLayer):
            inner = layer.layer
            rows = inner.attend(rows, _look_back(inner.attention, rows, memory, past, together=False))
            found = _look_out(layer.cross, rows, memory, past)
            rows = inner.feed(layer.cross_norm(rows + layer.dropout(found)))
        else:
            assert isinstance(layer, Layer)
            rows = layer.finish(rows, _look_back(layer.attention, rows, memory, past, together=past.read is not None))
    memory.written += 1
    return rows[:, 0].view(x.shape)


def closed_of(present: Tensor, like: Tensor) -> Float[Tensor, "B 1 1 P"]:
    """What is added to scores so that absent positions are not looked at. `present`: (B, P)."""
    return (~present)[:, None, None].to(like.dtype) * CLOSED


def causal(size: int, like: Tensor) -> Float[Tensor, "1 1 U U"]:
    """Each word sees itself and those before it. Padding stands behind them and needs no closing."""
    later = torch.ones(size, size, dtype=torch.bool, device=like.device).triu(1)
    return later[None, None].to(like.dtype) * CLOSED


def _look_back(
    attention: SelfAttention, rows: Float[Tensor, "N 1 D"], memory: DecoderMemory, past: Past, together: bool
) -> Float[Tensor, "N 1 D"]:
    """A new word looks at the words of its beam, `together` with what was read."""
    batch = len(memory.closed)
    q, k, v = (part.view(batch, -1, *part.shape[1:]) for part in attention.project(rows))  # (B, K, H, 1, d)
    keys, values = past.add(k, v, memory.written, memory.room)
    q = q * attention.size**-0.5
    scores = q @ keys.transpose(-1, -2)
    if together and past.read is not None:
        read_keys, read_values = past.read
        to_read = _fold(q) @ read_keys.transpose(-1, -2) + memory.closed
        weights = torch.softmax(torch.cat([_unfold(to_read), scores], -1), -1)
        of_read, of_words = torch.split(weights, [read_keys.shape[2], keys.shape[3]], -1)
        mixed = _unfold(_fold(of_read) @ read_values) + of_words @ values
    else:
        mixed = torch.softmax(scores, -1) @ values
    return _out(attention, mixed)


def _look_out(
    attention: SelfAttention, rows: Float[Tensor, "N 1 D"], memory: DecoderMemory, past: Past
) -> Float[Tensor, "N 1 D"]:
    """A new word looks at the encoder's states: the rows of a picture's beams are folded into one product."""
    assert past.read is not None
    keys, values = past.read
    q = attention.queries(rows) * attention.size**-0.5
    q = q.view(len(memory.closed), -1, *q.shape[1:])
    weights = torch.softmax(_fold(q) @ keys.transpose(-1, -2) + memory.closed, -1)
    return _out(attention, _unfold(weights @ values))


def _out(attention: SelfAttention, mixed: Float[Tensor, "B K H 1 d"]) -> Float[Tensor, "N 1 D"]:
    out: Tensor = attention.out(mixed.flatten(0, 1).transpose(1, 2).flatten(2))
    return out


def _fold(rows: Float[Tensor, "B K H 1 n"]) -> Float[Tensor, "B H K n"]:
    return rows[..., 0, :].transpose(1, 2)


def _unfold(rows: Float[Tensor, "B H K n"]) -> Float[Tensor, "B K H 1 n"]:
    return rows.transpose(1, 2)[..., None, :]
