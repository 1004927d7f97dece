"""Split English texts into words as Moses does, and join the words again, with `sacremoses` (XGPT, appendix A.2)."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast


def cut(text: str) -> list[str]:
    """Split a text into words, without escaping characters: `isn't it?` -> `isn`, `'t`, `it`, `?`."""
    return cast(list[str], _tools()[0].tokenize(text, escape=False))


def join(words: Sequence[str]) -> str:
    """Join the words that `cut` returned into a text."""
    return cast(str, _tools()[1].detokenize(list(words), unescape=False))


@lru_cache(maxsize=1)
def _tools() -> tuple[Any, Any]:
    """Return the tokeniser and the detokeniser.

    `sacremoses` is imported here, because this takes time and only BPE needs it.
    """
    from sacremoses import MosesDetokenizer, MosesTokenizer

    return MosesTokenizer(lang="en"), MosesDetokenizer(lang="en")
