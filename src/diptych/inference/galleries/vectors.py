"""The interface of a store of image vectors."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]  # (N, S), each vector of length 1


class VectorStore(Protocol):
    """A store that maps the content (SHA-256) of an image to the image's vector.

    The score of an image is the dot product of its vector and the query's vector.
    """

    def known(self, contents: Sequence[str]) -> set[str]:
        """Return the contents that have a vector."""
        ...

    def add(self, contents: Sequence[str], vectors: Vectors) -> None:
        """Add vectors. After an error, none of them is added. Existing vectors are kept."""
        ...

    def settle(self) -> None:
        """Build the index of a large gallery if it is missing. Call this after all vectors were added."""
        ...

    def search(self, query: NDArray[np.float32], contents: Sequence[str], most: int) -> list[tuple[str, float]]:
        """Return the `most` contents with the highest scores, each with its score, best first.

        Only `contents` are compared.
        """
        ...
