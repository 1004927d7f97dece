"""What models and objectives must know of a tokeniser: its size and its special tokens."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Vocabulary:
    """How many words there are, and the ids of the special ones. A model is built for one vocabulary."""

    size: int  # V
    pad: int
    unknown: int
    cls: int
    sep: int  # also ends a sentence: the papers' [STOP]
    mask: int
    # Pieces that continue a word; known to objectives, and nothing that a model is built of.
    inner: frozenset[int] = field(default=frozenset(), repr=False, compare=False)
