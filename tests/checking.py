"""Signatures checked at run time: all calls; in tests that learn (`pytest.mark.learns`) the first ones of a function.

A training of hundreds of steps calls the same functions with the same shapes: to check all of its calls takes as long
as the training. jaxtyping and beartype read a signature only where it is first called, not where it is imported.
"""

import functools
import inspect
import itertools
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

import jaxtyping
import torch

FIRST = 32  # calls of a function that are checked in a test that learns: those of its first step or two
_read = jaxtyping.jaxtyped
_number = itertools.count()
_running: tuple[int, bool] = (next(_number), False)  # the number of the test that runs, and whether it learns


def begin(learns: bool = False) -> None:
    """Another test runs."""
    global _running  # noqa: PLW0603
    _running = next(_number), learns


def sparing(function: Any, *, typechecker: Any) -> Any:
    """Check calls of `function`: in a test that learns the first 32."""
    if inspect.isclass(function):
        if is_dataclass(function) and "__init__" in vars(function) and not hasattr(function.__init__, "sparing"):
            function.__init__ = sparing(function.__init__, typechecker=typechecker)
        return function
    if isinstance(function, classmethod | staticmethod):
        return type(function)(sparing(function.__func__, typechecker=typechecker))
    if not inspect.isfunction(function):
        return _read(function, typechecker=typechecker)
    checked: Callable[..., Any] | None = None
    calls, seen = 0, -1

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal checked, calls, seen
        number, learns = _running
        if learns:
            if seen != number:
                seen, calls = number, 0
            calls += 1
            if calls > FIRST:
                return function(*args, **kwargs)
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if checked is None:
            checked = _read(function, typechecker=typechecker)
        return checked(*args, **kwargs)

    call.sparing = True  # type: ignore[attr-defined]
    return call


def install(modules: list[str]) -> None:
    """Check the signatures of `modules`, which are not imported yet."""

    def jaxtyped(function: Any = None, *, typechecker: Any = None) -> Any:
        if function is None:
            return functools.partial(sparing, typechecker=typechecker)
        return _read(function, typechecker=typechecker)

    jaxtyping.jaxtyped = jaxtyped  # type: ignore[assignment]  # the name that the import hook's decorators look up
    jaxtyping.install_import_hook(modules, "beartype.beartype")
