"""The classes of all errors that Diptych raises on purpose, with their exit codes.

    DiptychError                exit code 1: the job failed.
    ├── RecipeError             exit code 2: an invalid request (a key, a value, a combination).
    │   └── OutputError         an output that holds what Diptych did not write.
    ├── DataError               a fault in the data; has the record's key and the shard, if known.
    ├── CheckpointError         a file of weights that is missing, cut short, unsafe or has another format.
    ├── TrainingError           a run that had to stop: a loss that is not finite, a disk that is full.
    ├── ProtocolError           a model or an objective that returned a value that its protocol does not allow.
    ├── Stopped                 exit code 75: stopped by SIGTERM or Ctrl-C, and saved; the same command resumes.
    └── ServingError            one request that cannot be answered.
        ├── UnsupportedError    a request that this kind of model cannot answer.
        └── GalleryError        a vector database that is unreachable, full, or has vectors of another model.

A message states what was found, what was expected, where, and the command that mends it.
"""

from __future__ import annotations

import contextlib
import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from difflib import get_close_matches
from pathlib import Path

from diptych.runtime.packages import OWN
from diptych.runtime.terminal import printable

# Files whose lines a notebook does not show.
_OWN = "|".join(re.escape(str(Path(__file__).parents[2] / name) + os.sep) for name in OWN)
INNER_FRAME = re.compile(rf"^({_OWN}|{re.escape(contextlib.__file__)}$)|[/\\]IPython[/\\]")

# What a damaged file, or a value in it that is missing or of another type, raises.
READING = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError)
SINGULAR = {"queries": "query", "hypotheses": "hypothesis"}  # plural -> singular of nouns that do not just add an s


class DiptychError(Exception):
    """Base class of all errors of Diptych. The command line prints its message without a traceback.

    `argument`: the Python argument whose name begins the message, if it has an option on the command line, which then
    begins the message with that option.
    """

    exit_code = 1
    argument: str | None = None

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook (IPython) shows: the lines outside of Diptych, the message, and what caused it."""
        frames = [one for one in traceback.extract_tb(self.__traceback__) if not INNER_FRAME.search(one.filename)]
        lines = [*traceback.format_list(frames), f"{type(self).__name__}: {printable(str(self))}"]
        lines += [printable(note) for note in getattr(self, "__notes__", ())]
        if self.__cause__ is not None and not isinstance(self.__cause__, DiptychError):
            lines.append(f"caused by {type(self.__cause__).__name__}: {printable(str(self.__cause__)[:200])}")
        return lines


class RecipeError(DiptychError):
    """An invalid request: an unknown key, an invalid value, or values that cannot be combined."""

    exit_code = 2


class OutputError(RecipeError):
    """An output path that has files that Diptych did not write, or that is also an input."""


class DataError(DiptychError):
    """A fault in the data. `key`: the record's key. `shard`: the name of the shard's file.

    Both are None if not known.
    """

    def __init__(self, message: str, *, key: str | None = None, shard: str | None = None) -> None:
        self.key, self.shard = key, shard
        places = {"record": key, "shard": shard}
        where = ", ".join(f"{name} {printable(value)}" for name, value in places.items() if value is not None)
        super().__init__(f"{message} ({where})" if where else message)


class UnfamiliarWarning(UserWarning):
    """Warns that images are unlike the training images, so the model's answers about them mean nothing."""

    @classmethod
    def of(cls, pictures: Sequence[object]) -> UnfamiliarWarning:
        """Return one warning for all images in `pictures` (names or other objects to print)."""
        which = f"{pictures[0]} is" if len(pictures) == 1 else f"{len(pictures)} images ({pictures[0]}, ...) are"
        return cls(f"{which} unlike what this model was trained on; expect nonsense")


class UnreadWarning(UserWarning):
    """Warns of words that the model does not know, and of texts that it cuts."""


class CheckpointError(DiptychError):
    """A file of weights that is missing, cut short, unsafe or has another format."""


class TrainingError(DiptychError):
    """A training run that had to stop, for instance because a loss is not finite."""


class ProtocolError(DiptychError):
    """Raised if a model or objective returns a value that its protocol does not allow, such as a loss of shape (3,)."""


class Stopped(DiptychError):
    """A run that was stopped and saved. The same call resumes it."""

    exit_code = 75  # EX_TEMPFAIL in sysexits.h: the same command may succeed later


class ServingError(DiptychError):
    """Base class of errors for a single request that cannot be answered."""


class UnsupportedError(ServingError):
    """A request that this kind of model cannot answer."""


class GalleryError(ServingError):
    """A vector database that is unreachable, full, or has vectors of another model."""


class Terminated(BaseException):  # `except Exception` must not catch it
    """Raised on SIGTERM outside of training. As with Ctrl-C, finished work is kept. The exit code is 75."""


@contextlib.contextmanager
def about_argument(name: str | None) -> Iterator[None]:
    """Note in an error of the `with` block that its message begins with the name of this argument."""
    try:
        yield
    except DiptychError as error:
        error.argument = name
        raise


@contextlib.contextmanager
def explained(kind: Callable[[str], DiptychError], problem: str, remedy: str, *more: type[Exception]) -> Iterator[None]:
    """Convert an error of Python or a library in the `with` block to one of `kind`: `problem (reason); remedy`.

    Converts the errors of READING and of `more`. An error of Diptych passes.
    """
    causes: tuple[type[Exception], ...] = (*READING, *more)
    try:
        yield
    except DiptychError:
        raise
    except causes as error:
        raise kind(f"{problem} ({reason_of(error)}); {remedy}") from error


def reason_of(error: BaseException) -> str:
    """Return why an error was raised: the first line of its message, cut to 200 characters.

    If the message is empty, return the name of the error's class.
    """
    message = getattr(error, "strerror", None) or (repr(error) if isinstance(error, KeyError) else str(error))
    return (str(message).strip().splitlines() or [type(error).__name__])[0][:200]


def nearest(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return the end of an error about an unknown name: the most similar known names.

    If no known name is similar, it is the text `otherwise`, or else a list of all known names.
    """
    known = sorted(known)
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return otherwise or f"known: {', '.join(known) or 'none'}"


def counted(items: int | Sized, plural: str) -> str:
    """Return a number with its noun, such as `1 image` or `1,200 images`.

    `items`: the number, or a collection to count.
    """
    number = items if isinstance(items, int) else len(items)
    return f"{number:,} {plural if number != 1 else SINGULAR.get(plural, plural.removesuffix('s'))}"
