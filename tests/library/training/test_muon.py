"""Muon: what it turns and how far, and that everything else is AdamW's."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from diptych.runtime.errors import RecipeError
from diptych.training import OptimizerConfig
from diptych.training.muon import ORTHOGONAL, orthogonalised
from diptych.training.optimizer import build_optimizer, parameter_groups, set_rate

CPU = torch.device("cpu")
CONFIG = OptimizerConfig(kind="muon", muon_params=("0.",), lr=0.01, weight_decay=0.1)


@pytest.mark.parametrize("shape", [(8, 30), (16, 16)])
def test_singular_values_end_near_one_and_directions_stay(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    turned = orthogonalised(torch.stack([torch.randn(shape), 1e3 * matrix]))[1]
    values = torch.linalg.svdvals(turned)
    assert values.min() > 0.6
    assert values.max() < 1.25
    agreement = (left.T @ turned @ right.T).diagonal() / values.mean()
    assert (agreement > 0.5).all()  # the same pairs of directions, in bfloat16


def test_a_step_by_hand() -> None:
    """Of a single row, U V' is the row over its length; the first momentum is 0.05 of the gradient."""
    layer = nn.Sequential(nn.Conv2d(2, 1, 1, bias=False))
    weight = layer[0].weight
    weight.data = torch.tensor([1.0, 2.0]).view(1, 2, 1, 1)
    optimizer = build_optimizer(layer, CONFIG, CPU)
    weight.grad = torch.tensor([3.0, 4.0]).view(1, 2, 1, 1)
    optimizer.step()
    length = 1.0
    for _ in range(5):
        length = 3.4445 * length - 4.7750 * length**3 + 2.0315 * length**5
    step = 0.01 * 0.2 * 2**0.5 * length
    wanted = torch.tensor([1.0 * 0.999 - step * 0.6, 2.0 * 0.999 - step * 0.8])
    torch.testing.assert_close(weight.flatten().detach(), wanted, atol=0.1 * step, rtol=0)  # bfloat16
    torch.testing.assert_close(optimizer.state[weight]["momentum"].flatten(), torch.tensor([0.15, 0.2]))


def test_the_rest_takes_adamw_and_a_loaded_state_goes_on() -> None:
    def made() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))

    def stepped(module: nn.Module, optimizer: torch.optim.Optimizer, numbers: range) -> None:
        for number in numbers:
            torch.manual_seed(number)
            for parameter in module.parameters():
                parameter.grad = torch.randn_like(parameter)
            set_rate(optimizer, 0.01)
            optimizer.step()

    ours, theirs, cut, gone_on = made(), made(), made(), made()
    optimizer = build_optimizer(ours, CONFIG, CPU)
    stepped(ours, optimizer, range(4))
    plain = OptimizerConfig(kind="adamw", lr=0.01, weight_decay=0.1)
    stepped(theirs, build_optimizer(theirs, plain, CPU), range(4))
    named = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter, named[name]) == (name != "0.weight"), name

    before = build_optimizer(cut, CONFIG, CPU)
    stepped(cut, before, range(2))
    gone_on.load_state_dict(cut.state_dict())
    after = build_optimizer(gone_on, CONFIG, CPU)
    after.load_state_dict(before.state_dict())
    stepped(gone_on, after, range(2, 4))
    for name, parameter in gone_on.named_parameters():
        assert torch.equal(parameter, dict(ours.named_parameters())[name]), name


def test_wrong_names_and_none_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"optimizer.muon_params: no trained parameter starts with 'layers'"):
        build_optimizer(nn.Sequential(nn.Linear(2, 2)), CONFIG.model_copy(update={"muon_params": ("layers",)}), CPU)
    with pytest.raises(ValidationError, match="muon needs muon_params"):
        OptimizerConfig(kind="muon")


def test_a_stack_of_no_layers_turns_nothing_and_others_read_no_names() -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    module.add_module("decoder", nn.ModuleList())
    some = CONFIG.model_copy(update={"muon_params": ("decoder.", "0.")})
    assert [group[ORTHOGONAL] for group in parameter_groups(module, some)] == [True, False]
    with pytest.raises(RecipeError, match=r"no trained parameter starts with 'tpyo\.'"):
        parameter_groups(module, CONFIG.model_copy(update={"muon_params": ("tpyo.", "0.")}))
    plain = some.model_copy(update={"kind": "adamw"})
    assert not any(group[ORTHOGONAL] for group in parameter_groups(module, plain))
