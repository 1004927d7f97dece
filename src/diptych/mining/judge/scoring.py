"""What scores a pair: a protocol, so that any model may; what needs one is handed in as the name of a folder."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Pair:
    """A picture and one text of it. `picture` is its file's bytes, `row` all that was measured of it."""

    text: str
    kind: str
    picture: bytes
    row: dict[str, Any] = field(default_factory=dict)


class Scorer(Protocol):
    """A greater number is a better pair; those under `least` are dropped."""

    @property
    def version(self) -> str: ...

    @property
    def least(self) -> float: ...

    def score(self, pairs: Sequence[Pair]) -> list[float]: ...
