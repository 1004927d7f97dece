"""SNLI-VE: whether a picture of Flickr30k shows what a sentence says (github.com/necla-ml/SNLI-VE)."""

from collections import defaultdict
from pathlib import Path

from msgspec import Struct, field

from diptych.core import Record, Statement
from diptych.data.formats.parsing import Once, Pictures, Skips, picture_at, read_json_lines
from diptych.data.formats.values import Text

LABELS = {"entailment": True, "contradiction": False, "neutral": None, "-": None}


class _Premise(Struct):
    picture: Text = field(name="Flickr30K_ID")
    label: Text = field(name="gold_label")
    key: Text = field(name="pairID")
    sentence: Text = field(name="sentence2")


def read(
    lines: Path, pictures: Path | Pictures | None = None, split: str = "train", skips: Skips | None = None
) -> list[Record]:
    """One record a picture. A sentence that the picture entails is true, one that it contradicts false.

    Neutral ones, which a picture neither shows nor denies, and those that people could not agree on are counted and
    left out: a statement here is true or false.
    """
    skips = Skips() if skips is None else skips
    once = Once("pair id")
    found: dict[str, list[Statement]] = defaultdict(list)
    first: dict[str, str] = {}
    for value in read_json_lines(lines):
        line = value.read(_Premise)
        once.check(line.key, value.where())
        if line.label not in LABELS:
            value.refuse(f"`{line.label}`", f"one of {', '.join(LABELS)}", "gold_label")
        first.setdefault(line.picture, value.where())
        true = LABELS[line.label]
        if true is None:
            skips.add("neutral sentences, and some without an agreed label", value.where())
        else:
            found[line.picture].append(Statement(line.key, line.sentence, true))
    return [
        Record(name, split, picture_at(pictures, f"{name}.jpg", first[name]), statements=tuple(statements))
        for name, statements in found.items()
    ]
