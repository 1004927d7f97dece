"""The size and the special tokens of a tokeniser, as models and objectives need them."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Vocabulary:
    """The number of tokens and the ids of the special ones. A model is built for one vocabulary."""

    size: int  # V
    pad: int
    unknown: int
    cls: int
    sep: int  # also ends a sentence: the papers' [STOP]
    mask: int
    # Word pieces that continue a word. Only objectives read them, not models.
    inner: frozenset[int] = field(default=frozenset(), repr=False, compare=False)
