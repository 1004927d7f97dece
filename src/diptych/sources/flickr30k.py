"""Flickr30k Entities: five sentences a picture with phrases marked (github.com/BryanPlummer/flickr30k_entities)."""

import re
from pathlib import Path

from diptych.core import Record
from diptych.errors import DataError
from diptych.sources.parsing import Once, Pictures, picture_at, read_text

_PHRASE = re.compile(r"\[/EN#(\d+)((?:/[a-z]+)+) ([^\[\]]+)\]")


def plain(sentence: str, where: str) -> str:
    """The sentence without its marks: `[/EN#1/people A girl] sits .` becomes `A girl sits .`"""
    text = _PHRASE.sub(r"\3", sentence).strip()
    if "[/EN#" in text or not text:
        found = "an empty sentence" if not text else "a phrase mark that does not end"
        raise DataError(f"{where}: found {found}, wanted words and [/EN#id/type words]; correct the line")
    return text


def read(sentences: Path, names: Path, pictures: Path | Pictures | None = None, split: str = "train") -> list[Record]:
    """One record for each name in the list `names` (`train.txt`), with the captions of `sentences/<name>.txt`."""
    once = Once("picture")
    records = []
    for number, name in enumerate(map(str.strip, read_text(names).split("\n")), start=1):
        if not name:
            continue
        where = f"{names.name} line {number}"
        once.check(name, where)
        file = picture_at(sentences, f"{name}.txt", where)
        assert file is not None
        lines = [line for line in read_text(file).split("\n") if line.strip()]
        captions = tuple(plain(line, f"{file.name} line {at}") for at, line in enumerate(lines, start=1))
        if not captions:
            raise DataError(f"{file.name}: found no sentences, wanted at least one; fetch it again", key=name)
        records.append(Record(name, split, picture_at(pictures, f"{name}.jpg", where), captions=captions))
    return records
