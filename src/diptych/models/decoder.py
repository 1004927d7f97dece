"""Decoder layers, post-norm as in BERT, and a memory that makes each new word cost one row.

x ── self-attention ── + ── norm ── attention to an encoder ── + ── norm ── inner ── GELU ── outer ── + ── norm
     (words so far)

The target block of a batch holds what a decoder reads (the words, shifted by one), `target_labels` what it must say. A
model stacks layers of four kinds: `Layer` (words alone), `Layer` over what was read and the words together, as in one
stream, `DecoderLayer` (words, then an encoder's states), and `SharedLayer`, which is a layer of the encoder too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from diptych.models.dropout import Dropout
from diptych.models.rows import Rows
from diptych.models.transformer import Beams, Layer, LayerSizes, SelfAttention, closing, run_last

Signal = Literal["flag", "learnt"]
KeysValues = tuple[Float[Tensor, "B H P d"], Float[Tensor, "B H P d"]]


class DecoderLayer(nn.Module):
    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.layer = Layer(sizes)  # self-attention and feed-forward
        self.cross = SelfAttention(sizes)  # attention to an encoder's states
        self.cross_norm = nn.LayerNorm(sizes.width, sizes.norm_eps)
        self.dropout = Dropout(sizes.dropout)

    def look_up(self, encoded: Float[Tensor, "B P D"]) -> KeysValues:
        """Keys and values of the encoder's states: they do not change while words are written."""
        return self.cross.keys_values(encoded)

    def forward(
        self,
        x: Float[Tensor, "*N D"],
        closed: Float[Tensor, "#B 1 #U U"],
        encoded: Float[Tensor, "B P D"],
        encoded_closed: Float[Tensor, "#B 1 #U P"],
        *,
        rows: Rows | None = None,
    ) -> Float[Tensor, "*n D"]:
        """As `Layer`: with `rows`, of rows (N, D)."""
        return _after_both(self, x, closed, self.look_up(encoded), encoded_closed, rows)


class SharedLayer(Layer):
    """A layer of the encoder and of the decoder at once, with one attention for its own states and for the encoder's.

    A signal tells keys and values of the encoder's final states from those of the words (XGPT, section 4.2): a flag,
    which is what `forward` is given, or learnt, and added to them. One module with one `forward`, so that FSDP gathers
    it wherever it is used.

    after   words attend to words, then to the encoder: two softmaxes. There the keys' half of a learnt signal cancels,
            since it adds the same to all that a softmax weighs
    joint   words attend to both in one softmax, and both halves count
    """

    def __init__(self, sizes: LayerSizes, cross: Literal["after", "joint"] = "after", signal: Signal = "flag") -> None:
        super().__init__(sizes)
        self.joint = cross == "joint"
        self.signal = nn.Parameter(torch.zeros(2, sizes.width)) if signal == "learnt" else None  # for keys, for values
        if not self.joint:
            self.cross_norm = nn.LayerNorm(sizes.width, sizes.norm_eps)

    @property
    def layer(self) -> Layer:
        return self

    @property
    def cross(self) -> SelfAttention:
        return self.attention

    def look_up(self, encoded: Float[Tensor, "B P D"]) -> KeysValues:
        keys, values = self.attention.keys_values(encoded)
        if self.signal is None:
            return keys, values
        of_keys, of_values = self.signal.view(2, 1, self.attention.heads, 1, -1).to(keys.dtype)
        return keys + of_keys, values + of_values

    def forward(
        self,
        x: Float[Tensor, "*N D"],
        closed: Float[Tensor, "#B 1 #K M"],
        encoded: Float[Tensor, "B P D"] | None = None,
        encoded_closed: Float[Tensor, "#B 1 #L P"] | None = None,
        *,
        rows: Rows | None = None,
    ) -> Float[Tensor, "*n D"]:
        """As a layer of the encoder; given the encoder's states, as one of the decoder."""
        if encoded is None or encoded_closed is None:
            return super().forward(x, closed, rows=rows)
        read = self.look_up(encoded)
        if not self.joint:
            return _after_both(self, x, closed, read, encoded_closed, rows)
        q, k, v = self.attention.project(x) if rows is None else self.attention.among_slots(x, rows)
        size = (q.shape[0], 1, q.shape[2], -1)
        both = torch.cat([encoded_closed.expand(size), closed.expand(size)], -1)
        keys_values = torch.cat([read[0], k], 2), torch.cat([read[1], v], 2)
        if rows is None:
            return self.finish(x, self.attention.mix(q, *keys_values, both))
        return self.finish(rows.own(x), self.attention.found(q, *keys_values, both, rows))


def _after_both(
    layer: DecoderLayer | SharedLayer,
    x: Float[Tensor, "*N D"],
    closed: Float[Tensor, "#B 1 #U U"],
    read: KeysValues,
    read_closed: Float[Tensor, "#B 1 #U P"],
    rows: Rows | None,
) -> Float[Tensor, "*n D"]:
    """Words attend to words, and then to what was read."""
    inner, cross = layer.layer, layer.cross
    if rows is None:
        x = inner.attend(x, inner.attention(x, closed))
        mixed = cross.mix(cross.queries(x), *read, read_closed)
    else:
        x = inner.attend(rows.own(x), inner.attention.among(x, closed, rows))
        mixed = cross.found(cross.asking(x, rows), *read, read_closed, rows)
    return inner.feed(layer.cross_norm(x + layer.dropout(mixed)))


def run_decoder(
    layers: nn.ModuleList,
    x: Float[Tensor, "B U D"],
    closed: Float[Tensor, "#B 1 #U U"],
    *read: Tensor,
    requested: Bool[Tensor, "B U"] | None,
) -> Float[Tensor, "B U D"]:
    """All layers over words; the last for what is `asked` alone, with rubbish elsewhere."""
    for layer in layers[:-1]:
        x = layer(x, closed, *read)
    return run_last(layers[-1], x, closed, *read, requested=requested)


@dataclass
class Past:
    """Keys and values of one layer: of what is read, once a picture, and of what each beam has written.

    A plain layer attends to both in one softmax, a decoder layer to one after the other.
    """

    read: KeysValues | None = None
    keys: Float[Tensor, "B K H room d"] | None = None  # made with the first word
    values: Float[Tensor, "B K H room d"] | None = None

    def add(self, k: Tensor, v: Tensor, written: int, room: int) -> tuple[Tensor, Tensor]:
        """One word more, (B, K, H, 1, d); hands back all that the beams have written."""
        if self.keys is None or self.values is None:
            self.keys, self.values = (k.new_empty(*k.shape[:3], room, k.shape[-1]) for _ in range(2))
        self.keys[..., written : written + 1, :], self.values[..., written : written + 1, :] = k, v
        return self.keys[..., : written + 1, :], self.values[..., : written + 1, :]


@dataclass
class DecoderMemory:
    """What a decoder remembers: one Past a layer."""

    layers: list[Past]
    closed: Float[Tensor, "B 1 1 P"]  # added to scores: which of the read positions are absent
    room: int  # words at most
    written: int = 0  # words so far, the same for all beams
    beams: Beams = field(default_factory=Beams)

    def take(self, parents: Int[Tensor, "B K"]) -> None:
        """Beam k now continues what beam `parents[b, k]` had written."""
        self.beams.take(self.layers, parents, self.written)


def write_word(layers: Iterable[nn.Module], x: Float[Tensor, "B K D"], memory: DecoderMemory) -> Float[Tensor, "B K D"]:
    """One word more for each of K beams, embedded: the state that the next word is guessed from.

    A row a beam passes the layers; of the words before it, only keys and values are left.
    """
    rows = x.flatten(0, 1)[:, None]
    for layer, past in zip(layers, memory.layers, strict=True):
        if isinstance(layer, DecoderLayer) or (isinstance(layer, SharedLayer) and not layer.joint):
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
    """What is added to scores so that absent positions are not attended to. `present`: (B, P)."""
    return closing(~present[:, None, None], like)


def causal(size: int, like: Tensor) -> Float[Tensor, "1 1 U U"]:
    """Each word sees itself and those before it. Padding stands behind them and needs no closing."""
    later = torch.ones(size, size, dtype=torch.bool, device=like.device).triu(1)
    return closing(later[None, None], like)


def _look_back(
    attention: SelfAttention, rows: Float[Tensor, "N 1 D"], memory: DecoderMemory, past: Past, together: bool
) -> Float[Tensor, "N 1 D"]:
    """A new word attends to the words of its beam, `together` with what was read."""
    batch = memory.closed.shape[0]
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
    """A new word attends to the encoder's states: the rows of a picture's beams are folded into one product."""
    assert past.read is not None
    keys, values = past.read
    q = attention.queries(rows) * attention.size**-0.5
    q = q.view(memory.closed.shape[0], -1, *q.shape[1:])
    weights = torch.softmax(_fold(q) @ keys.transpose(-1, -2) + memory.closed, -1)
    return _out(attention, _unfold(weights @ values))


def _out(attention: SelfAttention, mixed: Float[Tensor, "B K H 1 d"]) -> Float[Tensor, "N 1 D"]:
    out: Tensor = attention.out(mixed.flatten(0, 1).transpose(1, 2).flatten(2))
    return out


def _fold(rows: Float[Tensor, "B K H 1 n"]) -> Float[Tensor, "B H K n"]:
    return rows[..., 0, :].transpose(1, 2)


def _unfold(rows: Float[Tensor, "B H K n"]) -> Float[Tensor, "B K H 1 n"]:
    return rows.transpose(1, 2)[..., None, :]
