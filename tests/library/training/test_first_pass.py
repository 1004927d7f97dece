"""What a model and its objectives return is checked when an update runs for the first time."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from diptych.core import Batch, States
from diptych.data.store.store import Store
from diptych.objectives import MaskedLanguage, Schedule
from diptych.objectives.settings import Objectives
from diptych.runs.run import run
from diptych.runtime.errors import DiptychError, ProtocolError
from diptych.systems import SYSTEMS
from diptych.testing.runs import toy_recipe, toy_store
from diptych.training.first_pass import check_losses


@dataclass(frozen=True)
class Odd(MaskedLanguage):
    """Masked words with another loss, or without targets."""

    change: Callable[[Any], Any] = lambda loss: loss
    targets: int = 1

    def loss(self, *given: Any) -> Any:
        return self.change(super().loss(*given))

    def count(self, batch: Batch) -> Any:
        return super().count(batch) * self.targets


def trained(folder: Path, objective: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(toy_recipe("image-bert/small/pretrain").objectives)

    def schedule(_: Objectives, vocabulary: Any) -> Schedule:
        from diptych.objectives import together

        return together(objective(vocabulary))

    monkeypatch.setattr(kind, "schedule", schedule)
    recipe = toy_recipe("image-bert/small/pretrain")
    run(recipe, Store(toy_store(folder / "store")), folder / "out", None, Console(quiet=True))


WRONG = {
    "a vector": (lambda loss: loss.expand(3), "returned a tensor of shape (3,), expected a scalar"),
    "one number in a list": (lambda loss: loss[None], "returned a tensor of shape (1,), expected a scalar"),
    "detached": (lambda loss: loss.detach(), "returned a loss without a gradient"),
    "a float": (lambda loss: float(loss.detach()), "returned a float, expected a scalar"),
    "None": (lambda loss: None, "returned None, expected a scalar"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_loss_that_is_no_number_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change, why = WRONG[kind]
    with pytest.raises(ProtocolError) as refused:
        trained(tmp_path, lambda vocabulary: Odd(vocabulary, change=change), monkeypatch)
    assert str(refused.value).startswith(f"Odd.loss (objective masked_language) {why}")
    assert not (tmp_path / "out" / "model").exists()


def test_steps_without_targets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ProtocolError, match=r"the first \d+ steps have no targets: `count` returned 0 for all samples.*Odd"
    ):
        trained(tmp_path, lambda vocabulary: Odd(vocabulary, targets=0), monkeypatch)


def with_changes(states: States, **changes: Any) -> States:
    """Unlike `replace`, without the check of types that only tests make."""
    for name, value in changes.items():
        setattr(states, name, value)
    return states


STATES: dict[str, tuple[Callable[[States], Any], str]] = {
    "a word short": (
        lambda s: with_changes(s, text=s.text[:, :-1]),
        r"ImageBert.forward returned text \(\d+, \d+, 32\), expected \(\d+, \d+, 32\)",
    ),
    "too narrow": (
        lambda s: with_changes(s, regions=s.regions[..., :-1]),
        r"returned regions \(\d+, \d, 31\), expected \(\d+, \d, 32\)",
    ),
    "of one sample": (
        lambda s: with_changes(s, special={"cls": s.special["cls"][0]}),
        r"returned special\['cls'\] \(32,\), expected \(\d+, 32\)",
    ),
    "no states": (lambda s: s.text, r"forward returned a tensor of shape .*, expected States"),
}


@pytest.mark.parametrize("kind", STATES)
def test_states_of_other_sizes_are_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change, why = STATES[kind]
    model = SYSTEMS["image-bert"].model
    forward = model.forward

    def changed(self: Any, *given: Any, **more: Any) -> Any:
        states = forward(self, *given, **more)
        assert isinstance(states, States)
        return change(states)

    monkeypatch.setattr(model, "forward", changed)
    recipe = toy_recipe("image-bert/small/pretrain")
    with pytest.raises(DiptychError, match=why):
        run(recipe, Store(toy_store(tmp_path / "store")), tmp_path / "out", None, Console(quiet=True))


def test_a_loss_that_is_only_logged_needs_no_gradient() -> None:
    """The rewards of SelfCritical have targets, and no objective of that name."""

    class Logs:
        objectives, weights = (), {"reward": 0.0}

    check_losses(
        Logs(), {"loss": torch.zeros((), requires_grad=True), "reward": torch.zeros(())}, {"loss": 1, "reward": 1}
    )  # type: ignore[arg-type]
