"""Read Hateful Memes (Kiela et al. 2020, arXiv 2005.04790): images with their text and a label, 0 or 1."""

from msgspec import UNSET, Struct, UnsetType

from diptych.core import Record, TaskItem
from diptych.core.labels import CLASSIFY
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.parsing import read_items
from diptych.data.formats.values import JsonValue, Text, Words


class _Meme(Struct):
    id: int | Text
    img: Text
    text: Text
    label: int | UnsetType = UNSET  # absent in the challenge's test set
    split: Words | None = None


def read(wanted: Wanted, lines: Source) -> list[Record]:
    """Read one record per image. Its label is the text "0" or "1"."""
    by_image, splits = ByImage[TaskItem](), wanted.splits

    def take(line: _Meme, value: JsonValue) -> None:
        name = wanted.name_of(line.img, value.where())
        splits.note(name, line.split, value)
        answers = () if line.label is UNSET else (str(line.label),)
        by_image.add(name, TaskItem(str(line.id), line.text, answers), value.where())

    def record(name: str, items: tuple[TaskItem, ...], where: str) -> Record:
        return wanted.record(name, where, split=splits.named.get(name), more={CLASSIFY: items})

    read_items(lines.path, wanted.skips, _Meme, "id", "id", take)
    return by_image.records(wanted, record)
