"""One name for each image file, however the entries of a data set write its path."""

import os
import posixpath
from contextlib import suppress
from pathlib import Path
from unicodedata import normalize

from diptych.data.formats.parsing import Skips

OTHERWISE = "images named in more than one way (each is one image)"


class Names:
    """The names of the images of a data set. A name is a path relative to the images' folder, in normal form.

    Normal form: `/` between folders, no part that is empty, `.` or `..`, and Unicode's form NFC. A link has the name of
    its file, if an earlier entry names the file. Two files whose names differ only in form keep their names.
    """

    def __init__(self) -> None:
        self.first: dict[str, str] = {}  # {name: the first form in which an entry writes it}
        self._names: dict[str, str] = {}  # {form in which an entry writes it: name}
        self._files: dict[tuple[int, int], str] = {}  # {device and inode of a file: name}

    def of(self, image: str, folders: tuple[Path, ...], skips: Skips, where: str) -> str:
        """Return the name of an image in `folders`. An image that has another form already is counted in `skips`."""
        if (name := self._names.get(image)) is None:
            own = _file(image, folders)
            name = _plain(image if own is not None else image.replace("\\", "/"), folders)
            other = own if name == image else _file(name, folders)
            name = image if own is not None and other not in (None, own) else name  # of two files, each keeps its own
            name = self._files.setdefault(file, name) if (file := own or other) is not None else name
            if name in self.first:
                skips.add(OTHERWISE, where)
            self.first.setdefault(name, name if image.startswith("/") or ".." in image.split("/") else image)
            self._names[image] = name
        return name


def _plain(image: str, folders: tuple[Path, ...]) -> str:
    name = posixpath.normpath(image)
    for root in [of(one) for one in folders for of in (os.path.abspath, os.path.realpath)] if name[0] == "/" else ():
        name = name.removeprefix(f"{root.rstrip('/')}/")
    return normalize("NFC", name)


def _file(image: str, folders: tuple[Path, ...]) -> tuple[int, int] | None:
    """Return the device and the inode of an image's file, None if there is no such file."""
    for folder in folders:
        with suppress(OSError, ValueError):
            status = os.stat(os.path.join(folder, image))
            return status.st_dev, status.st_ino
    return None
