"""Read rows of Python, such as those of a DataFrame, as records."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from numbers import Integral, Real
from operator import length_hint
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diptych.api.images import readable
from diptych.core import Question, Record
from diptych.data.formats.format import Wanted
from diptych.data.formats.parsing import answer_kind, combined
from diptych.data.formats.splits import usual_split, with_usual_splits
from diptych.data.formats.values import listed_texts
from diptych.runtime.arguments import path_of
from diptych.runtime.errors import DataError, counted
from diptych.runtime.files import write_atomically
from diptych.runtime.outputs import folder_in_cache
from diptych.runtime.progress import advancing

SHOWN = 4  # an error message shows at most this number of answers
_BYTES = bytes | bytearray | memoryview
_BRACKETS = re.compile(r"""\s*\[.*['"].*\]\s*""", re.S)


@dataclass(frozen=True)
class Columns:
    """The names of the columns, None if the caller did not name one; `wanted` has the seed and the counts."""

    image: str | None
    caption: str | None
    question: str | None
    answer: str | None
    split: str | None
    wanted: Wanted

    def read(self, rows: Any) -> list[Record]:
        """Return one record per image. Raises DataError, with the row's index, for an invalid row."""
        if isinstance(rows, Mapping):
            parts: dict[str | None, Any] = {str(name): rows[name] for name in rows}
            if not all(hasattr(part, "column_names") for part in parts.values()):
                raise DataError(f"found a mapping with {', '.join(map(str, rows))}, expected a list of rows as dicts")
        else:
            parts = {None: rows}
        read: list[Record] = []
        with advancing("reading", sum(map(length_hint, parts.values())), "rows") as advance:
            for name, part in parts.items():
                for record in self.records(part, name):
                    read.append(record)
                    advance(1)
        made = self._named(read)
        named = {record.key: record.split for record in made if record.split}
        splits = self.wanted.splits
        full = splits.fill(replace(r, split=r.split or named.get(r.key, "")) for r in made)
        if not (records := combined(with_usual_splits(full, self.wanted.skips))):
            raise DataError("found no rows, expected rows with an image and a text")
        splits.note_drawn(records, "rows")
        return records

    def records(self, rows: Any, part: str | None) -> Iterator[Record]:
        """Yield a record for each row, with an empty split if it has none. `part`: its name in a `DatasetDict`."""
        for number, row in enumerate(_rows(rows, self.image or "image")):
            key, path = _placed(self._value(row, number, "image"), number)
            captions = _texts(self._cell(row, number, "caption"), number)
            split, place = self._split(row, number) or part, str(number)
            if split and part and usual_split(split) != usual_split(part):
                reason = f"rows of {part!r} with the split {split!r} (the row's split is read)"
                self.wanted.skips.add(reason, f"row {number}")
                place = f"{part}/{number}"  # makes ids unique, because row numbers restart in each part
            elif part:
                split = part
            questions = tuple(self._questions(row, number, key, place))
            if not captions and not questions:
                raise DataError(
                    f"row {number} ({key}) has no words: found {', '.join(map(str, row))}, expected a caption, or a "
                    "question and an answer; leave such rows out, or name the columns (caption=, question=, answer=)"
                )
            texts = (*captions, *(answer for one in questions for answer in one.answers))
            if count := sum(_BRACKETS.fullmatch(text) is not None for text in texts):
                self.wanted.skips.add("texts that look like lists (each is one text)", f"row {number}", count)
            yield Record(key, split or "", path, captions=captions, questions=questions)

    def _named(self, records: list[Record]) -> list[Record]:
        """Give each image file one key, and begin the ids of its questions with it.

        The key is the file's path in the current folder. If an image lies elsewhere, it is the path in the folder that
        all images have in common.
        """
        here = base = os.getcwd()
        # The key of an image that is not a file is not its path.
        files = {r.key: os.path.join(here, r.key) for r in records if r.key == str(r.image)}
        if not all(Path(os.path.abspath(file)).is_relative_to(here) for file in files.values()):
            base = os.path.commonpath([os.path.dirname(os.path.abspath(file)) for file in files.values()])
        wanted = replace(self.wanted, pictures=Path(base))
        keys = {key: wanted.name_of(key if base == here else file, key) for key, file in files.items()}
        named = (replace(r, key=keys.get(r.key, r.key)) for r in records)
        return [replace(r, questions=tuple(replace(q, key=f"{r.key}/{q.key}") for q in r.questions)) for r in named]

    def _split(self, row: Any, number: int) -> str | None:
        given = _listed(self._value(row, number, "split"))
        for one in given:
            if isinstance(one, Real) and not math.isnan(one):  # pandas marks missing values with NaN
                raise DataError(f"row {number} has the split {one!r}, expected a name such as 'train'")
        if len(names := _texts(given, number)) > 1:
            raise DataError(f"row {number} has the splits {', '.join(names)}, expected one split; keep only one")
        return names[0] if names else None

    def _questions(self, row: Any, number: int, key: str, place: str) -> Iterator[Question]:
        """Yield the row's questions; ids begin with `place`. Several questions need a list of answers for each."""
        queries, answers = (self._cell(row, number, name) for name in ("question", "answer"))
        texts, groups = _texts(queries, number), [every := _texts(answers, number)] * len(queries)
        equal = 1 < len(queries) == len(answers)
        if equal and any(isinstance(_opened(one), list) for one in answers):
            groups = [_texts(one, number) for one in answers]
        elif texts and every and ((texts[1:] and answers[1:]) or (every[1:] and (texts[1:] or equal))):
            raise DataError(
                f"row {number} ({key}) has {counted(texts, 'questions')} and {counted(every, 'answers')}: {texts[0]!r} "
                f"may have the answers {every[:1]} or {every[:SHOWN]}; expected a list of answers for each question, "
                "such as [['yes'], ['no']]; write that, or make one row for each question"
            )
        pairs = [(text, group) for one, group in zip(queries, groups, strict=True) for text in _texts(one, number)]
        for n, (text, group) in enumerate(pairs):
            if not group:
                raise DataError(f"row {number} ({key}) has a question but no answer; leave it out, or add the answer")
            yield Question(f"{place}/{n}", text, group, answer_kind(group))

    def _cell(self, row: Any, number: int, name: str) -> list[Any]:
        """Return the values in the named column, else in the plural of `name`, else in `name`; captions of both."""
        if getattr(self, name) is not None:
            return _listed(self._value(row, number, name))
        one, many = (_listed(row.get(column)) for column in (name, f"{name}s"))
        first, second = _texts(one, number), _texts(many, number)
        if not first or not second or first == second:
            return many if second else one
        read = "both" if name == "caption" else f"`{name}s`"
        self.wanted.skips.add(f"rows with `{name}` and other texts in `{name}s` (read: {read})", f"row {number}")
        return [*many, *(text for text in first if text not in second and name == "caption")]

    def _value(self, row: Any, number: int, name: str) -> Any:
        """Return the value in the column that the caller named, else in the usual column `name`, else None."""
        named = getattr(self, name)
        if not isinstance(row, Mapping):
            raise DataError(f"row {number} is of type {type(row).__name__}, expected a dict of columns")
        if named is not None and named not in row:
            raise DataError(f"row {number} has no column {named!r} ({name}=); it has {', '.join(map(str, row))}")
        if named is None and name == "image" and "image" not in row:
            raise DataError(f"row {number} has no column 'image'; set image= to one of {', '.join(map(str, row))}")
        return row[named] if named is not None else row.get(name)


def _rows(rows: Any, image: str) -> Iterable[Any]:
    """Return the rows as dicts. Images of the package `datasets` are not decoded."""
    if hasattr(rows, "itertuples"):  # a pandas DataFrame
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
    if isinstance(value, str):
        return listed_texts(value)
    return list(value) if isinstance(value, Iterable) and not isinstance(value, _BYTES) else value


def _listed(value: Any) -> list[Any]:
    opened = _opened(value)
    return opened if isinstance(opened, list) else [opened]


def _texts(value: Any, row: int) -> tuple[str, ...]:
    """Return the non-empty texts of a cell. Bytes are UTF-8, and a number becomes its text."""
    value = _opened(value)
    if isinstance(value, list):
        return tuple(text for one in value for text in _texts(one, row))
    if isinstance(value, _BYTES):
        try:
            value = bytes(value).decode()
        except UnicodeDecodeError as error:
            place = f"row {row} has bytes that are not UTF-8 (at byte {error.start})"
            raise DataError(f"{place}, expected a text; decode it: value.decode('latin1')") from None
    if isinstance(value, str):
        return (str.__str__(value),) if value.strip() else ()  # a plain str, not numpy.str_
    if isinstance(value, bool | np.bool_):
        raise DataError(f"row {row} has {value} where a text is expected; write a word, such as 'yes'")
    if isinstance(value, Real) and not math.isnan(value):  # pandas marks a missing value by NaN
        number = int(value) if isinstance(value, Integral) else value if hasattr(value, "dtype") else float(value)
        return (str(number).removesuffix(".0"),)
    return ()  # a missing value, such as None or NaN


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
            path = path_of(value)
            if not path.is_file():
                raise DataError(f"there is no image {path}; download it, or correct the path")
            return str(path), path
        else:
            written = BytesIO()
            Image.fromarray(picture.permute(1, 2, 0).numpy()).save(written, "PNG")
            file, ending = written.getvalue(), ".png"
    except DataError as error:
        raise DataError(f"row {number}: {error}") from error
    key = hashlib.sha256(file).hexdigest()[:24]
    path = folder_in_cache("images") / (key + ending)
    if not path.is_file():
        write_atomically(path, file)
    return key, path
