"""Flickr30k Entities: five sentences a picture with phrases marked (github.com/BryanPlummer/flickr30k_entities)."""

import re
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from diptych.core import Expression, Record
from diptych.data.formats.parsing import Once, Pictures, picture_at, read_text
from diptych.data.formats.values import Box, corner_box
from diptych.runtime.errors import DataError

_LONGEST = 1_000_000  # pixels
_PHRASE = re.compile(r"\[/EN#(\d+)((?:/[a-z]+)+) ([^\[\]]+)\]")


def plain(sentence: str, where: str) -> str:
    """The sentence without its marks: `[/EN#1/people A girl] sits .` becomes `A girl sits .`"""
    text = _PHRASE.sub(r"\3", sentence).strip()
    if "[/EN#" in text or not text:
        found = "an empty sentence" if not text else "a phrase mark that does not end"
        raise DataError(f"{where}: found {found}, wanted words and [/EN#id/type words]; correct the line")
    return text


def read(
    sentences: Path,
    names: Path,
    pictures: Path | Pictures | None = None,
    split: str = "train",
    annotations: Path | None = None,
) -> list[Record]:
    """One record for each name in the list `names` (`train.txt`), with the captions of `sentences/<name>.txt`.

    With the folder `annotations`, each phrase that it has boxes for is an expression, its box the one around them all.
    """
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
        size, boxes = (None, {}) if annotations is None else _boxes(picture_at(annotations, f"{name}.xml", where))
        expressions = tuple(
            Expression(f"{name}/{at}/{place}", words, boxes[entity])
            for at, line in enumerate(lines)
            for place, (entity, _, words) in enumerate(_PHRASE.findall(line))
            if entity in boxes
        )
        image = picture_at(pictures, f"{name}.jpg", where)
        records.append(Record(name, split, image, size, captions=captions, expressions=expressions))
    return records


def _boxes(file: Path | None) -> tuple[tuple[int, int], dict[str, Box]]:
    """The picture's size, and by entity the box around all boxes of it."""
    assert file is not None
    text = read_text(file)
    if "<!" in text:  # a definition of entities, which can be made to fill all memory
        raise DataError(f"{file.name}: found a document type, wanted plain XML of boxes; fetch it again")
    try:
        root = ElementTree.fromstring(text)
        width, height = (_number(root, f"size/{side}") for side in ("width", "height"))
        found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        for entry in root.iter("object"):
            box = entry.find("bndbox")
            if box is not None:
                corners = tuple(_number(box, end) for end in ("xmin", "ymin", "xmax", "ymax"))
                for name in entry.iter("name"):
                    found[name.text or ""].append(corners)
    except (ElementTree.ParseError, ValueError) as error:
        raise DataError(
            f"{file.name}: found no boxes that can be read ({error}), wanted them; fetch it again"
        ) from None
    around = {}
    for entity, corners_of in found.items():
        left, top, right, bottom = zip(*corners_of, strict=True)
        whole = (min(left), min(top), max(right), max(bottom))
        around[entity] = corner_box(whole, int(width), int(height), f"{file.name}, entity {entity}")
    return (int(width), int(height)), around


def _number(entry: ElementTree.Element, name: str) -> float:
    value = float(entry.findtext(name) or "nothing there")
    if not 0 <= value < _LONGEST:
        raise ValueError(f"{name} {value}")
    return value
