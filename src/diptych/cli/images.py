"""Find the images that a verb reads (by name, folder or pattern), and write drawings."""

from __future__ import annotations

import glob
import sys
from collections.abc import Callable, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diptych.runtime.errors import DataError
from diptych.runtime.files import MARKER
from diptych.runtime.outputs import claim, note, refuse_file
from diptych.runtime.terminal import printable

if TYPE_CHECKING:
    from diptych.tasks.interface import GroundedText

# A folder with one of these files is not a folder of images. File name -> kind of folder, for the error message.
FOLDERS = {"store.json": "a store"} | dict.fromkeys(("recipe.json", "config.json"), "a run or model (--model)")
Refuse = Callable[[object, DataError], object]


class ShownFolder:
    """Writes a PNG per prediction to the folder of `--show`.

    A PNG has the name of its image, and a number if the name is taken.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder, self._names = folder, set[str]()
        if folder is not None:
            claim(folder, "drawings")

    def write(self, prediction: GroundedText) -> str | None:
        """Draw a prediction and return the path of the PNG; None without a folder."""
        if self.folder is None:
            return None
        from diptych.inference.drawing import draw
        from diptych.vision.pictures import open_picture

        assert prediction.record.image is not None
        return self.save(prediction.record.image.stem, draw(prediction, open_picture(prediction.record.image)))

    def save(self, stem: str, drawn: Any) -> str:
        """Write a drawing as STEM.png, and return its path."""
        from diptych.vision.image_files import write_png

        assert self.folder is not None
        name = next(n for n in chain([stem], (f"{stem}-{k}" for k in count(2))) if n not in self._names)
        self._names.add(name)
        path = self.folder / f"{name}.png"
        refuse_file(path, noted=self.folder / MARKER)
        write_png(drawn, path)
        note(path, self.folder / MARKER)
        return str(path)


def _is_several(name: str) -> bool:
    return Path(name).is_dir() or (not Path(name).exists() and glob.has_magic(name))


class Failures:
    """Counts images that failed.

    When called with an error it prints the error, or raises it if only one image was requested.
    """

    def __init__(self, names: list[str]) -> None:
        self.alone, self.count = len(names) == 1 and not _is_several(names[0]), 0

    def __call__(self, _: object, error: DataError) -> None:
        if self.alone:
            raise error
        self.count += 1
        print(f"diptych: {printable(str(error))}", file=sys.stderr)

    def check(self, images: Sequence[Path]) -> None:
        """Raise DataError if an image failed."""
        if self.count:
            raise DataError(f"{self.count} of {max(len(images), self.count)} images failed; see the reasons above")


def _instead(folder: Path) -> str:
    """Return what a folder without images is, such as a store or a model; empty for a pattern."""
    if kind := next((kind for file, kind in FOLDERS.items() if (folder / file).is_file()), None):
        return f", which is {kind}; pass image files or a folder of them"
    files = ", ".join(sorted(path.name for path in folder.glob("*"))[:3]) or "nothing"
    return f": found {files}, expected files such as .png or .jpg" if folder.is_dir() else ""


def find_images(names: list[str], refuse: Refuse) -> list[Path]:
    """Return the images that the arguments name, in order, without duplicates.

    `refuse` is called for arguments without images. Raises DataError if there are no images at all.
    """
    from diptych.vision.image_files import find_pictures, is_named_image

    paths: dict[Path, None] = {}
    if "" in names:
        raise DataError("found an empty path, expected an image file, a folder or a pattern")
    for name in names:
        path = Path(name)
        if path.is_dir():
            here = find_pictures(path)
        elif _is_several(name):
            here = [p for p in map(Path, sorted(glob.glob(name, recursive=True))) if is_named_image(p.name)]
        else:
            here = [path]
        if not here:
            error = DataError(f"no images in {name}{_instead(path)}")
            if len(names) == 1:
                raise error
            refuse(name, error)
        paths |= dict.fromkeys(here)
    if not paths:
        raise DataError("no image could be read; the reasons are printed above")
    return list(paths)
