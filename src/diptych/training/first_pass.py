"""Checks of the values that a model and its objectives return.

The checks run when an update is used for the first time.

They read only shapes, so they do not wait for the GPU. Errors name the objective or model and its package.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from diptych.core import Batch, States, Update
from diptych.runtime.errors import ProtocolError
from diptych.runtime.packages import is_own
from diptych.runtime.plugins import titled

FIRST_STEPS = 8  # at least one of the first 8 steps must have targets


def check_losses(update: Update, losses: object, counts: Mapping[str, float]) -> None:
    """Raise ProtocolError if a loss is not a scalar with a gradient. `counts`: number of targets per objective."""
    if not isinstance(losses, Mapping):
        raise ProtocolError(f"{titled(update)}.losses yielded {described(losses)}, expected a dict of losses")
    owners = {one.name: one for one in getattr(update, "objectives", ())}
    for name, loss in losses.items():
        who = f"{titled(owners[name])}.loss (objective {name})" if name in owners else f"{titled(update)} ({name})"
        if not isinstance(loss, Tensor) or loss.ndim:
            raise ProtocolError(f"{who} returned {described(loss)}, expected a scalar: a tensor of shape ()")
    learnt = {name: loss for name, loss in losses.items() if counts.get(name) and update.weights.get(name, 1)}
    for name in learnt.keys() & owners:  # values without an objective, such as rewards, are only logged
        if not learnt[name].requires_grad:
            raise ProtocolError(
                f"{titled(owners[name])}.loss (objective {name}) returned a loss without a gradient, so it would "
                "train nothing; compute it from the model's states without detach() and no_grad()"
            )
    if learnt and not any(loss.requires_grad for loss in learnt.values()):
        raise ProtocolError(f"{titled(update)} yielded no loss with a gradient, so nothing would be trained")


def raise_without_targets(update: Update, steps: int) -> None:
    """Raise ProtocolError because a plugin's objectives had no targets in the first `steps` steps.

    It does nothing for Diptych's own objectives. For them, the data can be the cause, such as expressions that match no
    region.
    """
    objectives = [one for one in getattr(update, "objectives", ()) if not is_own(type(one).__module__)]
    if not objectives:
        return
    names = ", ".join(f"{titled(one)} ({one.name})" for one in objectives)
    raise ProtocolError(
        f"the first {steps} steps have no targets: `count` returned 0 for all samples, so nothing would be trained; "
        f"correct `prepare` or `count` of {names}, or raise training.batch"
    )


@contextmanager
def checked_states(model: nn.Module) -> Iterator[None]:
    """Inside this context, check the states that each forward pass of the model returns."""
    handle = model.register_forward_hook(_check_states)
    try:
        yield
    finally:
        handle.remove()


def _check_states(model: nn.Module, given: tuple[Any, ...], states: object) -> None:
    """Raise ProtocolError if the shapes of states do not match the batch. This is a forward hook of the model."""
    if not given or not isinstance(batch := given[0], Batch):
        return
    if not isinstance(states, States):
        raise ProtocolError(f"{titled(model)}.forward returned {described(states)}, expected States")
    rows, width = len(batch), getattr(getattr(model, "config", None), "width", None)
    wanted: dict[str, tuple[object, tuple[int, ...]]] = {
        "regions": (states.regions, tuple(batch.regions_present.shape)),
        "text": (states.text, tuple(batch.text.shape)),
    }
    if batch.target is not None and states.target is not None:
        wanted["target"] = states.target, tuple(batch.target.shape)
    wanted |= {f"special[{name!r}]": (state, (rows,)) for name, state in states.special.items()}
    for name, (state, places) in wanted.items():
        shape = tuple(state.shape) if isinstance(state, Tensor) else ()
        last = width if width is not None else shape[-1] if shape else "width"
        if shape != (*places, last):
            sizes = ", ".join(map(str, (*places, last)))
            got = shape if isinstance(state, Tensor) else described(state)
            raise ProtocolError(f"{titled(model)}.forward returned {name} {got}, expected ({sizes})")


def described(value: object) -> str:
    """Describe a value for an error message, such as "a tensor of shape (2, 3)"."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"
