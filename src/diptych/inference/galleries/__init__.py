"""Storage of image vectors: a file next to the cached regions, or a PostgreSQL database for several machines.

Both identify an image by the SHA-256 of its file, and store the vectors of only one model.
"""

from pathlib import Path

from diptych.inference.galleries.vectors import VectorStore
from diptych.runtime.errors import RecipeError


def open_vectors(address: str | None, folder: Path, model: str) -> VectorStore:
    """Open the vectors in the database at `address`, or in `folder` if `address` is None.

    `model`: a hash of the model that computes the vectors. Raises RecipeError for a URL that does not begin with
    postgresql://.
    """
    if address is None:
        from diptych.inference.galleries.files import FileVectors

        return FileVectors(folder, model)
    if not address.startswith(("postgresql://", "postgres://")):
        raise RecipeError(
            f"--gallery: found {address.partition('//')[0][:20]!r}, expected postgresql://USER@HOST/DATABASE (its "
            "password in PGPASSWORD); without --gallery, vectors are kept in files of the cache"
        )
    from diptych.inference.galleries.postgres import PostgresVectors

    return PostgresVectors(address, model)
