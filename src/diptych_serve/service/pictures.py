"""The images that a service shows: its gallery and drawn examples. Their ids do not reveal paths."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from diptych.runtime.errors import DataError
from diptych.runtime.files import bytes_of
from diptych.runtime.terminal import printable
from diptych.vision.decoder import shared_decoders
from diptych.vision.image_files import as_jpeg, find_pictures

THUMBNAIL, LARGE = 480, 1600  # longer side in pixels of a thumbnail, and of an image that is looked at
EXAMPLES = 6
KEPT = 200  # thumbnails that are kept in memory, about 8 MB


class PictureGallery:
    """A folder of images to search. An image can be requested only by its id, which clients cannot guess."""

    def __init__(self, folder: Path, address: str | None = None) -> None:
        self.folder, self.address = folder, address  # address: URL of the database with the vectors
        self._secret = secrets.token_bytes(32)
        self._named: dict[str, Path] = {}
        self._small = lru_cache(KEPT)(self._jpeg)

    def name(self, path: Path) -> str:
        """Return the id of an image. From then on, the image can be requested by this id."""
        name = hmac.new(self._secret, str(path).encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:20]
        self._named[name] = path
        return name

    def shown(self, name: str, large: bool = False) -> bytes | None:
        """Return a JPEG of the image with this id; None if the id is unknown or the image cannot be read."""
        path = self._named.get(name)
        if path is None:
            return None
        with suppress(DataError):
            return self._jpeg(path, LARGE) if large else self._small(path)
        return None

    @staticmethod
    def _jpeg(path: Path, side: int = THUMBNAIL) -> bytes:
        return as_jpeg(shared_decoders().open(path), side, 85)

    def first(self) -> list[tuple[str, str]]:
        """Return the ids and names of the first images."""
        return [(self.name(path), self.title(path)) for path in find_pictures(self.folder)[:EXAMPLES]]

    def title(self, path: Path) -> str:
        """Return the path of an image below the folder, in printable characters."""
        return printable(path.relative_to(self.folder).as_posix())


@cache
def drawn_examples() -> Mapping[str, bytes]:
    """Return {id: PNG} of scenes of the drawn world, which are in the folder of the page."""
    names = (f"example-{number + 1}" for number in range(EXAMPLES))
    return {name: bytes_of(Path(__file__).parents[1] / "page" / f"{name}.png") for name in names}
