"""Signatures checked at run time: all calls; in tests that learn (`pytest.mark.learns`) the first ones of a function.

A training of hundreds of steps calls the same functions with the same shapes: to check all of its calls takes as long
as the training. beartype reads a signature only where it is first called, not where it is imported. It checks a call
once, with jaxtyping's memory of the sizes of that call; jaxtyping's own wrapper binds each call to its signature and
checks the parameters twice, which took ten times as long.
"""

import functools
import inspect
import itertools
from collections.abc import Callable
from dataclasses import is_dataclass
from types import FunctionType, SimpleNamespace
from typing import Any, get_type_hints

import jaxtyping
import torch
from beartype.roar import BeartypeCallHintViolation

FIRST = 32  # calls of a function that are checked in a test that learns: those of its first step or two
_read = jaxtyping.jaxtyped
_sizes = _read("context")  # of one call: each name of a size stands for one number
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
            checked = typechecker(_with_known_types(function))
        try:
            with _sizes:
                return checked(*args, **kwargs)
        except BeartypeCallHintViolation as violation:
            raise jaxtyping.TypeCheckError(str(violation)) from violation

    call.sparing = True  # type: ignore[attr-defined]
    return call


def _with_known_types(function: FunctionType) -> FunctionType:
    """Return a copy whose annotations are read; one that names what type checkers alone import is `Any`."""
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
    for name, hint in inspect.get_annotations(function).items():
        named = SimpleNamespace(__annotations__={name: hint})
        try:
            copy.__annotations__ |= get_type_hints(named, function.__globals__, include_extras=True)
        except NameError:
            copy.__annotations__[name] = Any
    return copy


def install(modules: list[str]) -> None:
    """Check the signatures of `modules`, which are not imported yet."""

    def jaxtyped(function: Any = None, *, typechecker: Any = None) -> Any:
        if function is None:
            return functools.partial(sparing, typechecker=typechecker)
        return _read(function, typechecker=typechecker)

    jaxtyping.jaxtyped = jaxtyped  # type: ignore[assignment]  # the name that the import hook's decorators look up
    jaxtyping.install_import_hook(modules, "beartype.beartype")
