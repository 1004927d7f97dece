"""SNLI-VE: whether a picture of Flickr30k shows what a sentence says (github.com/necla-ml/SNLI-VE)."""

from collections import defaultdict
from pathlib import Path

from diptych.core import Record, Statement
from diptych.data.formats.parsing import Entry, Once, Pictures, Skips, picture_at, read_json_lines

LABELS = {"entailment": True, "contradiction": False, "neutral": None, "-": None}


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
    first: dict[str, Entry] = {}
    for entry in read_json_lines(lines):
        name, label, key = entry["Flickr30K_ID"].text(), entry["gold_label"], entry["pairID"].text()
        once.check(key, entry)
        if label.text() not in LABELS:
            label.refuse(f"`{label.value}`", f"one of {', '.join(LABELS)}")
        first.setdefault(name, entry)
        true = LABELS[label.text()]
        if true is None:
            skips.add("neutral sentences, and some without an agreed label", entry.where)
        else:
            found[name].append(Statement(key, entry["sentence2"].text(), true))
    return [
        Record(name, split, picture_at(pictures, f"{name}.jpg", first[name]), statements=tuple(statements))
        for name, statements in found.items()
    ]
