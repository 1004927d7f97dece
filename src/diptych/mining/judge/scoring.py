"""The protocol of scorers. Workers receive the name of a scorer's folder, and load the scorer themselves."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Pair:
    """An image and one text of it. `picture`: the bytes of its file; `row`: all measures of it."""

    text: str
    kind: str
    picture: bytes
    row: dict[str, Any] = field(default_factory=dict)


class Scorer(Protocol):
    """Scores pairs: higher is better, and pairs under `least` are dropped."""

    @property
    def version(self) -> str: ...

    @property
    def least(self) -> float: ...

    def score(self, pairs: Sequence[Pair]) -> list[float]: ...
