"""Changed copies of frozen configurations (pydantic models), validated like the ones they come from."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from diptych.runtime.errors import RecipeError, nearest
from diptych.runtime.files import parse_json

C = TypeVar("C", bound=BaseModel)
T = TypeVar("T")


def derive(config: C, /, **changes: Any) -> C:
    """A copy of `config` with these fields changed. A section is given whole, or as a dict of its changes.

    Raises RecipeError for an unknown key, with the nearest known one, and for an invalid value.
    """
    return _derived(config, changes, str(getattr(config, "name", type(config).__name__)), ())


def assignment(text: str, example: str) -> tuple[str, str]:
    """The key and the value of a `--set KEY=VALUE`. Raises RecipeError, with an example, if there is no `=`."""
    key, equals, value = text.partition("=")
    if not equals:
        raise RecipeError(f"--set {text}: expected KEY=VALUE, such as {example}")
    return key, value


def value_of(text: str) -> Any:
    """The value of a text as JSON, or the text itself if it is not JSON."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def explain(key: str, problem: Any) -> str:
    """One of pydantic's errors as a line."""
    message = f"{key}: " * bool(key) + str(problem["msg"]).removeprefix("Value error, ")
    return message if problem["type"] in {"missing", "value_error"} else f"{message}, found {problem['input']!r}"


def first_problem(error: ValueError) -> str:
    """The first of pydantic's errors, or the text of another error, in at most 300 characters."""
    if not isinstance(error, ValidationError):
        return str(error)[:300]
    first = error.errors()[0]
    return explain(".".join(map(str, first["loc"])) or "all of it", first)[:300]


def of_json(kind: type[T], values: object) -> T:
    """A dataclass from the JSON values of its fields, checked against their types. Raises ValueError."""
    try:
        return TypeAdapter(kind).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


def _derived(config: C, changes: Mapping[str, Any], where: str, path: tuple[str, ...]) -> C:
    values = dict(config)
    for key, value in changes.items():
        if key not in values:
            raise RecipeError(f"{where}: unknown key {'.'.join((*path, key))}; {nearest(key, values)}")
        section = values[key]
        merged = isinstance(section, BaseModel) and isinstance(value, Mapping)
        values[key] = _derived(section, value, where, (*path, key)) if merged else value
    return validated(type(config), values, where, path)


def validated(
    kind: type[C],
    values: Mapping[str, Any],
    where: str,
    path: tuple[str, ...] = (),
    named: Callable[[str], str] = str,
) -> C:
    """Return the configuration of these values, which are at `path` in `where`. Raises RecipeError with all faults.

    `named` gives the name of a field as its user wrote it, such as that of an option.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        at = [(*path, *(str(part) for part in p["loc"])) for p in error.errors()]
        names = [".".join((named(one[0]), *one[1:])) if one else "" for one in at]
        lines = [explain(name, problem) for name, problem in zip(names, error.errors(), strict=True)]
        raise RecipeError(f"{where}: " + "; ".join(lines)) from error
