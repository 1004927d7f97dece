"""Data sets of images with texts, read from files of any known format, or made from rows."""

from __future__ import annotations

import operator
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, overload

from diptych.api.arguments import check_features, python_errors
from diptych.api.mapped import Mapped
from diptych.api.rows import Columns
from diptych.core import Question, Record
from diptych.data.extract.extract import is_another
from diptych.data.extract.own_data import store_of
from diptych.data.formats import coco
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Skips, combined
from diptych.data.formats.splits import usual_split, with_usual_splits
from diptych.data.formats.table import read
from diptych.data.store.store import INDEX, Store, iterate
from diptych.inference.open import folder_or
from diptych.runtime.arguments import at_home, check_path, check_type, path_of
from diptych.runtime.errors import DataError, RecipeError, Stopped, counted
from diptych.runtime.files import sweep
from diptych.runtime.outputs import taken
from diptych.runtime.terminal import make_console

SHOWN = 4  # the repr of a data set lists at most this many splits and this many kinds of texts


@dataclass(frozen=True, repr=False)
class Example:
    """An image of a `Dataset` with its texts. `record` has all annotations."""

    record: Record

    @property
    def image(self) -> Any:
        """The image as a PIL image in RGB, rotated to be upright."""
        from PIL import Image

        from diptych.vision.pictures import open_picture

        if self.record.image is None:
            raise DataError(f"record {self.record.key} has no image; pass the images' folder (images=)")
        return Image.fromarray(open_picture(self.record.image).permute(1, 2, 0).numpy())

    @property
    def path(self) -> Path | None:
        """The image file; None for an image without a file."""
        return self.record.image

    @property
    def split(self) -> str:
        return self.record.split

    @property
    def captions(self) -> tuple[str, ...]:
        return self.record.captions

    @property
    def questions(self) -> tuple[Question, ...]:
        return self.record.questions

    def __repr__(self) -> str:
        texts = [*self.captions, *(one.text for one in self.questions)]
        return f"<diptych.Example {self.record.key[-80:]} ({self.record.split[:20]}): {str(texts[:2])[1:-1][:150]}>"


class Dataset(Sequence[Example]):
    """A sequence of images with texts. `ds[0]` is an `Example`; `ds["val"]` and `ds[:100]` are smaller data sets.

    records: one record or example per image, as in `Dataset(one for one in ds if one.captions)`. name: shown in a repr
    and in messages. source: a store with exactly these records, from which training reads the regions.
    """

    def __init__(self, records: Iterable[Record | Example], name: str = "data", source: Path | None = None) -> None:
        self.records = tuple(one.record if isinstance(one, Example) else one for one in records)
        self.name, self.source = name, source
        for one in self.records:
            check_type("records", one, Record, "records or examples; for rows: Dataset.from_rows", DataError)

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, which: int) -> Example: ...
    @overload
    def __getitem__(self, which: slice | str) -> Dataset: ...
    def __getitem__(self, which: int | slice | str) -> Example | Dataset:
        if isinstance(which, str):
            chosen = [record for record in self.records if record.split == which]
            if not chosen:
                raise DataError(f"{self.name} has no split {which!r}; it has {', '.join(self.splits) or 'none'}")
            return Dataset(chosen, f"{self.name}[{which}]")
        if isinstance(which, slice):
            return Dataset(self.records[which], self.name)
        which = operator.index(which)
        if not -len(self) <= which < len(self):
            raise IndexError(f"{self.name} has {counted(self, 'images')}, counted from 0, and no image {which}")
        return Example(self.records[which])

    def __add__(self, other: Dataset) -> Dataset:
        """Return a data set with the images of both data sets.

        If both have an image, its texts are joined. Raises DataError for an image in two splits, and for two images
        with one key.
        """
        if not isinstance(other, Dataset):
            return NotImplemented
        images = {one.key: one.image for one in self.records}
        for one in other.records:
            if is_another(one.image, there := images.get(one.key)):
                raise DataError(f"found one key of two images, {there} and {one.image}; read both at once", key=one.key)
        return Dataset(combined(self.records, other.records), self.name)

    @python_errors
    def extract(
        self, out: str | os.PathLike[str], *, detector: str | os.PathLike[str] | Mapped | None = None,
        features: str | os.PathLike[str] | None = None, skip_bad: bool = False,
    ) -> Dataset:  # fmt: skip
        """Extract the regions of all images to the store `out`, and return the data set with regions.

        A second call resumes an interrupted extraction. `finetune`, `pretrain` and `evaluate` read the stored regions.
        If a data set has no regions, each of their calls extracts the regions again. `detector`: name of a detector,
        folder of a detector, model or run, or a loaded model. `features`: file or folder of region features, to be used
        in place of a detector. Raises DataError and RecipeError.
        """
        check_path("out", out, "a folder for the store", DataError)
        kinds = (str, os.PathLike, *(() if features is None else (type(None),)))
        chosen = folder_or(detector)
        check_type("detector", chosen, kinds, "a folder or name of a detector, or features=", RecipeError)
        check_features(features)
        if self.source is not None:
            raise DataError(f"{self.name} already has regions, in the store {self.source}; use that store")
        named, given = (None if one is None else at_home(os.fspath(one)) for one in (chosen, features))
        folder = path_of(out)
        with taken(folder, "store"), resumable():
            sweep(folder)
            files = None if given is None else Path(given)
            store = store_of(self.records, Path(self.name), folder, named, make_console(), files, skip_bad)
        return Dataset(iterate(store), self.name, store.folder)

    @property
    def splits(self) -> dict[str, int]:
        """Split -> number of images."""
        return dict(Counter(record.split for record in self.records))

    def __repr__(self) -> str:
        counts = Counter[str]()
        for record in self.records:
            counts.update({name: len(entries) for name, entries in record.words().items()})
        words = ", ".join(counted(count, name) for name, count in counts.items() if count)
        splits = [f"{name[:20]} {count:,}" for name, count in self.splits.items()]
        listed = ", ".join(splits[:SHOWN] + ["..."] * (len(splits) > SHOWN))
        return f"<diptych.Dataset {self.name[-80:]}: {counted(self, 'images')} ({listed}); {words or 'no words'}>"

    @classmethod
    @python_errors
    def read(
        cls, path: str | os.PathLike[str], images: str | os.PathLike[str] | None = None, *, split: str | None = None,
        seed: int = 0, skip_bad: bool = False, stored_boxes: bool = False,
    ) -> Dataset:  # fmt: skip
        """Read a store, or a file or folder of any format that `diptych extract` reads.

        images: the folder of the images, by default the folder of the data. split: the split of records whose files do
        not name a split. By default the image's name and `seed` decide: 80% train, 10% val, 10% test. `data["val"]`
        selects a split. Invalid entries are skipped with a warning. More than 10 invalid entries that are also more
        than 1% of all are an error, unless `skip_bad` is True. `stored_boxes`: boxes, outlines and sizes are of the
        stored pixels, to which EXIF's orientation is not applied; they are turned to the upright image. Raises
        DataError.
        """
        check_path("path", path, "a store, or a file or folder of a known format", DataError)
        if images is not None:
            check_path("images", images, "the folder of the images", DataError, there=True)
        check_type("split", split, (str, type(None)), "the name of a split", DataError)
        check_type("seed", seed, Integral, "a whole number", DataError)
        data = path_of(path)
        if (data / INDEX).is_file():
            made = cls(iterate(Store(data)), data.name, data)
        else:
            with _warned(data, skip_bad) as skips:
                folder = None if images is None else path_of(images)
                made = cls(read(data, folder, split=split, seed=seed, skips=skips, stored=stored_boxes), data.stem)
        if split is not None and made.splits.keys() - {split, usual_split(split)}:
            warnings.warn(f"{data}: select one of {', '.join(made.splits)} by data[...], not with split=", stacklevel=3)
        return made

    @classmethod
    @python_errors
    def from_coco(
        cls, captions: str | os.PathLike[str], images: str | os.PathLike[str], *, split: str, skip_bad: bool = False
    ) -> Dataset:
        """Read COCO's `captions_*.json` and its folder of images.

        `split`: the split of all images. `skip_bad`: as in `read`. `Dataset.from_coco(A, B, split="train") +
        Dataset.from_coco(C, D, split="val")` is a data set with two splits.
        """
        check_path("captions", captions, "COCO's file captions_*.json", DataError)
        check_path("images", images, "the folder of the images", DataError)
        check_type("split", split, str, "the name of a split", DataError)
        file = path_of(captions)
        with _warned(file, skip_bad) as skips:
            records = coco.read_captions(Wanted(path_of(images), split, skips=skips), Source(file))
            return cls(with_usual_splits(records, skips), file.stem)

    @classmethod
    @python_errors
    def from_rows(
        cls, rows: Any, *, image: str | None = None, caption: str | None = None, question: str | None = None,
        answer: str | None = None, split: str | None = None, seed: int = 0,
    ) -> Dataset:  # fmt: skip
        """Make a data set from rows: dicts, a DataFrame, or a `Dataset` or `DatasetDict` of the package `datasets`.

        The other parameters name columns. By default, the columns image, caption (or captions), question, answer (or
        answers) and split are used if they exist. An image may have any form that `Model.caption` takes. Of an image
        that is not a file, a copy is stored in the cache. A caption or answer is a text, a list of texts, or a text
        that holds such a list, such as "['a dog', 'a cat']". For several questions in a row, the answers are a list of
        lists, one per question. Rows of a `DatasetDict` without a split of their own keep its splits. Other rows
        without a split have that of a row with the same image, else a split drawn from `seed` and the image's path in
        the current folder, with the shares of `read`. If an image lies elsewhere, it is the path in the folder that all
        images have in common. Rows with the same image are joined. Raises DataError, with the row's
        index, for a row without texts or without an image.
        """
        with _warned("rows", False) as skips:
            records = Columns(image, caption, question, answer, split, Wanted(seed=seed, skips=skips)).read(rows)
            return cls(records, "rows")


@contextmanager
def resumable() -> Iterator[None]:
    """Turn Ctrl-C inside the `with` block, which extracts regions, into Stopped."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise Stopped("stopped; regions in complete shards are kept, and the same call resumes") from error


@contextmanager
def _warned(path: Path | str, skip_bad: bool) -> Iterator[Skips]:
    """Warn about entries that were skipped inside the `with` block. Raise DataError if there are too many."""
    yield (skips := Skips(skip_bad))
    skips.check()
    if skips.counts:
        warnings.warn(f"{path}: skipped or corrected: {skips}", stacklevel=5)  # names the caller's line
