"""Where the vectors of pictures are kept: a file next to their regions, or PostgreSQL for several machines.

Either knows a picture by the SHA-256 of its file, and holds vectors of one model alone.
"""

from pathlib import Path

from diptych.runtime.errors import RecipeError
from diptych.serving.galleries.vectors import VectorStore


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
