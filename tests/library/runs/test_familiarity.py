"""A model knows images unlike those it was trained on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from diptych.core import Record, Regions
from diptych.runs.familiarity import FILE, Familiarity, described, measured
from diptych.runtime.errors import CheckpointError


def regions(direction: int, score: float, seed: int, count: int = 4) -> Regions:
    drawn = torch.Generator().manual_seed(seed)
    features = torch.eye(16)[direction] + 0.1 * torch.randn(count, 16, generator=drawn)
    scores = score + 0.02 * torch.randn(count, generator=drawn)
    return Regions(torch.rand(count, 4, generator=drawn), scores, (9, 9), features=features)


@pytest.fixture(scope="module")
def known() -> Familiarity:
    """Of images whose features point along the first eight axes."""
    means, scores = zip(*(described(regions(n % 8, 0.8, n)) for n in range(1200)), strict=True)
    return Familiarity.measure(torch.stack(means), torch.stack(scores))


def test_few_images_like_the_training_images_are_taken_for_others(known: Familiarity) -> None:
    fresh = [known.knows(regions(n % 8, 0.8, 5000 + n)) for n in range(1000)]
    assert sum(fresh) > 980


def test_lower_scores_or_other_features_make_an_image_unfamiliar(known: Familiarity) -> None:
    assert not any(known.knows(regions(n % 8, 0.4, n)) for n in range(50)), "scores are lower"
    assert not any(known.knows(regions(8 + n % 8, 0.8, n)) for n in range(50)), "features point elsewhere"


def test_an_image_without_regions_is_unfamiliar(known: Familiarity) -> None:
    assert not known.knows(regions(0, 0.8, 1, count=0))


def test_few_images_keep_what_was_known_unless_several_are_strange(known: Familiarity) -> None:
    from diptych_world.detector.detector import KIND

    for strange, kept in ((1, True), (2, False)):
        found = [Record("r", regions=regions(8 * (n < strange), 0.8, n)) for n in range(20)]
        store: Any = SimpleNamespace(
            contract=SimpleNamespace(extractor=KIND), split=lambda _: range(20), record=found.__getitem__
        )
        assert (measured(store, ["train"], 4, known) is known) is kept


def test_what_is_described(known: Familiarity) -> None:
    one = replace(regions(0, 0.8, 1, count=2), scores=torch.tensor([0.5, 0.7]), features=torch.eye(16)[:2])
    mean, score = described(one)
    torch.testing.assert_close(mean, normalize(torch.eye(16)[:2].sum(0), dim=0))
    assert float(score) == pytest.approx(0.6)
    assert known.centres.norm(dim=1).sub(1).abs().max() < 1e-3


def test_it_is_kept_to_the_bit_and_a_damaged_file_is_refused(known: Familiarity, tmp_path: Path) -> None:
    known.save(tmp_path)
    again = Familiarity.load(tmp_path, 16)
    assert torch.equal(again.centres, known.centres)
    assert again.least == pytest.approx(known.least, rel=1e-6)
    with pytest.raises(CheckpointError, match=r"has centres \(256, 16\), expected \(N, 17\); copy"):
        Familiarity.load(tmp_path, 17)
    (tmp_path / FILE).write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"is damaged .*; copy the model folder again"):
        Familiarity.load(tmp_path, 16)
