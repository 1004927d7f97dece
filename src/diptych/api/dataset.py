"""Data sets of images with texts, read from files of any known format, or made from rows."""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from numbers import Integral, Real
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch

from diptych.api.arguments import check_features, check_path, check_type, python_errors
from diptych.api.images import readable
from diptych.api.mapped import Mapped, detector_folder
from diptych.core import Question, Record
from diptych.core.record import WORDED
from diptych.data.extract.own_data import store_of
from diptych.data.formats import coco
from diptych.data.formats.format import Source, Wanted, drawn_split, usual_split, with_usual_splits
from diptych.data.formats.parsing import Skips, answer_kind, combined
from diptych.data.formats.table import read
from diptych.data.store.store import INDEX, Store, iterate
from diptych.runtime.errors import DataError, RecipeError, counted
from diptych.runtime.files import sweep, write_atomically
from diptych.runtime.outputs import taken
from diptych.runtime.terminal import make_console

SHOWN = 4  # number of splits and of kinds of texts in a repr


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
        if not -len(self) <= which < len(self):
            raise IndexError(f"{self.name} has {counted(self, 'images')}, so there is no image {which}")
        return Example(self.records[which])

    def __add__(self, other: Dataset) -> Dataset:
        """Return a data set with the images of both data sets.

        If both have an image, its texts are joined. Raises DataError for an image in two splits.
        """
        if not isinstance(other, Dataset):
            return NotImplemented
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
        chosen = detector_folder(detector)
        check_type("detector", chosen, kinds, "a folder or name of a detector, or features=", RecipeError)
        check_features(features)
        if self.source is not None:
            raise DataError(f"{self.name} already has regions, in the store {self.source}; pass this store")
        named, given = (None if one is None else os.fspath(one) for one in (chosen, features))
        with taken(Path(out), "store"):
            sweep(Path(out))
            files = None if given is None else Path(given)
            store = store_of(self.records, Path(self.name), Path(out), named, make_console(), files, skip_bad)
        return Dataset(iterate(store), self.name, store.folder)

    @property
    def splits(self) -> dict[str, int]:
        """Split -> number of images."""
        return dict(Counter(record.split for record in self.records))

    def __repr__(self) -> str:
        counts = {name: sum(len(getattr(record, name)) for record in self.records) for name in WORDED}
        words = ", ".join(counted(count, name) for name, count in counts.items() if count)
        splits = [f"{name[:20]} {count:,}" for name, count in self.splits.items()]
        listed = ", ".join(splits[:SHOWN] + ["..."] * (len(splits) > SHOWN))
        return f"<diptych.Dataset {self.name[-80:]}: {counted(self, 'images')} ({listed}); {words or 'no words'}>"

    @classmethod
    @python_errors
    def read(
        cls, path: str | os.PathLike[str], images: str | os.PathLike[str] | None = None, *, split: str | None = None,
        seed: int = 0, skip_bad: bool = False,
    ) -> Dataset:  # fmt: skip
        """Read a store, or a file or folder of any format that `diptych extract` reads.

        images: the folder of the images, by default the folder of the data. split: the split of records whose files do
        not name a split. By default the image's name and `seed` decide: 80% train, 10% val, 10% test. `data["val"]`
        selects a split. Invalid entries are skipped with a warning. More than 10 invalid entries that are also more
        than 1% of all are an error, unless `skip_bad` is True. Raises DataError.
        """
        check_path("path", path, "a store, or a file or folder of a known format", DataError)
        if images is not None:
            check_path("images", images, "the folder of the images", DataError, there=True)
        check_type("split", split, (str, type(None)), "the name of a split", DataError)
        check_type("seed", seed, Integral, "a whole number", DataError)
        data = Path(path)
        if (data / INDEX).is_file():
            made = cls(iterate(Store(data)), data.name, data)
        else:
            with _warned(data, skip_bad) as skips:
                folder = None if images is None else Path(images)
                made = cls(read(data, folder, split=split, seed=seed, skips=skips), data.stem)
        if split is not None and made.splits.keys() - {split}:
            warnings.warn(f"{data} names {', '.join(made.splits)}; split= selects none, data[...] does", stacklevel=3)
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
        file = Path(captions)
        with _warned(file, skip_bad) as skips:
            return cls(coco.read_captions(Wanted(Path(images), split, skips=skips), Source(file)), file.stem)

    @classmethod
    @python_errors
    def from_rows(
        cls, rows: Any, *, image: str | None = None, caption: str | None = None, question: str | None = None,
        answer: str | None = None, split: str | None = None, seed: int = 0,
    ) -> Dataset:  # fmt: skip
        """Make a data set from rows: dicts, a DataFrame, or a `Dataset` or `DatasetDict` of the package `datasets`.

        The other parameters name columns. By default, the columns image, caption (or captions), question, answer (or
        answers) and split are used if they exist. An image may have any form that `Model.caption` takes. Of an image
        that is not a file, a copy is stored in the cache. A caption or answer is a text or a list of texts. For several
        questions in a row, the answers are a list of lists, one per question. Rows of a `DatasetDict` without a split
        of their own keep its splits. Other rows without a split get a split as in `read`. Rows with the same image are
        joined. Raises DataError, with the row's index, for a row without texts or without an image.
        """
        if isinstance(rows, Mapping):
            parts: dict[str | None, Any] = {str(name): rows[name] for name in rows}
            if not all(hasattr(part, "column_names") for part in parts.values()):
                raise DataError(f"found a mapping with {', '.join(map(str, rows))}, expected a list of rows as dicts")
        else:
            parts = {None: rows}
        with _warned("rows", False) as skips:
            columns = _Columns(image, caption, question, answer, split, seed, skips)
            made = (record for name, part in parts.items() for record in columns.records(part, name))
            if not (records := combined(with_usual_splits(made, skips))):
                raise DataError("found no rows, expected rows with an image and a text")
            return cls(records, "rows")


@contextmanager
def _warned(path: Path | str, skip_bad: bool) -> Iterator[Skips]:
    """Warn about entries that were skipped inside the `with` block. Raise DataError if there are too many."""
    yield (skips := Skips(skip_bad))
    skips.check()
    if skips.counts:
        warnings.warn(f"{path}: skipped or corrected: {skips}", stacklevel=5)  # shown at the caller's line


@dataclass(frozen=True)
class _Columns:
    """The names of the columns; None if the caller did not name one."""

    image: str | None
    caption: str | None
    question: str | None
    answer: str | None
    split: str | None
    seed: int
    skips: Skips
    spelled: dict[str, str] = field(default_factory=dict)  # path -> the spelling that occurred first

    def records(self, rows: Any, part: str | None) -> Iterator[Record]:
        """Yield a record for each row. `part`: the name of these rows in a `DatasetDict`."""
        for number, row in enumerate(_rows(rows, self.image or "image")):
            key, path = _placed(self._value(row, number, "image"), number)
            if Path(key) == path:  # other spellings, such as ./a.png, are the same image
                first = self.spelled.setdefault(os.path.abspath(key), key)
                key, path = (first, Path(first)) if first != key and path.samefile(first) else (key, path)
            captions = _texts(self._cell(row, number, "caption"), number)
            split, place = self._split(row, number) or part, key
            if split and part and usual_split(split) != usual_split(part):
                self.skips.add(f"rows of {part!r} with the split {split!r} (the row's split is read)", f"row {number}")
                place = f"{key}/{part}"  # the rows of another part have the same numbers
            elif part:
                split = part
            questions = tuple(self._questions(row, number, place))
            if not captions and not questions:
                raise DataError(
                    f"row {number} ({key}) has no words: found {', '.join(map(str, row))}, expected a caption, or a "
                    "question and an answer; leave such rows out, or name the columns (caption=, question=, answer=)"
                )
            yield Record(key, split or drawn_split(key, self.seed), path, captions=captions, questions=questions)

    def _split(self, row: Any, number: int) -> str | None:
        given = _listed(self._value(row, number, "split"))
        for one in given:
            if isinstance(one, Real) and not math.isnan(one):  # pandas marks missing values with NaN
                raise DataError(f"row {number} has the split {one!r}, expected a name such as 'train'")
        if len(names := _texts(given, number)) > 1:
            raise DataError(f"row {number} has the splits {', '.join(names)}, expected one; leave one in the column")
        return names[0] if names else None

    def _questions(self, row: Any, number: int, key: str) -> Iterator[Question]:
        """Yield the row's questions. Several questions need a list of answers for each."""
        queries, answers = (self._cell(row, number, name) for name in ("question", "answer"))
        texts, groups = _texts(queries, number), [every := _texts(answers, number)] * len(queries)
        equal = 1 < len(queries) == len(answers)
        if equal and any(isinstance(_opened(one), list) for one in answers):
            groups = [_texts(one, number) for one in answers]
        elif texts and every and ((texts[1:] and answers[1:]) or (every[1:] and (texts[1:] or equal))):
            raise DataError(
                f"row {number} ({key}) has {counted(texts, 'questions')} and {counted(every, 'answers')}: found two "
                f"readings, {texts[0]!r} with {every[:1]} or with {every[:SHOWN]}, expected a list of answers for each "
                "question, such as [['yes'], ['no']]; write that, or make one row for each question"
            )
        pairs = [(text, group) for one, group in zip(queries, groups, strict=True) for text in _texts(one, number)]
        for n, (text, group) in enumerate(pairs):
            if not group:
                raise DataError(f"row {number} ({key}) has a question but no answer; leave it out, or add the answer")
            yield Question(f"{key}/{number}/{n}", text, group, answer_kind(group))

    def _cell(self, row: Any, number: int, name: str) -> list[Any]:
        """Return the values in the named column, else in the plural of `name`, else in `name`; captions of both."""
        if getattr(self, name) is not None:
            return _listed(self._value(row, number, name))
        one, many = (_listed(row.get(column)) for column in (name, f"{name}s"))
        first, second = _texts(one, number), _texts(many, number)
        if not first or not second or first == second:
            return many if second else one
        read = "both" if name == "caption" else f"`{name}s`"
        self.skips.add(f"rows with `{name}` and other texts in `{name}s` (read: {read})", f"row {number}")
        return [*many, *(text for text in first if text not in second and name == "caption")]

    def _value(self, row: Any, number: int, name: str) -> Any:
        """Return the value in the column that the caller named, else in the usual column `name`, else None."""
        named = getattr(self, name)
        if not isinstance(row, Mapping):
            raise DataError(f"row {number} is of type {type(row).__name__}, expected a dict of columns")
        if named is not None and named not in row:
            raise DataError(f"row {number} has no column {named!r} ({name}=); it has {', '.join(map(str, row))}")
        if named is None and name == "image" and "image" not in row:
            raise DataError(f"row {number} has no column 'image'; pass image= as one of {', '.join(map(str, row))}")
        return row[named] if named is not None else row.get(name)


def _rows(rows: Any, image: str) -> Iterable[Any]:
    """Return the rows as dicts. Images of the package `datasets` are not decoded."""
    if hasattr(rows, "itertuples"):  # pandas
        return rows.to_dict("records")  # type: ignore[no-any-return]
    if hasattr(rows, "cast_column") and type((rows.features or {}).get(image)).__name__ == "Image":
        return rows.cast_column(image, type(rows.features[image])(decode=False))  # type: ignore[no-any-return]
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes):
        raise DataError(f"found {type(rows).__name__}, expected a list of dicts, a DataFrame or a datasets.Dataset")
    return rows


def _opened(value: Any) -> Any:
    """Return the list of a cell with several values, else its single value.

    In the package `datasets`, VQA v2's answers are dicts with the key `answer`.
    """
    if isinstance(value, Mapping):
        return _opened(value.get("answer"))
    if isinstance(value, np.ndarray | torch.Tensor) and value.ndim == 0:
        return _opened(np.asarray(value)[()])
    single = isinstance(value, str | bytes | bytearray | memoryview) or not isinstance(value, Iterable)
    return value if single else list(value)


def _listed(value: Any) -> list[Any]:
    opened = _opened(value)
    return opened if isinstance(opened, list) else [opened]


def _texts(value: Any, row: int) -> tuple[str, ...]:
    """Return the non-empty texts of a cell. Bytes are UTF-8, and a number becomes its text."""
    value = _opened(value)
    if isinstance(value, list):
        return tuple(text for one in value for text in _texts(one, row))
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            value = bytes(value).decode()
        except UnicodeDecodeError as error:
            place = f"row {row} has bytes that are not UTF-8 (at byte {error.start})"
            raise DataError(f"{place}, expected a text; decode it: value.decode('latin1')") from None
    if isinstance(value, str):
        return (str.__str__(value),) if value.strip() else ()  # not numpy's class of texts
    if isinstance(value, bool | np.bool_):
        raise DataError(f"row {row} has {value} where a text is expected; write a word, such as 'yes'")
    if isinstance(value, Real) and not math.isnan(value):  # NaN is a missing value
        number = int(value) if isinstance(value, Integral) else value if hasattr(value, "dtype") else float(value)
        return (str(number).removesuffix(".0"),)
    return ()  # other marks of missing values


def _placed(value: Any, number: int) -> tuple[str, Path]:
    """Return the key and the path of a row's image. An image that is not a file is copied to the cache."""
    from PIL import Image

    from diptych.vision.pictures import read_picture

    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    try:
        if isinstance(value, bytes):
            read_picture(value, "the content")
            file, ending = value, ""
        elif not isinstance(picture := readable(value), torch.Tensor):
            path = Path(value)
            if not path.is_file():
                raise DataError(f"there is no image {path}; download it, or correct the path")
            return str(value), path
        else:
            written = BytesIO()
            Image.fromarray(picture.permute(1, 2, 0).numpy()).save(written, "PNG")
            file, ending = written.getvalue(), ".png"
    except DataError as error:
        raise DataError(f"row {number}: {error}") from error
    key = hashlib.sha256(file).hexdigest()[:24]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = cache / "diptych" / "images" / (key + ending)
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, file)
    return key, path
