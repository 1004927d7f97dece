"""The interface of a store of image vectors."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]  # (N, S), each vector of length 1


class VectorStore(Protocol):
    """Maps the content (SHA-256) of an image to its vector.

    The score of an image is the product of its vector and the query's.
    """

    def known(self, contents: Sequence[str]) -> set[str]:
        """Return the contents that have a vector."""
        ...

    def add(self, contents: Sequence[str], vectors: Vectors) -> None:
        """Add these vectors; after an error, none of them is added. Vectors that exist already are kept."""
        ...

    def settle(self) -> None:
        """Build the index of a large gallery if it is missing. Call this after all vectors were added."""
        ...

    def search(self, query: NDArray[np.float32], contents: Sequence[str], most: int) -> list[tuple[str, float]]:
        """Return the `most` contents with the highest scores, each with its score, best first.

        Only `contents` are compared.
        """
        ...
