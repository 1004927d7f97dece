"""The protocol of scorers. Each worker process loads the scorer from its folder."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Pair:
    """An image and one of its texts. `picture`: the bytes of the image file. `row`: the measures of the image."""

    text: str
    kind: str
    picture: bytes
    row: dict[str, Any] = field(default_factory=dict)


class Scorer(Protocol):
    """Scores pairs of image and text; higher is better. Pairs with a score below `least` are dropped."""

    @property
    def version(self) -> str: ...

    @property
    def least(self) -> float: ...

    def score(self, pairs: Sequence[Pair]) -> list[float]: ...
