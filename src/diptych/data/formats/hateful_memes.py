"""Hateful Memes: images with their text and a label, 0 or 1 (Kiela et al. 2020, arXiv 2005.04790)."""

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Record, TaskItem
from diptych.core.labels import CLASSIFY
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.parsing import read_items
from diptych.data.formats.values import JsonValue, Text


class _Meme(Struct):
    id: int | Text
    img: Text
    text: Text
    label: int | UnsetType = UNSET  # the test set of the challenge has none


def read(wanted: Wanted, lines: Source) -> list[Record]:
    """Read one record per image. Labels are the file's numbers as texts."""
    by_image = ByImage[TaskItem]()

    def take(line: _Meme, value: JsonValue) -> None:
        answers = () if line.label is UNSET else (str(line.label),)
        by_image.add(line.img, TaskItem(str(line.id), line.text, answers), value.where())

    read_items(lines.path, wanted.skips, _Meme, "id", "id", take)
    return by_image.records(wanted, lambda name, items, where: wanted.record(name, where, more={CLASSIFY: items}))
