"""Read Flickr30k Entities: sentences with marked phrases (github.com/BryanPlummer/flickr30k_entities)."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from diptych.core import Expression, Record
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Once, Skips, each_line, picture_at, read_text
from diptych.data.formats.values import LONGEST, Box, corner_box
from diptych.runtime.errors import DataError, explained

_PHRASE = re.compile(r"\[/EN#(\d+)((?:/[a-z]+)+) ([^\[\]]+)\]")


def plain(sentence: str, where: str) -> str:
    """Return the sentence without the marks of phrases: `[/EN#1/people A girl] sits .` becomes `A girl sits .`"""
    text = _PHRASE.sub(r"\3", sentence).strip()
    if "[/EN#" in text or not text:
        problem = "an empty sentence" if not text else "a phrase mark that does not end"
        raise DataError(f"{where}: found {problem}, expected words and [/EN#id/type words]; correct the line")
    return text


def read(wanted: Wanted, sentences: Source, names: Source, annotations: Source | None = None) -> list[Record]:
    """Read one record for each name in the list `names` (`train.txt`), with captions from `sentences/<name>.txt`.

    The split is `wanted.split`, else the name of the list. If the folder `annotations` is given, each phrase with boxes
    becomes an expression. Its box is the smallest that encloses all boxes of the phrase.
    """
    once = Once("picture")

    def take(line: str, where: str) -> Record:
        name = line.strip()
        with once.of(name, where):
            file = picture_at(sentences.path, f"{name}.txt", where)
            assert file is not None

            def sentence(line: str, where: str) -> tuple[int, str, str]:
                return int(where.rpartition(" ")[2]) - 1, line, plain(line, where)

            lines = each_line(file, wanted.skips, sentence)
            if not lines:
                raise DataError(f"{file.name}: found no sentence, expected some; download the file again", key=name)
            boxes, size = dict[str, Box](), None
            if annotations is not None:
                size, boxes = _boxes(picture_at(annotations.path, f"{name}.xml", where), wanted.skips)
            expressions = tuple(
                Expression(f"{name}/{at}/{place}", words, boxes[entity])
                for at, line, _ in lines
                for place, (entity, _, words) in enumerate(_PHRASE.findall(line))
                if entity in boxes
            )
            captions = tuple(text for _, _, text in lines)
            fields: dict[str, Any] = {"size": size, "captions": captions, "expressions": expressions}
            split = wanted.split or names.path.stem
            return wanted.record(f"{name}.jpg", where, key=name, split=split, **fields)

    return each_line(names.path, wanted.skips, take)


def _boxes(file: Path | None, skips: Skips) -> tuple[tuple[int, int], dict[str, Box]]:
    """Return the image's (width, height) in pixels, and entity id -> the smallest box around all its boxes."""
    assert file is not None
    text = read_text(file)
    if "<!" in text:  # a DOCTYPE may define XML entities that expand until memory is full
        raise DataError(f"{file.name}: found a DOCTYPE, expected XML without one; download the file again")
    with explained(DataError, f"{file.name}: cannot read its boxes", "download the file again", ElementTree.ParseError):
        root = ElementTree.fromstring(text)
        width, height = (_number(root, f"size/{side}") for side in ("width", "height"))
        corners: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        for entry in root.iter("object"):
            if (box := entry.find("bndbox")) is not None:
                for name in entry.iter("name"):
                    ends = ("xmin", "ymin", "xmax", "ymax")
                    corners[name.text or ""].append(tuple(_number(box, end) for end in ends))
    size = int(width), int(height)

    def around(entity: str) -> tuple[str, Box]:
        left, top, right, bottom = zip(*corners[entity], strict=True)
        whole = (min(left), min(top), max(right), max(bottom))
        return entity, corner_box(whole, *size, f"{file.name}, entity {entity}", skips.add)

    return size, dict(skips.every(corners, around, "entity"))


def _number(entry: ElementTree.Element, name: str) -> float:
    value = float(entry.findtext(name) or "nothing there")
    if not 0 <= value < LONGEST:
        raise ValueError(f"{name} is {value}, expected 0 to {LONGEST}")
    return value
