"""The size and special tokens of a tokeniser, which models and objectives need."""

import re
from dataclasses import dataclass, field

# Zero-width characters that do not change a text: soft hyphen, direction marks, joiners, emoji variation selectors.
UNSEEN = "\u00ad\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufe0e\ufe0f"
_LAST_SIGMA = re.compile(r"(?<=[\w\u0300-\u036f])σ(?!\w)")


@dataclass(frozen=True)
class Vocabulary:
    """The number of tokens, and the ids of special tokens. A model is built for a fixed vocabulary."""

    size: int  # number of tokens (V)
    pad: int
    unknown: int
    cls: int
    sep: int  # token at the end of a text, like [STOP] in the papers
    mask: int
    # Ids of word pieces that continue a word. Only objectives use them.
    inner: frozenset[int] = field(default=frozenset(), repr=False, compare=False)


def with_final_sigma(text: str) -> str:
    """Write a Greek sigma at the end of a word as ς. `str.lower` does this, but the `tokenizers` library does not."""
    return _LAST_SIGMA.sub("ς", text) if "σ" in text else text
