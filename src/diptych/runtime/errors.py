"""Every error that Diptych raises on purpose.

    DiptychError                exit code 1: the job failed
    ├── RecipeError             exit code 2: what was asked for cannot be (a key, a value, a combination)
    ├── DataError               something in the data; carries the record's key and the shard, where known
    ├── CheckpointError         a file of weights that is missing, cut short, unsafe or of another kind
    ├── TrainingError           a run that had to stop: a loss that is not finite, a disk that is full
    ├── Stopped                 exit code 75: asked to stop (SIGTERM, Ctrl-C), saved; the same command goes on
    └── ServingError            one request that cannot be answered
        └── GalleryError        a database of vectors that is away, full, or of another model

A message says what was found, what was wanted, where, and the way out.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from diptych.runtime.terminal import printable


class DiptychError(Exception):
    """The root: the command line prints its message without a traceback."""

    exit_code = 1


class RecipeError(DiptychError):
    exit_code = 2


class DataError(DiptychError):
    def __init__(self, message: str, *, key: str | None = None, shard: str | None = None) -> None:
        self.key, self.shard = key, shard
        where = ", ".join(
            f"{name} {printable(value)}" for name, value in (("record", key), ("shard", shard)) if value is not None
        )
        super().__init__(f"{message} ({where})" if where else message)


class CheckpointError(DiptychError):
    pass


class TrainingError(DiptychError):
    pass


class Stopped(DiptychError):
    exit_code = 75  # EX_TEMPFAIL of sysexits.h: nothing is wrong, try again


class ServingError(DiptychError):
    pass


class GalleryError(ServingError):
    pass


class Terminated(BaseException):  # as KeyboardInterrupt, which click takes for its own
    """SIGTERM outside of training: what was done is kept, as at Ctrl-C, and the exit code is 75."""


def nearest(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """The end of an error about an unknown name: the likely intent, or `otherwise`; None: all there is."""
    known = sorted(known)
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return otherwise or f"known: {', '.join(known) or 'none'}"
