"""A file of sentences, one per line: additional training text without images (VL-BERT, XGPT)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from diptych.core import Sample
from diptych.data.store.caching import PickledWithoutCaches
from diptych.data.store.tokens import Tokens
from diptych.runtime.errors import DataError

NEWLINE = 10
PIECE = 2**24  # line ends are searched in this many bytes at a time
MOST_JOINED = 256  # a sample joins at most this many lines; more are needed only if most lines have no token


@dataclass(frozen=True)
class Corpus(PickledWithoutCaches):
    """A sequence of samples without regions, one for each non-empty line. The file stays on disk.

    joined  True: a sample is a line and the following lines, up to `words` tokens, without special tokens.
            The last line is followed by the first (VL-BERT's general_corpus.py). False: a sample is one line and [SEP].
    """

    path: Path
    tokens: Tokens
    words: int = 64
    joined: bool = True

    def __len__(self) -> int:
        return len(self._lines)

    @cached_property
    def _lines(self) -> Lines:
        return Lines(self.path)

    def sample(self, line: int) -> Sample:
        """Return the sample that starts at a line; `line` counts non-empty lines from 0.

        Raises DataError if the sample would have no token.
        """
        pieces = self.tokens.encode(self._lines[line])
        for ahead in range(1, MOST_JOINED if self.joined else 1):
            if len(pieces) >= self.words:
                break
            pieces += self.tokens.encode(self._lines[(line + ahead) % len(self)])
        pieces = pieces[: self.words]
        if not self.joined:
            pieces = [*pieces, self.tokens.vocabulary.sep]
        if not pieces:
            raise DataError(f"{self.path} has {MOST_JOINED} lines in a row without a word; remove these lines")
        key = f"{self.path.name}:{line}"
        return Sample(key, key, None, torch.tensor(pieces))


class Lines:
    """The non-empty lines of a text file, as a sequence. The file stays on disk.

    Raises DataError for a file that is missing, empty, or not text.
    """

    def __init__(self, path: Path) -> None:
        wanted = "expected a text file with one sentence per line"
        if not path.is_file():
            raise DataError(f"no text at {path}; {wanted}")
        if not path.stat().st_size:
            raise DataError(f"{path} is empty; {wanted}")
        self._bytes = np.memmap(path, mode="r")
        if (self._bytes[:PIECE] == 0).any():
            raise DataError(f"{path} is not text: it contains null bytes; {wanted}")
        offsets = range(0, len(self._bytes), PIECE)
        newlines = [at + np.flatnonzero(self._bytes[at : at + PIECE] == NEWLINE) for at in offsets]
        ends = np.concatenate([*newlines, [len(self._bytes)]])
        spans = np.stack([np.concatenate([[0], ends[:-1] + 1]), ends], 1)
        self._spans = spans[spans[:, 1] > spans[:, 0]]  # start and end of each line, in 16 bytes per line
        if not len(self._spans):
            raise DataError(f"{path} has only empty lines; {wanted}")

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, number: int) -> str:
        """Return a line without a byte order mark. Bytes that are not UTF-8 become U+FFFD."""
        start, end = self._spans[number]
        return self._bytes[start:end].tobytes().decode("utf-8-sig", errors="replace")
