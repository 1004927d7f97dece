"""Signatures checked at run time: the first calls of each function in each test, and one of sixteen from then on.

A training of hundreds of steps calls the same functions with the same shapes: to check all of its calls took half of
its time. jaxtyping and beartype also read a signature only where it is first called, not where it is imported.
"""

import functools
import inspect
import itertools
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

import jaxtyping
import torch

FIRST, EVERY = 32, 16
_read = jaxtyping.jaxtyped
_number = itertools.count()
_running = [next(_number)]  # the number of the test that runs


def begin() -> None:
    """Another test runs: the first calls of each function are checked again."""
    _running[0] = next(_number)


def sparing(function: Any, *, typechecker: Any) -> Any:
    """Check the first 32 calls of `function` in each test, then each sixteenth."""
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
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if seen != _running[0]:
            seen, calls = _running[0], 0
        calls += 1
        if calls > FIRST and calls % EVERY:
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
