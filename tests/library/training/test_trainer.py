"""The loop in one process."""

import io
import math
import shutil

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from diptych.runtime.errors import RecipeError, TrainingError
from diptych.training import auto, distribution, trainer
from diptych.training.auto import largest
from diptych.training.checkpoint import load
from diptych.training.ranks import seed_part
from diptych.training.step import Stepper
from tests.support.cut_batches import Cut, CutBatches
from tests.support.toy_trainer import (
    Always,
    Bad,
    Silent,
    ToyBatches,
    ToyModel,
    ToyUpdate,
    lines,
    toy_train,
    weights_hash,
)


def test_learns(tmp_path):
    toy_train(tmp_path, steps=60, optimizer={"lr": 0.05})
    losses = [line["losses"]["word"] for line in lines(tmp_path)]
    assert losses[-1] < losses[0] / 2
    assert [line["step"] for line in lines(tmp_path)] == list(range(1, 61))


@pytest.mark.parametrize(("kind", "log_every"), [("adamw", 1), ("adam", 1), ("sgd", 1), ("bert_adam", 1), ("adamw", 2)])
def test_a_resume_after_any_step_is_bitwise_equal(tmp_path, kind, log_every, monkeypatch):
    """With `log_every` 2 the losses of `kind`, predicted in steps 1, 3 and 5 alone, stand in lines after the cut."""
    options = {"ema": 0.9, "validate_every": 3, "average_best": 2, "micro_batch": 2, "checkpoint_every": 1, "passes": 2}
    options["log_every"] = log_every
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


class InEpochs(ToyBatches):
    steps_per_epoch = 2


def test_validation_comes_after_epochs(tmp_path):
    result = toy_train(tmp_path, steps=7, batches=InEpochs(4), validate_every="1epoch")
    assert [one.step for one in result.history] == [2, 4, 6, 7]
    assert [line["epoch"] for line in lines(tmp_path)] == [0.5, 1, 1.5, 2, 2.5, 3, 3.5]
    again = toy_train(tmp_path / "two", steps=8, batches=InEpochs(4), validate_every="2epochs")
    assert [one.step for one in again.history] == [4, 8]


def test_epochs_need_data_that_has_them(tmp_path):
    with pytest.raises(RecipeError, match="validate_every=1epoch: this data has no epochs; set a number of steps"):
        toy_train(tmp_path, validate_every="1epoch")
    assert not list(tmp_path.iterdir())


def test_a_run_ends_in_the_precision_that_it_began_in(tmp_path, monkeypatch):
    """`auto` may mean another on the machine that goes on; a recipe that names one has it so."""
    monkeypatch.setenv("DIPTYCH_PRECISION", "bf16")
    toy_train(tmp_path / "whole")
    monkeypatch.setattr(CutBatches, "cut", 3)
    with pytest.raises(Cut):
        toy_train(tmp_path / "cut", batches=CutBatches(4))
    shutil.copytree(tmp_path / "cut", tmp_path / "named")
    monkeypatch.setenv("DIPTYCH_PRECISION", "fp32")
    toy_train(tmp_path / "cut")
    toy_train(tmp_path / "named", precision="fp32")
    assert weights_hash(tmp_path / "cut") == weights_hash(tmp_path / "whole") != weights_hash(tmp_path / "named")


@pytest.mark.parametrize("passes", [1, 2])
def test_accumulation_equals_one_big_batch(tmp_path, passes):
    """Parts have different counts, and all but one predict no `kind`: only division by the whole count is right."""
    whole, parts = ToyModel(), ToyModel()
    toy_train(tmp_path / "whole", model=whole, passes=passes, steps=4)
    toy_train(tmp_path / "parts", model=parts, passes=passes, steps=4, micro_batch=1)
    for (name, one), four in zip(whole.state_dict().items(), parts.state_dict().values(), strict=True):
        torch.testing.assert_close(four, one, msg=name)
    for one, four in zip(lines(tmp_path / "whole"), lines(tmp_path / "parts"), strict=True):
        assert four["losses"] == pytest.approx(one["losses"], rel=1e-4)
        assert four["gradient_norm"] == pytest.approx(one["gradient_norm"], rel=1e-4)


def test_parts_as_large_as_memory_takes(tmp_path, monkeypatch):
    """A trial leaves nothing behind: the run is that of the number it found. On a CPU auto is the whole batch."""
    toy_train(tmp_path / "whole", passes=2)
    toy_train(tmp_path / "auto", passes=2, micro_batch="auto")
    assert weights_hash(tmp_path / "auto") == weights_hash(tmp_path / "whole")

    tried, trial = [], Stepper.trial

    def short_of_memory(stepper):
        tried.append(stepper.training.micro_batch)
        trial(stepper)
        if stepper.training.micro_batch > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Stepper, "trial", short_of_memory)
    monkeypatch.setattr(auto, "TRIED", ("cpu",))
    toy_train(tmp_path / "one", passes=2, micro_batch=1)
    assert not tried
    toy_train(tmp_path / "found", passes=2, micro_batch="auto")
    assert tried == [4, 2, 1]
    assert weights_hash(tmp_path / "found") == weights_hash(tmp_path / "one") != weights_hash(tmp_path / "whole")
    with pytest.raises(TrainingError, match=r"a single sample does not fit into the GPU's memory"):
        largest(8, lambda size: False)


def test_the_first_step_by_hand(tmp_path):
    """loss = 1 * word sum / word count + 0.5 * kind sum / kind count; plain gradient descent."""
    model, wanted = ToyModel(), ToyModel()
    toy_train(
        tmp_path,
        model=model,
        steps=1,
        micro_batch=2,
        optimizer={"kind": "sgd", "momentum": 0, "lr": 0.1, "weight_decay": 0, "clip": None, "schedule": "constant"},
    )
    batch = ToyBatches(4).at(0, 0, 1)
    states = wanted(batch.words)
    word = F.cross_entropy(wanted.heads["word"](states).flatten(0, 1), batch.labels.flatten(), ignore_index=-1)
    kind = F.cross_entropy(wanted.heads["kind"](states.mean(1)), batch.kinds, ignore_index=-1)
    (word + 0.5 * kind).backward()
    for (name, p), found in zip(wanted.named_parameters(), model.parameters(), strict=True):
        step = 0 if p.grad is None else 0.1 * p.grad
        torch.testing.assert_close(found, p - step, msg=name)
    (line,) = lines(tmp_path)
    assert line["losses"] == pytest.approx({"word": word.item(), "kind": kind.item()}, rel=1e-5)
    assert line["total"] == pytest.approx((word + 0.5 * kind).item(), rel=1e-5)
    assert line["lr"] == 0.1


def test_each_pass_is_an_optimizer_step(tmp_path):
    toy_train(tmp_path, steps=3, passes=2, checkpoint_every=3)
    state = load_file(tmp_path / "checkpoints" / "step-00000003" / "optimizer.safetensors")
    assert state["words.weight.step"].item() == 6
    assert state["heads.kind.weight.step"].item() == 4  # in steps 1 and 3 only
    assert "heads.unused.weight.step" not in state
    assert list(lines(tmp_path)[0]["losses"]) == ["word", "kind", "word/2", "kind/2"]


def test_nothing_to_predict_changes_nothing(tmp_path):
    """Not NaN, and no decay either."""
    model = ToyModel()
    toy_train(tmp_path, model=model, batches=Silent(4))
    for (name, p), first in zip(model.named_parameters(), ToyModel().parameters(), strict=True):
        assert torch.equal(p, first), name
    assert all((line["losses"], line["total"]) == ({}, 0) for line in lines(tmp_path))


def test_dropout_depends_on_step_pass_and_part(tmp_path):
    """The same number is never drawn twice, and what happened before does not matter."""
    drawn = []

    class Draws(ToyModel):
        def forward(self, words):
            drawn.append(torch.rand(()).item())
            return super().forward(words)

    toy_train(tmp_path / "a", model=Draws(), steps=2, passes=2, micro_batch=2, validate_every=1, validate=noisy)
    first = drawn.copy()
    assert len(set(first)) == len(first) == 8
    drawn.clear()
    toy_train(tmp_path / "b", model=Draws(), steps=2, passes=2, micro_batch=2)
    assert drawn == first
    drawn.clear()
    toy_train(tmp_path / "c", model=Draws(), steps=2, passes=2, micro_batch=2, seed=1)
    assert not set(drawn) & set(first)


def noisy(module, step):
    torch.rand(17)
    return {"goodness": 0.0}


def test_ema_by_hand(tmp_path):
    """Decay min(0.3, (1 + n) / (10 + n)); the average is what is validated and what remains."""
    weights = [ToyModel().words.weight.detach().clone()]

    def watch(module, step):
        weights.append(module.words.weight.detach().clone())
        return {"goodness": step}

    toy_train(tmp_path / "plain", steps=3, validate_every=1, validate=watch)
    average = weights[0]
    for n, decay in enumerate([2 / 11, 3 / 12, 0.3], start=1):
        average = decay * average + (1 - decay) * weights[n]
    plain, model = ToyModel(dropout=0.1), ToyModel(dropout=0.1)
    toy_train(tmp_path / "ema", model=model, steps=3, ema=0.3)
    torch.testing.assert_close(model.words.weight.detach(), average)
    weights.clear()
    toy_train(tmp_path / "seen", model=plain, steps=3, ema=0.3, validate_every=3, validate=watch)
    torch.testing.assert_close(weights[0], average)
    torch.testing.assert_close(plain.words.weight.detach(), average)


def chosen(tmp_path, scores, **options):
    """Trains with scores given; (result, words' weights after each step, final ones)."""
    seen = []

    def watch(module, step):
        assert not module.training
        seen.append(module.words.weight.detach().clone())
        return {"goodness": scores[step - 1], "other": -1.0}

    model = ToyModel()
    result = toy_train(tmp_path, model=model, steps=len(scores), validate_every=1, validate=watch, **options)
    final = load_file(result.weights)["words.weight"]
    assert torch.equal(final, model.words.weight)
    return result, seen, final


def test_the_best_is_chosen_and_of_equals_the_earlier(tmp_path):
    result, seen, final = chosen(tmp_path, [1.0, 3.0, math.nan, 3.0, 2.0])
    assert (result.best_step, result.best_score, result.stopped_early) == (2, 3.0, False)
    assert torch.equal(final, seen[1])
    assert [v.scores["goodness"] for v in result.history if v.step != 3] == [1.0, 3.0, 3.0, 2.0]
    assert lines(tmp_path)[1]["validation"] == {"goodness": 3.0, "other": -1.0}


def test_the_mean_of_the_best(tmp_path):
    _, seen, final = chosen(tmp_path, [5.0, 1.0, 4.0, 6.0, 0.0], average_best=3)
    torch.testing.assert_close(final, (seen[0] + seen[2] + seen[3]) / 3)


def test_the_last_whatever_validation_says(tmp_path):
    result, seen, final = chosen(tmp_path, [5.0, 1.0, 4.0], average_best=0)
    assert (result.best_step, result.best_score) == (3, 4.0)
    assert torch.equal(final, seen[2])


def test_a_damaged_best_checkpoint_is_told_and_the_next_best_takes_its_place(tmp_path):
    """It is found at the end of the run, and again each time the same command is given."""
    scores, said = {2: 1.0, 4: 5.0, 6: 2.0, 8: 3.0}, io.StringIO()
    best = tmp_path / "checkpoints/step-00000004/model.safetensors"

    def damaging(_, step):
        if step == 8:
            best.write_bytes(best.read_bytes()[:-1] + b"x")
        return {"goodness": scores[step]}

    run = {"steps": 8, "validate_every": 2, "keep": 1, "console": Console(file=said, width=500)}
    for told in (damaging, noisy):
        result = toy_train(tmp_path, validate=told, **run)
        assert (result.step, result.best_step, result.best_score) == (8, 8, 3.0)
        assert torch.equal(
            load_file(result.weights)["words.weight"],
            load_file(best.parents[1] / "step-00000008/model.safetensors")["words.weight"],
        )
    warning = f"warning: the final weights do not include step 4, one of the best: {best} has changed since"
    assert said.getvalue().count(warning) == 2


def test_stops_when_the_score_does_not_rise(tmp_path):
    result, seen, final = chosen(tmp_path, [1.0, 2.0, 2.0, 1.5, 9.0], patience=2)
    assert (result.step, result.stopped_early, result.best_step) == (4, True, 2)
    assert torch.equal(final, seen[1])
    again = toy_train(tmp_path, steps=5, validate_every=1, validate=noisy, patience=2, model=ToyModel())
    assert (again.step, again.stopped_early, again.best_step) == (4, True, 2)


def test_a_finished_run_is_not_run_again(tmp_path):
    toy_train(tmp_path)
    before = weights_hash(tmp_path), lines(tmp_path)
    model = ToyModel()
    assert toy_train(tmp_path, model=model, batches=Silent(4)).step == 6
    assert (weights_hash(tmp_path), lines(tmp_path)) == before
    assert torch.equal(load_file(tmp_path / "weights.safetensors")["words.weight"], model.words.weight)


def test_an_unknown_score(tmp_path):
    with pytest.raises(RecipeError, match=r"validation returned no 'goodness'; did you mean goodnes\?"):
        toy_train(tmp_path, validate_every=1, validate=lambda *_: {"goodnes": 1.0})


@pytest.mark.parametrize("gradient_only", [False, True])
def test_a_loss_that_is_not_finite(tmp_path, gradient_only):
    what = "gradient is not finite, although the loss is finite" if gradient_only else "loss of word is not finite"
    where = "" if gradient_only else "; records: toy/6, toy/7"
    said = rf"the {what} \(step 2, pass 1, learning rate 0.0166667{where}\)\. The checkpoint of step 1 is kept\. Try"
    with pytest.raises(TrainingError, match=said):
        toy_train(tmp_path, schedule=Always(Bad(gradient_only=gradient_only)), micro_batch=2, checkpoint_every=1)
    load(tmp_path / "checkpoints" / "step-00000001")


def test_numbers_that_are_read_late_are_the_same(tmp_path, monkeypatch):
    """As of a GPU: a step's numbers are read when the next one has begun, or at once where they are logged or saved."""
    options = {"passes": 2, "micro_batch": 2, "log_every": 3, "checkpoint_every": 5}
    toy_train(tmp_path / "at once", **options)
    monkeypatch.setattr(trainer, "READ_LATE", ("cpu",))
    toy_train(tmp_path / "late", **options)
    assert weights_hash(tmp_path / "late") == weights_hash(tmp_path / "at once")
    one, other = (lines(tmp_path / name) for name in ("late", "at once"))
    assert [(line["step"], line["losses"], line["gradient_norm"]) for line in one] == [
        (line["step"], line["losses"], line["gradient_norm"]) for line in other
    ]


def test_a_line_has_the_last_loss_of_each_thing_that_took_its_turn(tmp_path):
    """The toy predicts `kind` in steps 1, 3, 5 alone; lines are of steps 2, 4, 6."""
    toy_train(tmp_path / "each")
    toy_train(tmp_path / "second", log_every=2)
    each = [line["losses"] for line in lines(tmp_path / "each")]
    assert [sorted(losses) for losses in each[:2]] == [["kind", "word"], ["word"]]
    assert [line["losses"] for line in lines(tmp_path / "second")] == [each[at] | each[at + 1] for at in (0, 2, 4)]


def test_a_loss_that_is_read_late_and_not_finite_is_never_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "READ_LATE", ("cpu",))
    said = r"loss of word is not finite \(step 2, pass 1, .*; records: toy/6, toy/7\)\. No checkpoint was saved yet"
    with pytest.raises(TrainingError, match=said):
        toy_train(tmp_path, schedule=Always(Bad()), micro_batch=2, checkpoint_every=3, log_every=100)
    assert not list((tmp_path / "checkpoints").glob("step-*"))


def test_layers_are_compiled_one_by_one(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda layer, **named: compiled.append((layer, named)))
    model = ToyModel()
    toy_train(tmp_path / "compiled", model=model, steps=1, compile=True)
    assert compiled == [(layer, {"backend": distribution.COMPILER}) for layer in model.layers]
    toy_train(tmp_path / "plain", steps=1)
    assert len(compiled) == len(model.layers)


def test_a_loss_without_a_count(tmp_path):
    class Uncounted(ToyUpdate):
        def counts(self, batch):
            return {"word": super().counts(batch)["word"]}

    with pytest.raises(TrainingError, match="losses but no counts of targets for kind"):
        toy_train(tmp_path, schedule=Always(Uncounted()))


def test_bf16_trains_and_keeps_weights_in_fp32(tmp_path):
    model = ToyModel()
    toy_train(tmp_path, model=model, precision="bf16", steps=40, optimizer={"lr": 0.05})
    losses = [line["losses"]["word"] for line in lines(tmp_path)]
    assert losses[-1] < losses[0] / 2
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    exact = toy_train(tmp_path / "fp32", steps=1)
    assert exact.step == 1
    assert lines(tmp_path)[0]["losses"]["word"] != lines(tmp_path / "fp32")[0]["losses"]["word"]


@pytest.mark.parametrize(
    ("optimizer", "training"),
    [
        ({}, {"device": "cuda"}),
        ({"lr_multipliers": {"nowhere.": 0.1}}, {}),
        ({}, {"batch": 2, "micro_batch": 1, "steps": 1, "device": "no"}),
    ],
)
def test_a_refused_option_begins_nothing(tmp_path, monkeypatch, optimizer, training):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    begun = []
    with pytest.raises(RecipeError):
        toy_train(tmp_path / "run", optimizer=optimizer, begin=lambda: begun.append(1), **training)
    assert not begun
    assert not (tmp_path / "run").exists()
    toy_train(tmp_path / "run", steps=1, begin=lambda: begun.append((tmp_path / "run").exists()))
    assert begun == [False]


def test_each_part_of_a_run_draws_its_own_numbers():
    drawn = set()
    for place in ((1, 11), (11, 1), (1, 1, 1), (0, 111)):
        seed_part(*place)
        drawn.add(float(torch.rand(())))
    assert len(drawn) == 4
