"""The loop in one process."""

import pytest
from toy import ToyBatches, ToyModel, lines, toy_train, weights_hash


class Cut(Exception):
    pass


class CutBatches(ToyBatches):
    """A run that dies at step `cut`."""

    cut = 0

    def at(self, step, part, parts):
        if step >= type(self).cut:
            raise Cut
        return super().at(step, part, parts)


def test_learns(tmp_path):
    toy_train(tmp_path, steps=60, optimizer={"lr": 0.05})
    losses = [line["losses"]["word"] for line in lines(tmp_path)]
    assert losses[-1] < losses[0] / 2
    assert [line["step"] for line in lines(tmp_path)] == list(range(1, 61))


@pytest.mark.parametrize("kind", ["adamw", "adam", "sgd", "bert_adam"])
def test_a_resume_after_any_step_is_bitwise_equal(tmp_path, kind, monkeypatch):
    options = {"ema": 0.9, "validate_every": 3, "average_best": 2, "micro_batch": 2, "checkpoint_every": 1, "passes": 2}
    options["optimizer"] = {"kind": kind, "warmup_steps": 2}
    result = toy_train(tmp_path / "whole", **options)
    for n in range(1, 6):
        folder = tmp_path / f"cut{n}"
        monkeypatch.setattr(CutBatches, "cut", n)
        with pytest.raises(Cut):
            toy_train(folder, batches=CutBatches(4), **options)
        model = ToyModel(dropout=0.1)
        again = toy_train(folder, model=model, **options)
        assert weights_hash(folder) == weights_hash(tmp_path / "whole")
        assert (again.history, again.best_step) == (result.history, result.best_step)
        assert lines(folder) == lines(tmp_path / "whole")
