"""The size and special tokens of a tokeniser, which models and objectives need."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Vocabulary:
    """The number of tokens, and the ids of special tokens. A model is built for a fixed vocabulary."""

    size: int  # V
    pad: int
    unknown: int
    cls: int
    sep: int  # also the end of a sentence: the papers' [STOP]
    mask: int
    # Ids of word pieces that continue a word. Only objectives use them.
    inner: frozenset[int] = field(default=frozenset(), repr=False, compare=False)
