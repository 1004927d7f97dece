import math

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from diptych.runtime.errors import RecipeError
from diptych.training import OptimizerConfig
from diptych.training.optimizer import BertAdam, build_optimizer, clip, learning_rate, parameter_groups, set_rate
from tests.support.toy_trainer import ToyModel

CPU = torch.device("cpu")


def rates(steps: int = 10, batch: int = 1, **options) -> list[float]:
    config = OptimizerConfig(**{"lr": 1.0} | options)
    return [round(learning_rate(config, step, steps, batch), 4) for step in range(steps)]


def test_linear():
    wanted = [0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    assert rates(schedule="linear", warmup_steps=2) == wanted
    assert rates(schedule="linear", warmup_share=0.2) == wanted


def test_a_run_may_stop_before_its_schedule_ends():
    whole = rates(15, schedule="linear", warmup_share=0.2)
    assert rates(10, schedule="linear", warmup_share=0.2, schedule_steps=15) == whole[:10]
    assert whole[9] > 0.4


def test_bert_starts_at_zero():
    """As warmup_linear of BERT's code: x / warmup, then (x - 1) / (warmup - 1), where x = step / steps."""
    official = [x / 0.2 if x < 0.2 else (x - 1) / (0.2 - 1) for x in (n / 10 for n in range(10))]
    found = rates(schedule="linear", warmup_share=0.2, warmup_from_zero=True)
    assert found == pytest.approx(official, abs=1e-4)


def test_constant():
    assert rates(3, schedule="constant", warmup_steps=2) == [0.5, 1, 1]


def test_inverse_sqrt():
    found = rates(9, schedule="inverse_sqrt", warmup_steps=4)
    assert found[:4] == [0.25, 0.5, 0.75, 1]
    assert found[8] == round(math.sqrt(4 / 9), 4)


def test_cosine():
    found = rates(6, schedule="cosine", warmup_steps=2)
    assert found == [
        0.5,
        1,
        1,
        round((1 + math.cos(math.pi / 4)) / 2, 4),
        0.5,
        round((1 - math.cos(math.pi / 4)) / 2, 4),
    ]


def test_step():
    assert rates(6, schedule="step", milestones=(2, 5), gamma=0.1) == [1, 1, 0.1, 0.1, 0.1, 0.01]
    assert rates(6, schedule="step", decay_every=2, gamma=0.5) == [1, 1, 0.5, 0.5, 0.25, 0.25]


def test_rate_times_batch():
    assert rates(1, batch=256, lr=1e-3, schedule="constant", lr_times_batch=True) == [0.256]
    assert rates(1, batch=256, lr=1e-3, schedule="constant") == [0.001]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warmup_steps": 1, "warmup_share": 0.1}, "are mutually exclusive"),
        ({"clip": 1.0, "clip_each": 1.0}, "are mutually exclusive"),
        ({"schedule": "step"}, "either milestones or decay_every"),
        ({"milestones": (3,)}, "need schedule=step"),
        ({"learning_rate": 1.0}, "Extra inputs"),
        ({"lr": -1.0}, "greater than 0"),
    ],
)
def test_what_does_not_go_together_is_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        OptimizerConfig(**options)


def grouped(**options) -> dict[str, tuple[float, float]]:
    model = ToyModel()
    model.heads["unused"].requires_grad_(False)
    names = {p: name for name, p in model.named_parameters()}
    groups = parameter_groups(model, OptimizerConfig(weight_decay=0.01, **options))
    return {names[p]: (g["multiplier"], g["weight_decay"]) for g in groups for p in g["params"]}


def test_biases_and_norms_are_not_decayed():
    found = grouped()
    assert {name for name, (_, decay) in found.items() if decay == 0} == {
        "layers.0.0.bias",
        "layers.1.0.bias",
        "norm.weight",
        "norm.bias",
        "heads.word.bias",
        "heads.kind.bias",
    }
    assert all(decay == 0.01 for _, decay in grouped(decay_biases_and_norms=True).values())
    assert "heads.unused.weight" not in found  # frozen
    assert "heads.word.weight" not in found  # tied: it goes by its first name
    assert "words.weight" in found


def test_groups_by_longest_prefix():
    found = grouped(lr_multipliers={"layers": 0.1, "layers.1": 0.5})
    assert (found["layers.0.0.weight"][0], found["layers.1.0.weight"][0], found["words.weight"][0]) == (0.1, 0.5, 1)
    optimizer = build_optimizer(ToyModel(), OptimizerConfig(lr_multipliers={"layers": 0.1}), CPU)
    set_rate(optimizer, 2.0)
    assert sorted({group["lr"] for group in optimizer.param_groups}) == [0.2, 2.0]


def test_a_prefix_that_fits_nothing_is_refused():
    with pytest.raises(RecipeError, match=r"no trained parameter starts with 'layer\.0': did you mean layers\.0"):
        grouped(lr_multipliers={"layer.0": 0.1})


def test_nothing_to_train():
    with pytest.raises(RecipeError, match="every parameter of the model is frozen"):
        parameter_groups(ToyModel().requires_grad_(False), OptimizerConfig())


def test_bert_adam_by_hand():
    """Two steps of one number: no bias correction, eps outside the root, decay added to the update."""
    p = nn.Parameter(torch.tensor([2.0]))
    optimizer = BertAdam([p], lr=0.1, betas=(0.9, 0.99), eps=0.5, weight_decay=0.01)
    value, m, v = 2.0, 0.0, 0.0
    for gradient in (3.0, -1.0):
        p.grad = torch.tensor([gradient])
        optimizer.step()
        m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient**2
        value -= 0.1 * (m / (math.sqrt(v) + 0.5) + 0.01 * value)
        assert p.item() == pytest.approx(value, rel=1e-6)


def test_bert_adam_is_the_formula_on_many_tensors():
    """Five steps of BERT's code, written out."""
    torch.manual_seed(0)
    found = [nn.Parameter(torch.randn(shape)) for shape in [(40, 30), (30,), (3, 2, 1, 1)]]
    wanted = [p.detach().clone() for p in found]
    means, squares = ([torch.zeros_like(p) for p in wanted] for _ in range(2))
    optimizer = BertAdam(found, lr=0.01, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01)
    for _ in range(5):
        for number, p in enumerate(found):
            p.grad = torch.randn_like(p)
            means[number] = 0.9 * means[number] + 0.1 * p.grad
            squares[number] = 0.999 * squares[number] + 0.001 * p.grad**2
            update = means[number] / (squares[number].sqrt() + 1e-6) + 0.01 * wanted[number]
            wanted[number] -= 0.01 * update
        optimizer.step()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.detach(), other, rtol=0, atol=2e-6)


def clipped(**options) -> tuple[float, list[list[float]]]:
    a, b = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
    a.grad, b.grad = torch.tensor([3.0, 4.0]), torch.tensor([12.0])
    norm = clip([a, b], OptimizerConfig(**options))
    return float(norm), [[round(x, 3) for x in p.grad.tolist()] for p in (a, b)]


def test_clipping():
    assert clipped() == (13, [[3, 4], [12]])
    assert clipped(clip=26.0) == (13, [[3, 4], [12]])
    assert clipped(clip=6.5) == (13, [[1.5, 2], [6]])
    assert clipped(clip_each=6.0) == (13, [[3, 4], [6]])
    assert clipped(clip_value=3.5) == (13, [[3, 3.5], [3.5]])


@pytest.mark.parametrize("kind", ["sgd", "adamw", "adam"])
def test_a_head_may_have_its_first_gradient_later(kind):
    """Schedules in turn train some heads from the second step on."""
    module = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    optimizer = build_optimizer(module, OptimizerConfig(kind=kind, lr=0.1), torch.device("cpu"))
    for used in (1, 2):
        before = module[1].weight.clone()
        sum(layer(torch.ones(2)).sum() for layer in module[:used]).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert not torch.equal(module[1].weight, before)
