"""The images that a service shows: its gallery, under ids that do not reveal paths, and drawn examples."""

import hashlib
import hmac
import io
import secrets
from collections.abc import Mapping
from functools import cache
from itertools import islice
from pathlib import Path

from PIL import Image

from diptych.runtime.errors import DataError
from diptych.vision.decoder import shared_decoders
from diptych.vision.image_files import as_jpeg, find_pictures

THUMBNAIL = 480  # pixels of the longer side
EXAMPLES = 6
SEED = 2020  # seed of drawn examples, from a split that is never trained on


class PictureGallery:
    """A folder of images under ids of this run of the service; only images with an id can be requested."""

    def __init__(self, folder: Path, address: str | None = None) -> None:
        self.folder, self.address = folder, address  # address: of the database of vectors
        self._secret = secrets.token_bytes(32)
        self._named: dict[str, Path] = {}

    def name(self, path: Path) -> str:
        """Return the id of an image, which can then be requested."""
        name = hmac.new(self._secret, str(path).encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:20]
        self._named[name] = path
        return name

    def thumbnail(self, name: str) -> bytes | None:
        """Return a small JPEG; None for an unknown id or an image that can no longer be read."""
        path = self._named.get(name)
        if path is None:
            return None
        try:
            return as_jpeg(shared_decoders().open(path), THUMBNAIL, 85)
        except DataError:
            return None

    def first(self, count: int) -> list[str]:
        """Return the ids of the first images."""
        return [self.name(path) for path in islice(find_pictures(self.folder), count)]


@cache
def drawn_examples(count: int = EXAMPLES) -> Mapping[str, bytes]:
    """Return scenes of the drawn world as PNGs, by id."""
    import numpy as np

    from diptych.storybook.book import Storybook
    from diptych.storybook.render import render

    examples: dict[str, bytes] = {}
    for scene in Storybook(SEED, "test", count):
        content = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(render(scene, 2))).save(content, "PNG")
        examples[f"example-{len(examples) + 1}"] = content.getvalue()
    return examples
