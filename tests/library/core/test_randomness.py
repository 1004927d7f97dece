import torch

from diptych.core.randomness import pick, uniform


def test_numbers_are_splitmix64() -> None:
    """The first that its reference code (https://prng.di.unimi.it/splitmix64.c) gives for the states 0 and 1234567."""
    first = torch.tensor([0xE220A8397B1DCDAF >> 40, 6457827717110365317 >> 40]) / 2**24
    assert torch.equal(uniform(torch.tensor([0, 1234567])), first)


def test_numbers_belong_to_seed_and_place() -> None:
    seeds = torch.arange(-50, 50).repeat_interleave(100) * 2**55
    places = torch.arange(100).repeat(100)
    drawn = uniform(seeds, places, 3)
    assert torch.equal(drawn[4000:6000], uniform(seeds[4000:6000], places[4000:6000], 3))
    assert not torch.equal(drawn, uniform(seeds, places, 4))
    assert torch.equal(uniform(seeds, places, 3).view(100, 100)[:, 7], uniform(seeds.view(100, 100)[:, 7], 7, 3))
    assert drawn.min() >= 0
    assert drawn.max() < 1
    shares = torch.histc(drawn, 10, 0, 1) / len(drawn)
    assert (shares - 0.1).abs().max() < 0.01
    assert torch.corrcoef(drawn.view(100, 100)).fill_diagonal_(0).abs().max() < 0.5


def test_picked_as_often_as_the_chance_says() -> None:
    chances = torch.tensor([0.0, 0.5, 0.0, 0.3, 0.2, 0.0])
    picked = pick(chances.expand(10_000, 6), uniform(torch.arange(10_000)))
    shares = picked.bincount(minlength=6) / len(picked)
    assert (shares - chances).abs().max() < 0.02
    ends = torch.tensor([0.0, 1 - 2**-24])
    assert pick(chances.expand(2, 6), ends).tolist() == [1, 4], "never one without a chance"
