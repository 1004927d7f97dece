"""Changed copies of frozen configurations (pydantic models), validated like the ones they come from."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from diptych.runtime.errors import RecipeError, nearest
from diptych.runtime.files import parse_json

C = TypeVar("C", bound=BaseModel)


def derive(config: C, /, **changes: Any) -> C:
    """A copy of `config` with these fields changed; a section is given whole, or as a dict of what changes in it.

    Raises RecipeError for a key that does not exist, with the nearest one that does, and for a value that cannot be.
    """
    return _derived(config, changes, str(getattr(config, "name", type(config).__name__)), ())


def assignment(text: str, example: str) -> tuple[str, str]:
    """The key and the value of a `--set KEY=VALUE`. Raises RecipeError, with an example, where there is no `=`."""
    key, equals, value = text.partition("=")
    if not equals:
        raise RecipeError(f"--set {text}: wanted KEY=VALUE, such as {example}")
    return key, value


def value_of(text: str) -> Any:
    """The value as JSON, or as text where it is not JSON."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def explain(key: str, problem: Any) -> str:
    """One of pydantic's findings as a line of an error."""
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{key}: {message}" + (
        "" if problem["type"] in {"missing", "value_error"} else f", found {problem['input']!r}"
    )


def first_problem(error: ValueError) -> str:
    """The first of pydantic's findings, or what another error says, in a few words."""
    if not isinstance(error, ValidationError):
        return str(error)[:300]
    first = error.errors()[0]
    return explain(".".join(map(str, first["loc"])) or "all of it", first)[:300]


def _derived(config: C, changes: Mapping[str, Any], where: str, path: tuple[str, ...]) -> C:
    values = dict(config)
    for key, value in changes.items():
        if key not in values:
            raise RecipeError(f"{where}: unknown key {'.'.join((*path, key))}; {nearest(key, values)}")
        section = values[key]
        merged = isinstance(section, BaseModel) and isinstance(value, Mapping)
        values[key] = _derived(section, value, where, (*path, key)) if merged else value
    return validated(type(config), values, where, path)


def validated(kind: type[C], values: Mapping[str, Any], where: str, path: tuple[str, ...] = ()) -> C:
    """Raises RecipeError for values that cannot be, with all that is wrong; `path` is where they are in `where`."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        lines = [explain(".".join(map(str, (*path, *p["loc"]))) or kind.__name__, p) for p in error.errors()]
        raise RecipeError(f"{where}: " + "; ".join(lines)) from error
