"""Decoder layers with a memory against the same layers without one."""

import pytest
import torch
from torch import Tensor, nn

from diptych.models.decoder import DecoderLayer, SharedLayer, causal, closed_of, write_word
from diptych.models.transformer import CLOSED, DecoderCache, Layer, LayerCache, LayerSizes

SIZES = LayerSizes(width=16, heads=4, ffn=32, dropout=0.0, attention_dropout=0.0, norm_eps=1e-12)
PRESENT = torch.tensor([[True] * 5, [True] * 2 + [False] * 3, [True] * 4 + [False]])


def random(module: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    return module.eval()


def layers(kinds: str) -> list[nn.Module]:
    """w: words alone; j: what was read and the words together; d: words, then the encoder; s, t: XGPT's, after or joint
    with the encoder.
    """
    made = {
        "d": lambda: DecoderLayer(SIZES),
        "s": lambda: SharedLayer(SIZES),
        "t": lambda: SharedLayer(SIZES, "joint"),
    }
    return [random(made.get(kind, lambda: Layer(SIZES))(), n) for n, kind in enumerate(kinds)]


def whole(stack: list[nn.Module], kinds: str, x: Tensor, encoded: Tensor, present: Tensor) -> Tensor:
    """Every word anew, as in training."""
    rows, outward = causal(x.shape[1], x), closed_of(present, x)
    for layer, kind in zip(stack, kinds, strict=True):
        if kind in "dst":
            x = layer(x, rows, encoded, outward)
        elif kind == "w":
            x = layer(x, rows)
        else:
            p = encoded.shape[1]
            closed = torch.full((len(x), 1, p + x.shape[1], p + x.shape[1]), CLOSED)
            closed[..., :, :p] = outward
            closed[..., p:, p:] = rows
            x = layer(torch.cat([encoded, x], 1), closed)[:, p:]
    return x


def memory_of(stack: list[nn.Module], kinds: str, encoded: Tensor, present: Tensor, room: int) -> DecoderCache:
    read = dict.fromkeys("dst", lambda layer: layer.look_up(encoded))
    read["j"] = lambda layer: layer.attention.keys_values(encoded)
    pasts = [LayerCache(read[kind](layer) if kind in read else None) for layer, kind in zip(stack, kinds, strict=True)]
    return DecoderCache(pasts, closed_of(present, encoded), room)


@pytest.mark.parametrize("kinds", ["d", "dd", "wwd", "j", "wj", "ss", "tt"])
@torch.no_grad()
def test_remembering_equals_reading_anew(kinds):
    stack, encoded = layers(kinds), torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(9))
    generator = torch.Generator().manual_seed(1)
    memory, said = memory_of(stack, kinds, encoded, PRESENT, room=6), torch.zeros(3, 1, 0, 16)
    for step, beams in enumerate([1, 2, 3, 3, 3, 3]):
        parents = torch.randint(0, max(said.shape[1], 1), (3, beams), generator=generator)
        memory.take(parents)
        word = torch.randn(3, beams, 16, generator=generator)
        said = torch.cat([said[torch.arange(3)[:, None], parents], word[:, :, None]], 2)
        ours = write_word(stack, word, memory)
        for beam in range(beams):
            theirs = whole(stack, kinds, said[:, beam], encoded, PRESENT)[:, -1]
            torch.testing.assert_close(ours[:, beam], theirs, atol=2e-6, rtol=1e-5)
        assert memory.written == step + 1


@torch.no_grad()
def test_absent_states_are_not_looked_at():
    stack, encoded, word = layers("wd"), torch.randn(1, 5, 16), torch.randn(1, 1, 16)
    there = torch.tensor([[True, True, False, False, False]])
    ours = write_word(stack, word, memory_of(stack, "wd", encoded, there, 2))
    alone = write_word(stack, word, memory_of(stack, "wd", encoded[:, :2], there[:, :2], 2))
    torch.testing.assert_close(ours, alone, atol=1e-6, rtol=1e-6)


@torch.no_grad()
def test_the_encoder_is_looked_up_once():
    """Positions that pass the projections: P encoder states a picture, and one word a beam."""
    stack, encoded = layers("d"), torch.randn(3, 5, 16)
    memory = memory_of(stack, "d", encoded, PRESENT, room=9)
    kept = memory.layers[0].read
    for beams in (1, 4, 4):
        memory.take(torch.zeros(3, beams, dtype=torch.long))
        write_word(stack, torch.randn(3, beams, 16), memory)
    assert memory.layers[0].read is kept
    assert kept[0].shape == (3, 4, 5, 4)
    assert memory.layers[0].keys.shape == (3, 4, 4, 9, 4)


def test_a_shared_layer_without_an_encoder_is_the_encoder_s_own():
    layer, plain = random(SharedLayer(SIZES, signal="learnt")), Layer(SIZES).eval()
    plain.load_state_dict({name: layer.state_dict()[name] for name in plain.state_dict()})
    assert set(layer.state_dict()) - set(plain.state_dict()) == {"signal", "cross_norm.weight", "cross_norm.bias"}
    x, closed = torch.randn(2, 3, 16), causal(3, torch.zeros(1))
    assert torch.equal(layer(x, closed), plain(x, closed))


@pytest.mark.parametrize("cross", ["after", "joint"])
@torch.no_grad()
def test_a_flag_adds_nothing_to_what_the_encoder_says(cross):
    """It only says which states are read: as a learnt signal of zeros."""
    flag, learnt = random(SharedLayer(SIZES, cross)), SharedLayer(SIZES, cross, "learnt").eval()
    assert flag.signal is None
    learnt.load_state_dict({**flag.state_dict(), "signal": torch.zeros(2, 16)})
    x, encoded = torch.randn(2, 3, 16), torch.randn(2, 4, 16)
    closed = causal(3, x), encoded, torch.zeros(2, 1, 1, 4)
    assert torch.equal(flag(x, *closed), learnt(x, *closed))


@pytest.mark.parametrize(("cross", "keys_count"), [("after", False), ("joint", True)])
@torch.no_grad()
def test_the_signal_tells_where_values_come_from(cross, keys_count):
    """In a softmax of their own all keys of the encoder gain the same; beside the words' keys they do not."""
    layer, x, encoded = random(SharedLayer(SIZES, cross, "learnt")), torch.randn(2, 3, 16), torch.randn(2, 4, 16)

    def out(keys: float, values: float) -> Tensor:
        spread = torch.linspace(-1, 1, 16)
        layer.signal.copy_(torch.stack([keys * spread, values * spread]))
        return layer(x, causal(3, x), encoded, torch.zeros(2, 1, 1, 4))

    nothing = out(0, 0)
    assert (out(0, 1) - nothing).abs().max() > 1e-2
    assert ((out(2, 0) - nothing).abs().max() > 1e-3) == keys_count


def test_masks_as_grids():
    def grid(closed: Tensor) -> list[str]:
        return ["".join(".#"[int(cell < 0)] for cell in row) for row in closed[0, 0].tolist()]

    assert grid(causal(4, torch.zeros(1))) == [".###", "..##", "...#", "...."]
    assert grid(closed_of(PRESENT[1:2], torch.zeros(1))) == ["..###"]
