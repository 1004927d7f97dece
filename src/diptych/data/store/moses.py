"""Moses' tokenisation of English and its inverse, by `sacremoses` (XGPT, appendix A.2)."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast


def cut(text: str) -> list[str]:
    """Split a text into words: `isn't it?` -> isn 't it ?. Characters stay as they are; nothing is escaped."""
    return cast(list[str], _tools()[0].tokenize(text, escape=False))


def join(words: Sequence[str]) -> str:
    """Join words into a text, the inverse of `cut`."""
    return cast(str, _tools()[1].detokenize(list(words), unescape=False))


@lru_cache(maxsize=1)
def _tools() -> tuple[Any, Any]:
    """The tokeniser and detokeniser. Imported late, because loading takes time and WordPiece does not need them."""
    from sacremoses import MosesDetokenizer, MosesTokenizer

    return MosesTokenizer(lang="en"), MosesDetokenizer(lang="en")
