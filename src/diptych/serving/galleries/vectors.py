"""The protocol of a store of image vectors."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]  # (N, S), each of length 1


class VectorStore(Protocol):
    """Image vectors by content (SHA-256). The product of a query and a vector is the score of the match."""

    def known(self, contents: Sequence[str]) -> set[str]:
        """Return those of the contents that have a vector."""
        ...

    def add(self, contents: Sequence[str], vectors: Vectors) -> None:
        """Add all of these vectors or none; existing ones stay."""
        ...

    def settle(self) -> None:
        """Build the index of a large gallery if it is missing; call after all vectors were added."""
        ...

    def search(self, query: NDArray[np.float32], contents: Sequence[str], most: int) -> list[tuple[str, float]]:
        """Return the `most` nearest of these contents with their scores, nearest first."""
        ...
