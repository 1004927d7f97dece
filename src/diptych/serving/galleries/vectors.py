"""Vectors of pictures, kept by the content of their pictures."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]  # (N, S), each of length 1


class VectorStore(Protocol):
    """Vectors by the content of their pictures. Products say how well a query matches."""

    def known(self, contents: Sequence[str]) -> set[str]:
        """Those of these contents that have a vector."""
        ...

    def add(self, contents: Sequence[str], vectors: Vectors) -> None:
        """All of these or none; a content that has a vector keeps it."""
        ...

    def settle(self) -> None:
        """After all were added: makes what great galleries are searched by, where it is not there."""
        ...

    def search(self, query: NDArray[np.float32], contents: Sequence[str], most: int) -> list[tuple[str, float]]:
        """The `most` nearest of these contents with their products, nearest first."""
        ...
