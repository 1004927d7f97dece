"""A file of text without pictures, a sentence a line: what language is learnt from beside pairs (VL-BERT, XGPT)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from diptych.core import Sample
from diptych.data.store.tokens import Tokens
from diptych.runtime.errors import DataError

NEWLINE = 10
PIECE = 2**24  # bytes that are searched for line ends at a time
MOST_JOINED = 256  # lines for one text: more are needed only where a file is all but empty


@dataclass(frozen=True)
class Corpus:
    """A sequence of samples without regions, one for each line that is not empty; the file is never read whole.

    joined  a text starts at its line and runs on over the following ones until it has `words` pieces, and the last
            line goes on with the first; no marks (VL-BERT's general_corpus.py). Else a text is a line, and [SEP] ends
            it.
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
        """Line `line`, from 0, of those that are not empty."""
        pieces = self.tokens.encode(self._lines[line])
        for ahead in range(1, MOST_JOINED if self.joined else 1):
            if len(pieces) >= self.words:
                break
            pieces += self.tokens.encode(self._lines[(line + ahead) % len(self)])
        pieces = pieces[: self.words]
        if not self.joined:
            pieces = [*pieces, self.tokens.vocabulary.sep]
        if not pieces:
            raise DataError(f"{self.path} has {MOST_JOINED} lines in a row without a word; wanted a sentence a line")
        key = f"{self.path.name}:{line}"
        return Sample(key, key, None, torch.tensor(pieces))


class Lines:
    """The lines of a text file that are not empty, as a sequence; the file stays on disk."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise DataError(f"no text at {path}; wanted a file with a sentence a line")
        if not path.stat().st_size:
            raise DataError(f"{path} is empty; wanted a file with a sentence a line")
        self._bytes = np.memmap(path, mode="r")
        if (self._bytes[:PIECE] == 0).any():
            raise DataError(f"{path} is no text: it holds zero bytes; give a file with a sentence a line")
        found = [
            start + np.flatnonzero(self._bytes[start : start + PIECE] == NEWLINE)
            for start in range(0, len(self._bytes), PIECE)
        ]
        ends = np.concatenate([*found, [len(self._bytes)]])
        starts = np.concatenate([[0], ends[:-1] + 1])
        self._ends = np.stack([starts, ends], 1)[ends > starts]  # 16 bytes of memory a line
        if not len(self._ends):
            raise DataError(f"{path} has empty lines alone; wanted a file with a sentence a line")

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        """Bytes that are no UTF-8 become U+FFFD."""
        start, end = self._ends[number]
        return self._bytes[start:end].tobytes().decode("utf-8", errors="replace")
