"""The images that a service shows: its gallery and drawn examples. Their ids do not reveal paths."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from functools import cache
from itertools import islice
from pathlib import Path

from diptych.runtime.errors import DataError
from diptych.runtime.files import bytes_of
from diptych.vision.decoder import shared_decoders
from diptych.vision.image_files import as_jpeg, find_pictures

THUMBNAIL = 480  # longer side of a thumbnail in pixels
EXAMPLES = 6


class PictureGallery:
    """A folder of images to search. An image can be requested only by its id, which clients cannot guess."""

    def __init__(self, folder: Path, address: str | None = None) -> None:
        self.folder, self.address = folder, address  # address: URL of the database with the vectors
        self._secret = secrets.token_bytes(32)
        self._named: dict[str, Path] = {}

    def name(self, path: Path) -> str:
        """Return the id of an image. From then on, the image can be requested by this id."""
        name = hmac.new(self._secret, str(path).encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:20]
        self._named[name] = path
        return name

    def thumbnail(self, name: str) -> bytes | None:
        """Return a small JPEG of the image with this id; None if the id is unknown or the image cannot be read."""
        path = self._named.get(name)
        if path is None:
            return None
        try:
            return as_jpeg(shared_decoders().open(path), THUMBNAIL, 85)
        except DataError:
            return None

    def first(self, count: int) -> list[str]:
        """Return the ids of the first `count` images."""
        return [self.name(path) for path in islice(find_pictures(self.folder), count)]


@cache
def drawn_examples() -> Mapping[str, bytes]:
    """Return {id: PNG} of scenes of the drawn world, which are in the folder of the page."""
    names = (f"example-{number + 1}" for number in range(EXAMPLES))
    return {name: bytes_of(Path(__file__).parents[1] / "page" / f"{name}.png") for name in names}
