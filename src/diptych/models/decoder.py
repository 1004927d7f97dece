"""Decoder layers (post-norm, as in BERT), and a function that runs them to generate one word at a time.

x ── self-attention ── + ── norm ── attention to an encoder ── + ── norm ── inner ── GELU ── outer ── + ── norm
     (words so far)

`Batch.target` holds the words that a decoder reads, shifted by one; `target_labels` are the words it predicts. A model
stacks layers of one of four kinds:

- `Layer` over words only.
- `Layer` over input and words as one sequence.
- `DecoderLayer`, which attends to words, then to an encoder's states.
- `SharedLayer`, which the encoder uses too.
"""

from collections.abc import Iterable
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from diptych.models.dropout import Dropout
from diptych.models.rows import Rows
from diptych.models.transformer import DecoderCache, KeysValues, Layer, LayerSizes, SelfAttention, closing, run_last

Signal = Literal["flag", "learnt"]


class DecoderLayer(nn.Module):
    """A decoder layer: self-attention over words, attention to an encoder's states, then feed-forward."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.layer = Layer(sizes)  # self-attention and a feed-forward network
        self.cross = SelfAttention(sizes)  # attention to an encoder's states
        self.cross_norm = nn.LayerNorm(sizes.width, sizes.norm_eps)
        self.dropout = Dropout(sizes.dropout)

    def look_up(self, encoded: Float[Tensor, "B P D"]) -> KeysValues:
        """Return the keys and values of the encoder's states.

        These keys and values stay the same while words are generated.
        """
        return self.cross.keys_values(encoded)

    def forward(
        self,
        x: Float[Tensor, "*N D"],
        closed: Float[Tensor, "#B 1 #K U"],
        encoded: Float[Tensor, "B P D"],
        encoded_closed: Float[Tensor, "#B 1 #K P"],
        *,
        rows: Rows | None = None,
    ) -> Float[Tensor, "*n D"]:
        """Return the states of a padded batch (B, L, D), or of rows (N, D) if `rows` is given, as in `Layer`."""
        return _after_both(self, x, closed, self.look_up(encoded), encoded_closed, rows)


class SharedLayer(Layer):
    """A transformer layer that the encoder and the decoder share (XGPT, section 4.2).

    signal  "learnt": a learnt vector marks keys and values that come from the encoder's states, not from the words.
            "flag": nothing is added; only the arguments of `forward` distinguish the two
    after   words attend to words, then to the encoder, with two softmaxes. A learnt signal of the keys has no effect
            here, because it adds the same number to all scores of a softmax.
    joint   words attend to both in one softmax, where the signals of keys and values both have an effect

    Encoder and decoder use the same `forward`, so that FSDP gathers the weights for both.
    """

    def __init__(self, sizes: LayerSizes, cross: Literal["after", "joint"] = "after", signal: Signal = "flag") -> None:
        super().__init__(sizes)
        self.joint = cross == "joint"
        # Learnt vectors that mark the encoder's states: row 0 is added to keys, row 1 to values.
        self.signal = nn.Parameter(torch.zeros(2, sizes.width)) if signal == "learnt" else None
        if not self.joint:
            self.cross_norm = nn.LayerNorm(sizes.width, sizes.norm_eps)

    @property
    def layer(self) -> Layer:
        return self

    @property
    def cross(self) -> SelfAttention:
        return self.attention

    def look_up(self, encoded: Float[Tensor, "B P D"]) -> KeysValues:
        """Return the keys and values of the encoder's states, with the learnt signal added if there is one."""
        keys, values = self.attention.keys_values(encoded)
        if self.signal is None:
            return keys, values
        of_keys, of_values = self.signal.view(2, 1, self.attention.heads, 1, -1).to(keys.dtype)
        return keys + of_keys, values + of_values

    def forward(
        self,
        x: Float[Tensor, "*N D"],
        closed: Float[Tensor, "#B 1 #K U"],
        encoded: Float[Tensor, "B P D"] | None = None,
        encoded_closed: Float[Tensor, "#B 1 #K P"] | None = None,
        *,
        rows: Rows | None = None,
    ) -> Float[Tensor, "*n D"]:
        """Run the layer as an encoder layer, or as a decoder layer if the encoder's states `encoded` are given."""
        if encoded is None or encoded_closed is None:
            return super().forward(x, closed, rows=rows)
        read = self.look_up(encoded)
        if not self.joint:
            return _after_both(self, x, closed, read, encoded_closed, rows)
        q, k, v = self.attention.project(x, rows)
        size = (q.shape[0], 1, q.shape[2], -1)
        both = torch.cat([encoded_closed.expand(size), closed.expand(size)], -1)
        mixed = self.attention.mix(q, torch.cat([read[0], k], 2), torch.cat([read[1], v], 2), both, rows)
        return self.finish(x if rows is None else rows.own(x), mixed)


def _after_both(
    layer: DecoderLayer | SharedLayer,
    x: Float[Tensor, "*N D"],
    closed: Float[Tensor, "#B 1 #K U"],
    read: KeysValues,
    read_closed: Float[Tensor, "#B 1 #K P"],
    rows: Rows | None,
) -> Float[Tensor, "*n D"]:
    """Run a decoder layer in which words attend to words, then to the encoder.

    `read`: keys and values of the encoder's states.
    """
    inner, cross = layer.layer, layer.cross
    x = inner.attend(x if rows is None else rows.own(x), inner.attention(x, closed, rows))
    mixed = cross.mix(cross.queries(x, rows), *read, read_closed, rows)
    return inner.feed(layer.cross_norm(x + layer.dropout(mixed)))


def run_decoder(
    layers: nn.ModuleList,
    x: Float[Tensor, "B U D"],
    closed: Float[Tensor, "#B 1 #K U"],
    *read: Tensor,
    requested: Bool[Tensor, "B U"] | None,
) -> Float[Tensor, "B U D"]:
    """Run all layers and return the final states.

    The last layer computes only the requested positions; other states are undefined.
    """
    for layer in layers[:-1]:
        x = layer(x, closed, *read)
    return run_last(layers[-1], x, closed, *read, requested=requested)


def write_word(layers: Iterable[nn.Module], x: Float[Tensor, "B K D"], memory: DecoderCache) -> Float[Tensor, "B K D"]:
    """Run the layers on the new word of each of K beams. Return the states that predict the next words.

    `x` are embeddings of the new words. Keys and values of earlier words are in `memory`.
    """
    rows = x.flatten(0, 1)[:, None]
    for layer, cache in zip(layers, memory.layers, strict=True):
        if isinstance(layer, DecoderLayer) or (isinstance(layer, SharedLayer) and not layer.joint):
            inner = layer.layer
            rows = inner.attend(rows, inner.attention.recall(rows, cache, memory, joint=False))
            mixed = layer.cross.recall_read(rows, cache, memory)
            rows = inner.feed(layer.cross_norm(rows + layer.dropout(mixed)))
        else:
            assert isinstance(layer, Layer)
            rows = layer.finish(rows, layer.attention.recall(rows, cache, memory))
    memory.written += 1
    return rows[:, 0].view(x.shape)


def closed_of(present: Bool[Tensor, "B P"], like: Tensor) -> Float[Tensor, "B 1 1 P"]:
    """Return the mask that is added to attention scores, so that absent positions are not attended to."""
    return closing(~present[:, None, None], like)


def causal(size: int, like: Tensor) -> Float[Tensor, "1 1 U U"]:
    """Return the causal mask that is added to attention scores. Padding is at the end, so it needs no mask."""
    later = torch.ones(size, size, dtype=torch.bool, device=like.device).triu(1)
    return closing(later[None, None], like)
