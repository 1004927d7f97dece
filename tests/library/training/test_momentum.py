"""A momentum encoder: weights that follow others after each step, which an objective reads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from diptych.models.momentum import Momentum
from tests.support.cut_batches import Cut, CutBatches
from tests.support.toy_trainer import Always, ToyModel, ToyUpdate, lines, toy_train, weights_hash


class SlowToy(ToyModel):
    def __init__(self) -> None:
        super().__init__(dropout=0.1)
        self.slow = Momentum(self.layers, 0.9)

    def after_step(self) -> None:
        self.slow.follow()


class Distilled(ToyUpdate):
    """The states of the layers are pulled towards those of the slow ones."""

    def losses(self, model: Any, batch: Any) -> Iterator[dict[str, Tensor]]:
        for found in super().losses(model, batch):
            words = model.words(batch.words)
            distance = sum(
                (fast(words) - slow(words)).square().sum()
                for fast, slow in zip(model.layers, model.slow.copy, strict=True)
            )
            found["word"] = found["word"] + distance
            yield found


@pytest.mark.parametrize("passes", [1, 2])
def test_a_resume_after_any_step_is_bitwise_equal(passes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"schedule": Always(Distilled(passes=passes)), "checkpoint_every": 1, "micro_batch": 2}
    toy_train(tmp_path / "whole", model=SlowToy(), **options)
    whole = load_file(tmp_path / "whole" / "weights.safetensors")
    assert float(whole["slow.steps"]) == 6 * passes
    for step in range(1, 6):
        folder = tmp_path / f"cut{step}"
        monkeypatch.setattr(CutBatches, "cut", step)
        with pytest.raises(Cut):
            toy_train(folder, model=SlowToy(), batches=CutBatches(4), **options)
        toy_train(folder, model=SlowToy(), **options)
        assert weights_hash(folder) == weights_hash(tmp_path / "whole")
        assert lines(folder) == lines(tmp_path / "whole")


def test_weights_follow_by_hand() -> None:
    fast = nn.Linear(1, 1, bias=False)
    slow = Momentum(fast, 0.75)
    for value, wanted in ((2.0, 2.0), (6.0, 3.0), (3.0, 3.0)):
        nn.init.constant_(fast.weight, value)
        slow.follow()
        assert slow.copy.weight.item() == wanted
    found = slow(torch.ones(1, 1))
    assert (found.item(), found.requires_grad) == (3, False)
    assert [name for name, one in slow.named_parameters() if one.requires_grad] == []
