"""Read and change configurations (frozen pydantic models and dataclasses), with validation."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from diptych.runtime.errors import RecipeError, nearest
from diptych.runtime.files import parse_json

C = TypeVar("C", bound=BaseModel)
T = TypeVar("T")


def derive(config: C, /, **changes: Any) -> C:
    """Return a validated copy of `config` with fields changed.

    A section is passed as a whole, or as a dict of the keys that change.

    Raises RecipeError for an unknown key, with the nearest known key, and for an invalid value.
    """
    return _derived(config, changes, str(getattr(config, "name", type(config).__name__)), ())


def assignment(text: str, example: str) -> tuple[str, str]:
    """Split the text of `--set KEY=VALUE` into key and value. Raises RecipeError if there is no `=`.

    `example`: shown in the error.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise RecipeError(f"--set {text}: expected KEY=VALUE, such as {example}")
    return key, value


def value_of(text: str) -> Any:
    """Return the value of a JSON text, or the text itself if it is not JSON."""
    with suppress(ValueError):
        return parse_json(text)
    return text


def explain(key: str, problem: Any) -> str:
    """Return one line that describes an error of pydantic. `key`: the dotted key with the invalid value."""
    message = f"{key}: " * bool(key) + str(problem["msg"]).removeprefix("Value error, ")
    return message if problem["type"] in {"missing", "value_error"} else f"{message}, found {problem['input']!r}"


def first_problem(error: ValueError) -> str:
    """Return a line of at most 300 characters: the first error if pydantic raised `error`, else its message."""
    if not isinstance(error, ValidationError):
        return str(error)[:300]
    first = error.errors()[0]
    return explain(".".join(map(str, first["loc"])) or "all of it", first)[:300]


def of_json(kind: type[T], values: object) -> T:
    """Build the dataclass `kind` from JSON values of its fields.

    Raises ValueError if a value does not have the field's type.
    """
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
    """Build the configuration `kind` from `values`. Raises RecipeError that lists all faults.

    For errors: `where` is the source of the values, such as a file, and `path` their place in this source. `named`
    converts a key to the name that the user knows, such as an option.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        at = [(*path, *(str(part) for part in p["loc"])) for p in error.errors()]
        names = [".".join((named(one[0]), *one[1:])) if one else "" for one in at]
        lines = [explain(name, problem) for name, problem in zip(names, error.errors(), strict=True)]
        raise RecipeError(f"{where}: " + "; ".join(lines)) from error
