"""A momentum encoder, which is torch's: weights that follow others after each step, which an objective reads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tests.support.cut_batches import Cut, CutBatches
from tests.support.toy_trainer import Always, ToyModel, ToyUpdate, lines, toy_train, weights_hash


class SlowToy(ToyModel):
    def __init__(self) -> None:
        super().__init__(dropout=0.1)
        self.slow = AveragedModel(self.layers, multi_avg_fn=get_ema_multi_avg_fn(0.9)).requires_grad_(False)

    def after_step(self) -> None:
        self.slow.update_parameters(self.layers)


class Distilled(ToyUpdate):
    """The states of the layers are pulled towards those of the slow ones."""

    def losses(self, model: Any, batch: Any) -> Iterator[dict[str, Tensor]]:
        for found in super().losses(model, batch):
            words = model.words(batch.words)
            distance = sum(
                (fast(words) - slow(words)).square().sum()
                for fast, slow in zip(model.layers, model.slow.module, strict=True)
            )
            found["word"] = found["word"] + distance
            yield found


@pytest.mark.parametrize("passes", [1, 2])
def test_a_resume_after_any_step_is_bitwise_equal(passes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"schedule": Always(Distilled(passes=passes)), "checkpoint_every": 1, "micro_batch": 2}
    toy_train(tmp_path / "whole", model=SlowToy(), **options)
    whole = load_file(tmp_path / "whole" / "weights.safetensors")
    assert float(whole["slow.n_averaged"]) == 6 * passes
    for step in range(1, 6):
        folder = tmp_path / f"cut{step}"
        monkeypatch.setattr(CutBatches, "cut", step)
        with pytest.raises(Cut):
            toy_train(folder, model=SlowToy(), batches=CutBatches(4), **options)
        toy_train(folder, model=SlowToy(), **options)
        assert weights_hash(folder) == weights_hash(tmp_path / "whole")
        assert lines(folder) == lines(tmp_path / "whole")
