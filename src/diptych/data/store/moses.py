"""Moses' way of cutting English into words and of putting them together again, through `sacremoses` (XGPT, A.2)."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any


def cut(text: str) -> list[str]:
    """`isn't it?` -> isn 't it ?; characters stay as they are, nothing is escaped."""
    words: list[str] = _tools()[0].tokenize(text, escape=False)
    return words


def join(words: Sequence[str]) -> str:
    text: str = _tools()[1].detokenize(list(words), unescape=False)
    return text


@lru_cache(maxsize=1)
def _tools() -> tuple[Any, Any]:
    """Imported late: it takes a moment, and WordPiece does without."""
    from sacremoses import MosesDetokenizer, MosesTokenizer

    return MosesTokenizer(lang="en"), MosesDetokenizer(lang="en")
