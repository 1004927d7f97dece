"""SNLI-VE: whether a picture of Flickr30k shows what a sentence says (github.com/necla-ml/SNLI-VE)."""

from collections import defaultdict
from pathlib import Path

from msgspec import Struct, field

from diptych.core import Record, TaskItem
from diptych.core.entailment import ENTAILMENT, LABELS
from diptych.data.formats.parsing import Once, Pictures, Skips, picture_at, read_json_lines
from diptych.data.formats.values import Text

NOT_AGREED = "-"


class _Premise(Struct):
    picture: Text = field(name="Flickr30K_ID")
    label: Text = field(name="gold_label")
    key: Text = field(name="pairID")
    sentence: Text = field(name="sentence2")


def read(
    lines: Path,
    pictures: Path | Pictures | None = None,
    split: str = "train",
    skips: Skips | None = None,
    ending: str = ".jpg",
) -> list[Record]:
    """One record a picture. Sentences that people could not agree on are counted and left out."""
    skips = Skips() if skips is None else skips
    once = Once("pair id")
    found: dict[str, list[TaskItem]] = defaultdict(list)
    first: dict[str, str] = {}
    for value in read_json_lines(lines):
        line = value.read(_Premise)
        once.check(line.key, value.where())
        first.setdefault(line.picture, value.where())
        if line.label in LABELS:
            found[line.picture].append(TaskItem(line.key, line.sentence, (line.label,)))
        elif line.label == NOT_AGREED:
            skips.add("sentences without an agreed label", value.where())
        else:
            value.refuse(f"`{line.label}`", f"one of {', '.join((*LABELS, NOT_AGREED))}", "gold_label")
    return [
        Record(name, split, picture_at(pictures, f"{name}{ending}", first[name]), more={ENTAILMENT: tuple(items)})
        for name, items in found.items()
    ]
