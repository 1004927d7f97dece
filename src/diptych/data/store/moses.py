"""Split English texts into words as Moses does, with `sacremoses` (XGPT, appendix A.2)."""

from functools import lru_cache
from typing import Any, cast


def cut(text: str) -> list[str]:
    """Split a text into words, without escaping characters: `isn't it?` -> `isn`, `'t`, `it`, `?`."""
    return cast(list[str], _tokenizer().tokenize(text, escape=False))


@lru_cache(maxsize=1)
def _tokenizer() -> Any:
    """`sacremoses` is imported here, because this takes time and only BPE needs it."""
    from sacremoses import MosesTokenizer

    return MosesTokenizer(lang="en")
