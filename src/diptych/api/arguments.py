"""Check the arguments of the Python API before any work is done. Errors name the Python argument."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from diptych.runtime.arguments import check_path, check_type, shown_value
from diptych.runtime.configs import value_of
from diptych.runtime.errors import DiptychError, RecipeError, about_argument, nearest

P = ParamSpec("P")
T = TypeVar("T")
WHOLE = {"steps": 1, "batch_size": 1, "patience": 1, "seed": 0}  # integer argument -> its smallest allowed value
ABOVE_ZERO = ("epochs", "lr")
# OPTION matches command-line syntax in an error message: a command, --set KEY=VALUE, or an option.
_SET = r"--set [^\s=]+?(?:=\S*?)?(?=[:;,.)]*(?:\s|$))"
OPTION = re.compile(
    rf"\bdiptych [a-z]+(?: [^;,()`]*)?|(?<![^\s(])(?P<set>{_SET}(?: {_SET})*)"
    r"|(?<![^\s(`])--(?P<name>[a-z][a-z-]*)(?![\w/=-])"
)


def check_training(given: Mapping[str, Any]) -> None:
    """Check the arguments that `finetune` and `pretrain` share.

    `given`: name -> value of all arguments. Raises RecipeError.
    """
    values = {name: value for name, value in given.items() if value is not None}
    for name in WHOLE.keys() & values.keys():
        check_whole(name, values[name], WHOLE[name])
    for name in values.keys() & ABOVE_ZERO:
        check_type(name, values[name], Real, "a number above 0", RecipeError)
        if isinstance(values[name], bool) or not 0 < values[name] < math.inf:
            raise RecipeError(f"{name}: found {values[name]}, expected a number above 0")
    if (on_log := values.get("on_log")) is not None and not callable(on_log):
        raise RecipeError(f"on_log: found {shown_value(on_log)}, expected a function of a dict, such as print")
    for name, wanted in {"detector": "a folder or name of a detector", "out": "a folder for the run"}.items():
        if name in values:
            check_path(name, values[name], wanted, RecipeError)
    if "features" in values:
        check_features(values["features"])
    settings = values.get("settings", ())
    kinds = (Mapping, type(None) if isinstance(settings, str) else Sequence)  # a str is a Sequence, but not accepted
    check_type("settings", settings, kinds, "a dict such as {'optimizer.lr': 1e-3}", RecipeError)
    for one in settings:
        check_type("settings", one, str, "keys of the recipe as text", RecipeError)


def check_whole(name: str, value: Any, least: int) -> None:
    """Raise RecipeError unless the value of the argument `name` is an integer of at least `least`."""
    wanted = f"a whole number from {least}"
    check_type(name, value, Integral, wanted, RecipeError)
    if isinstance(value, bool) or value < least:
        raise RecipeError(f"{name}: found {value}, expected {wanted}")


def texts_of(name: str, value: object) -> list[str]:
    """Return the value of an argument, which is a text or several texts, as a list.

    Raises RecipeError for other types.
    """
    check_type(name, value, (str, Iterable), "a text or a list of texts", RecipeError)
    texts = [value] if isinstance(value, str) else list(value)  # type: ignore[call-overload]  # checked above
    for text in texts:
        check_type(name, text, str, "a text", RecipeError)
    return texts


def check_features(features: object) -> None:
    """Raise RecipeError unless the argument `features` is None or an existing path."""
    if features is not None:
        with about_argument("features"):
            check_path("features", features, "a file or folder of region features", RecipeError, there=True)


def python_errors(call: Callable[P, T]) -> Callable[P, T]:
    """Decorate a public function so that its errors name Python arguments instead of command-line options.

    An unknown argument raises TypeError with the most similar names.
    """
    names = inspect.signature(call).parameters
    own = {name.replace("_", "-"): name for name in names}

    @wraps(call)
    def named(*args: P.args, **given: P.kwargs) -> T:
        for name in given.keys() - names.keys():
            raise TypeError(f"{call.__name__}() has no argument {name!r}; {nearest(name, names)}")
        try:
            return call(*args, **given)
        except DiptychError as error:
            if error.args and isinstance(error.args[0], str):
                error.args = (as_python(error.args[0], own), *error.args[1:])
            raise

    return named


def as_python(message: str, own: Mapping[str, str]) -> str:
    """Return a message with options replaced by arguments: `--name` by the argument, `--set KEY=VALUE` by `settings`.

    `own`: name of an option -> argument. Commands, and options without an argument, are not changed.
    """

    def shown(matched: re.Match[str]) -> str:
        if matched["set"] is not None and "settings" in own:
            pairs = [text.partition("=") for text in matched["set"].removeprefix("--set ").split(" --set ")]
            return "settings={" + ", ".join(f'"{key}": {_quoted(value)}' for key, _, value in pairs) + "}"
        return f"`{own[matched['name']]}`" if matched["name"] in own else matched[0]

    return OPTION.sub(shown, message)


def _quoted(value: str) -> str:
    """Return the value of a setting in Python's notation.

    A value that is not JSON is a text. An empty value becomes `...`.
    """
    read = value_of(value)
    return (json.dumps(read) if isinstance(read, str) else repr(read)) if value else "..."
