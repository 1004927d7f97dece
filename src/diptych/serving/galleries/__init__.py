"""Where the vectors of pictures are kept: a file beside what was seen of them, or PostgreSQL for several machines.

Either knows a picture by the SHA-256 of its file, and holds vectors of one model alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from diptych.runtime.errors import RecipeError

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


def open_vectors(address: str | None, folder: Path, model: str) -> VectorStore:
    """At the address of a database, or in a folder. `model` is the fingerprint of what made the vectors."""
    if address is None:
        from diptych.serving.galleries.files import FileVectors

        return FileVectors(folder, model)
    if not address.startswith(("postgresql://", "postgres://")):
        raise RecipeError(
            f"no gallery at {address.partition('//')[0][:20]!r}; wanted "
            "postgresql://USER@HOST/DATABASE (its password in PGPASSWORD), or no "
            "--gallery: vectors are then kept in files of the cache"
        )
    from diptych.serving.galleries.postgres import PostgresVectors

    return PostgresVectors(address, model)
