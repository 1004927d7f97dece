"""Every error that Diptych raises on purpose.

    DiptychError                exit code 1: the job failed.
    ├── RecipeError             exit code 2: an invalid request (a key, a value, a combination).
    │   └── OutputError         an output that holds what Diptych did not write.
    ├── DataError               a fault in the data; carries the record's key and the shard, if known.
    ├── CheckpointError         a file of weights that is missing, cut short, unsafe or of another kind.
    ├── TrainingError           a run that had to stop: a loss that is not finite, a disk that is full.
    ├── ProtocolError           a model or an objective that returned what its protocol does not allow.
    ├── Stopped                 exit code 75: stopped by SIGTERM or Ctrl-C, saved; the same command resumes.
    └── ServingError            one request that cannot be answered.
        ├── UnsupportedError    a request for what this kind of model cannot do.
        └── GalleryError        a database of vectors that is unreachable, full, or of another model.

A message states what was found, what was expected, where, and the command that mends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from difflib import get_close_matches

from diptych.runtime.terminal import printable

SINGULAR = {"queries": "query", "hypotheses": "hypothesis"}  # nouns whose singular is not the plural without its s


class DiptychError(Exception):
    """The root: the command line prints its message without a traceback."""

    exit_code = 1


class RecipeError(DiptychError):
    """An invalid request: a key, a value or a combination."""

    exit_code = 2


class OutputError(RecipeError):
    """An output path has files that Diptych did not write, or is also an input."""


class DataError(DiptychError):
    """A fault in the data; `key` is that of the record and `shard` the file's name, if known."""

    def __init__(self, message: str, *, key: str | None = None, shard: str | None = None) -> None:
        self.key, self.shard = key, shard
        places = {"record": key, "shard": shard}
        where = ", ".join(f"{name} {printable(value)}" for name, value in places.items() if value is not None)
        super().__init__(f"{message} ({where})" if where else message)


class UnfamiliarWarning(UserWarning):
    """Images are unlike the training images, so the model's answers about them mean nothing."""

    @classmethod
    def of(cls, pictures: Sequence[object]) -> UnfamiliarWarning:
        """Return one warning for these images."""
        which = f"{pictures[0]} is" if len(pictures) == 1 else f"{len(pictures)} images ({pictures[0]}, ...) are"
        return cls(f"{which} unlike what this model was trained on; expect nonsense")


class CheckpointError(DiptychError):
    """A file of weights that is missing, cut short, unsafe or of another kind."""


class TrainingError(DiptychError):
    """A run had to stop, for instance because a loss is not finite."""


class ProtocolError(DiptychError):
    """A model or an objective that returned what its protocol does not allow, such as a loss of three numbers."""


class Stopped(DiptychError):
    """A run that was stopped and saved; the same call resumes it."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h: not a fault, try again


class ServingError(DiptychError):
    """A request that cannot be answered."""


class UnsupportedError(ServingError):
    """This kind of model does not support the request."""


class GalleryError(ServingError):
    """A database of vectors is unreachable, full, or holds vectors of another model."""


class Terminated(BaseException):  # like KeyboardInterrupt, which click handles itself
    """SIGTERM outside of training: finished work is kept, as at Ctrl-C, and the exit code is 75."""


def nearest(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """The end of an error about an unknown name: the nearest known names, else `otherwise`, else all known names."""
    known = sorted(known)
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return otherwise or f"known: {', '.join(known) or 'none'}"


def counted(items: int | Sized, plural: str) -> str:
    """Return a number with its noun: `1 image`, `1,200 images`. `items`: the number, or what is counted."""
    number = items if isinstance(items, int) else len(items)
    return f"{number:,} {plural if number != 1 else SINGULAR.get(plural, plural.removesuffix('s'))}"
