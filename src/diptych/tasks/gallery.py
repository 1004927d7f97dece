"""A gallery of images and captions, with a table of the match scores of all pairs.

The table has one row per image and one column per caption. If it is stored in a file, a stopped job resumes with
the pairs that it has scored. Images are read one at a time, so a gallery may be larger than memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diptych.core import Record
from diptych.metrics.retrieval import same_images, same_texts
from diptych.runtime.errors import DataError, RecipeError, explained
from diptych.runtime.files import parse_json, text_of, write_atomically

# papers: only the image or captions that the data pairs with a query are right, as in the papers' scores.
# content: copies of these are right as well, such as a caption with the same words or an identical image.
Equals = Literal["papers", "content"]
Table = NDArray[np.float32]
Cells = Sequence[NDArray[np.int64]]  # for each image, the numbers of the captions (columns) to score with it
TABLE, DESCRIPTION = "scores.npy", "scores.json"
EMPTY = np.float32(0)  # marks a pair that is not scored yet; zeros keep a new table file sparse on the disk
LEAST = np.float32(1e-30)  # stored instead of a score of exactly 0, which would mean "not scored yet"
FLUSH_EVERY = 100  # number of batches after which the table is written to disk


@dataclass(frozen=True)
class GalleryCaption:
    """A caption of a gallery."""

    key: str
    text: str
    picture: int  # number of the row that the caption's image has in the table
    id: str = ""  # id of the caption in the data set, if it has one


@dataclass(frozen=True)
class RetrievalGallery:
    """Images with captions, in a fixed order. `record(row)` reads one image's record with its regions."""

    record: Callable[[int], Record]
    keys: tuple[str, ...]
    captions: tuple[GalleryCaption, ...]
    equals: Equals = "content"
    # A content hash of each image, by which copies are found. (): all images differ.
    contents: tuple[Hashable, ...] = ()

    @classmethod
    def of(
        cls, worded: Sequence[Record], read: Callable[[int], Record] | None = None, equals: Equals = "content"
    ) -> RetrievalGallery:
        """Build a gallery of the records that have captions. The others are left out.

        `read(index)` returns record `index` of `worded` with its regions. Pass it if the records have no regions.
        Raises DataError for an empty gallery.
        """
        read = read or worded.__getitem__
        kept = [row for row, record in enumerate(worded) if any(text.strip() for text in record.captions)]
        if not kept:
            raise DataError(f"none of {len(worded)} images has captions to search with; choose another --split")
        captions = [
            GalleryCaption(f"{worded[row].key}#{number}", text, at, worded[row].caption_id(number))
            for at, row in enumerate(kept)
            for number, text in enumerate(worded[row].captions)
            if text.strip()
        ]
        keys = tuple(worded[row].key for row in kept)
        contents = tuple(worded[row].content for row in kept)
        return cls(lru_cache(1)(lambda row: read(kept[row])), keys, tuple(captions), equals, contents)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """The row of each caption's image."""
        return np.array([caption.picture for caption in self.captions], dtype=np.int64)

    @cached_property
    def same(self) -> NDArray[np.int64]:
        """A group number for each caption. Captions with the same words have the same number."""
        return same_texts([caption.text for caption in self.captions])

    @cached_property
    def images(self) -> NDArray[np.int64]:
        """A group number for each image. Images with the same content have the same number."""
        return same_images(self.contents or self.keys)

    def right_captions(self, row: int, equals: Equals) -> NDArray[np.bool_]:
        """Return a mask over all captions: True if the caption is right for the image `row`."""
        if equals == "papers":
            return np.equal(self.owners, row)
        return np.isin(self.same, self.same[self.images[self.owners] == self.images[row]])

    def right_pictures(self, column: int, equals: Equals) -> NDArray[np.bool_]:
        """Return a mask over all images: True if the image is right for the caption `column`."""
        if equals == "papers":
            return np.isin(np.arange(len(self.keys)), self.owners[column])
        return np.isin(self.images, self.images[self.owners[self.same == self.same[column]]])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.keys), len(self.captions)

    def digest(self) -> str:
        """Return the SHA-256 of all keys and captions, which identifies the gallery."""
        digest = hashlib.sha256()
        for text in (*self.keys, *(f"{c.key}\t{c.text}" for c in self.captions)):
            digest.update(text.encode() + b"\n")
        return digest.hexdigest()


def open_table(gallery: RetrievalGallery, folder: Path | None, fingerprint: str, images: str = "") -> Table:
    """Open the score table in `folder`, or create it. If `folder` is None, the table is in memory.

    `fingerprint` identifies the model, and `images` the images with their regions. Raises RecipeError for a table of
    another model or gallery, and DataError for a damaged table.
    """
    if folder is None:
        return np.zeros(gallery.shape, dtype=np.float32)
    texts = {"gallery": gallery.digest(), "shape": list(gallery.shape)}
    wanted = {"format": 2, "model": fingerprint, "set of images": images, **texts}
    if (folder / DESCRIPTION).is_file():
        with explained(DataError, f"the scores in {folder} are damaged", "delete the folder"):
            described = parse_json(text_of(folder / DESCRIPTION))
            np.load(folder / TABLE, mmap_mode="r", allow_pickle=False)  # `r+` would enlarge a table that is cut short
            table: Table = np.load(folder / TABLE, mmap_mode="r+", allow_pickle=False)
            if not isinstance(described, dict) or table.dtype != np.float32:
                raise ValueError("expected a table of float32 scores")
        if described != wanted or table.shape != gallery.shape:
            other = [name for name in wanted if described.get(name) != wanted[name]] or ["shape"]
            raise RecipeError(
                f"{folder} has scores of another {' and another '.join(other)}; pass another folder, or delete this one"
            )
        return table
    folder.mkdir(parents=True, exist_ok=True)
    made: Table = np.lib.format.open_memmap(folder / TABLE, "w+", np.float32, gallery.shape)
    write_atomically(folder / DESCRIPTION, json.dumps(wanted, indent=1).encode())
    return made


def put(
    table: Table,
    gallery: RetrievalGallery,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None:
    """Write the scores of the cells (rows, columns) into the table. Raises DataError for a score that is not finite."""
    broken = np.flatnonzero(~np.isfinite(scores))
    if len(broken):
        caption = gallery.captions[columns[broken[0]]]
        raise DataError(
            f"{len(broken)} of {len(scores)} scores are not finite, so nothing can be ranked (the first: image "
            f"{gallery.keys[rows[broken[0]]]}, caption {caption.key}, {caption.text!r}). If `diptych check` "
            "finds only finite features, then the weights are not finite: use an earlier checkpoint"
        )
    table[rows, columns] = np.where(scores == EMPTY, LEAST, scores)


def missing_cells(table: Table, cells: Cells) -> list[NDArray[np.int64]]:
    """Return the given cells that have no score yet."""
    return [columns[table[row, columns] == EMPTY] for row, columns in enumerate(cells)]


def joined(*several: Cells) -> list[NDArray[np.int64]]:
    """Return for each image the union of its columns in all given sets of cells."""
    return [np.unique(np.concatenate(columns)) for columns in zip(*several, strict=True)]


def pairs(cells: Cells, order: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield each cell as (row, column), image by image.

    Each image's captions are sorted by `order[column]`, their length, to reduce padding.
    """
    for row, columns in enumerate(cells):
        for column in columns[np.argsort(order[columns], kind="stable")]:
            yield row, int(column)
