"""Check the type of an argument, and read it as a path."""

import os
import re
from pathlib import Path

from diptych.runtime.errors import DataError, DiptychError

HOME = re.compile(r"^((?:onnx:|tfjs:)?)~(?=/|$)")


def check_type(
    name: str, value: object, kinds: type | tuple[type, ...], wanted: str, error: type[DiptychError]
) -> None:
    """Raise `error` unless the value of the argument `name` has one of the types.

    `wanted`: what is expected, in words.
    """
    if not isinstance(value, kinds):
        raise error(f"{name}: found {shown_value(value)}, expected {wanted}")


def check_path(name: str, value: object, wanted: str, error: type[DiptychError], there: bool = False) -> None:
    """Raise `error` unless the value is a path. If `there` is True, the path must also exist."""
    check_type(name, value, (str, os.PathLike), wanted, error)
    if not os.fspath(value):  # type: ignore[call-overload]  # checked above
        raise error(f"{name}: the path is empty; expected {wanted}")
    if there and not path_of(value).exists():  # type: ignore[arg-type]  # checked above
        raise error(f"{name}: {value} does not exist; expected {wanted}")


def path_of(value: str | os.PathLike[str]) -> Path:
    """Return a path that the caller passed. A leading `~/` is the home folder. Raises DataError for an empty path."""
    if not os.fspath(value):
        raise DataError("found an empty path; `.` is this folder")
    return Path(at_home(os.fspath(value)))


def at_home(text: str) -> str:
    """Return a path or name with the home folder in place of a leading `~/`, or `~/` after `onnx:` or `tfjs:`."""
    return HOME.sub(lambda at: at[1] + os.path.expanduser("~"), text)


def shown_value(value: object) -> str:
    """Return the type and the value of an argument, for an error."""
    return "None" if value is None else f"{type(value).__name__} {str(value)[:60]!r}"
