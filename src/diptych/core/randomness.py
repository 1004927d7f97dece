"""Random numbers that depend only on a sample's seed and a position, not on the sample's batch."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

_STEP, _MIX = -0x61C8864680B583EB, (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)  # constants of SplitMix64


def uniform(seeds: Int[Tensor, "*n"], *place: Int[Tensor, "..."] | int) -> Float[Tensor, "*n"]:
    """Return a random number in [0, 1) for each seed.

    The number depends only on the seed and on `place`, such as the index of a word. It is the same on every device.

    The algorithm is SplitMix64 (Steele et al. 2014). The state starts at the seed, and each number of `place` is mixed
    in.
    """
    state = _mixed(seeds)
    for number in place:
        state = _mixed(state + number)
    return ((state >> 40) & 0xFFFFFF).float() / 2**24


def pick(chances: Float[Tensor, "*n V"], at: Float[Tensor, "*n"]) -> Int[Tensor, "*n"]:
    """Sample an index with probability proportional to `chances`, by inverse transform sampling.

    `at`: uniform random numbers in [0, 1), one per row.

    An index with chance 0 is never returned.
    """
    sums = chances.cumsum(-1)
    return torch.searchsorted(sums, (at * sums[..., -1])[..., None], right=True)[..., 0]


def _mixed(state: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
    state = state + _STEP
    for shift, factor in zip((30, 27), _MIX, strict=True):
        state = (state ^ _unsigned_shift(state, shift)) * factor
    return state ^ _unsigned_shift(state, 31)


def _unsigned_shift(state: Int[Tensor, "*n"], by: int) -> Int[Tensor, "*n"]:
    return (state >> by) & ((1 << (64 - by)) - 1)
