"""Declare what a verb writes, and check it before any work:

    out: Annotated[Path, OutFolder("run")] = Option(help="...")

A verb with files gets `--force`. The rules are in `diptych.runtime.outputs`.
"""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from typer import Option

from diptych.runtime.files import refuse_unwritable
from diptych.runtime.outputs import Kind, note, refuse_file, refuse_folder, refuse_inputs

Force = Annotated[bool, Option("--force", help="Replace an output file that Diptych did not write, and name it.")]


@dataclass(frozen=True)
class OutFolder:
    """A folder that a verb writes.

    `kind`: the kind of folder that may exist already; None: the folder must be new or empty.
    """

    kind: Kind | None


@dataclass(frozen=True)
class OutFile:
    """A file that a verb writes, and files of the same name with other suffixes.

    `grows`: the verb adds to an existing file if its first line has this text.
    """

    endings: tuple[str, ...] = ()
    grows: str | None = None

    def files(self, path: Path) -> list[Path]:
        """Return all files that the verb writes for this path."""
        return [path, *(path.with_suffix(ending) for ending in self.endings)]


def guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a verb: check its declared outputs before it runs, and record the files that it has written.

    The returned function has the attribute `outputs`: parameter -> declared output.
    """
    signature = inspect.signature(command, eval_str=True)
    declared = {name: next(_declared(p.annotation), None) for name, p in signature.parameters.items()}
    outputs = {name: output for name, output in declared.items() if output is not None}
    if not outputs:
        return command

    def verb(**given: Any) -> Any:
        force = bool(given.pop("force", False)) if adds else bool(given.get("force"))
        places = {name: given[name] for name in outputs if given[name] is not None}
        for name, place in places.items():
            _check(outputs[name], place, [value for other, value in given.items() if other != name], force)
        declared = [(outputs[name], place) for name, place in places.items()]
        before = {path: _state(path) for output, place in declared if isinstance(output, OutFile)
                  for path in output.files(place)}  # fmt: skip
        try:
            return command(**given)
        finally:  # also if the verb failed after it had written a file
            for path, state in before.items():
                if _state(path) != state:
                    note(path)

    adds = "force" not in signature.parameters and any(isinstance(one, OutFile) for one in outputs.values())
    parameters = list(signature.parameters.values())
    if adds:
        force = inspect.Parameter("force", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Force)
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters] + [force]
    verb.__name__, verb.__doc__, verb.__module__ = command.__name__, command.__doc__, command.__module__
    verb.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    verb.outputs = outputs  # type: ignore[attr-defined]
    return verb


def _state(path: Path) -> tuple[int, ...] | None:
    """Return what changes when a file is written; None if there is no file."""
    return (stat.st_ino, stat.st_mtime_ns, stat.st_size) if path.is_file() and (stat := path.stat()) else None


def _check(output: OutFolder | OutFile, place: Path, values: Iterable[Any], force: bool) -> None:
    inputs = list(_paths(values))
    if isinstance(output, OutFolder):
        refuse_inputs(place, inputs)
        refuse_folder(place, output.kind)
        return
    for path in output.files(place):
        refuse_unwritable(path)
        refuse_inputs(path, inputs)
        if output.grows is None or not path.is_file() or output.grows not in _first_line(path):
            refuse_file(path, force)


def _first_line(path: Path) -> str:
    with path.open("rb") as file:
        return file.readline(2**16).decode("utf-8", "replace")


def _declared(annotation: Any) -> Iterator[OutFolder | OutFile]:
    yield from (one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, OutFolder | OutFile))
    for inner in get_args(annotation) if getattr(annotation, "__metadata__", None) is None else ():
        yield from _declared(inner)


def _paths(values: Iterable[Any]) -> Iterator[Path]:
    """Yield the existing paths among the values of options, including values such as NAME=PATH and KIND:PATH."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _paths(value)
        elif isinstance(value, str | Path) and str(value):
            for text in {str(value), str(value).partition("=")[2], str(value).partition(":")[2]} - {""}:
                if os.path.exists(text):  # unlike Path.exists, False for a text that is too long for a name
                    yield Path(text)
