"""Read SNLI-VE: images of Flickr30k, each with sentences that have a label (github.com/necla-ml/SNLI-VE).

Labels are entailment, neutral and contradiction.
"""

from msgspec import Struct, field

from diptych.core import Record, TaskItem
from diptych.core.entailment import ENTAILMENT, LABELS
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.parsing import read_items
from diptych.data.formats.values import JsonValue, Text

NOT_AGREED = "-"


class _Hypothesis(Struct):
    picture: Text = field(name="Flickr30K_ID")
    label: Text = field(name="gold_label")
    key: Text = field(name="pairID")
    sentence: Text = field(name="sentence2")


def read(wanted: Wanted, lines: Source, ending: str = ".jpg") -> list[Record]:
    """Read one record per image.

    Sentences that have no label, because annotators disagreed, are counted in `wanted.skips` and left out.
    """
    by_image = ByImage[TaskItem]()

    def take(line: _Hypothesis, value: JsonValue) -> None:
        if (label := line.label.strip().lower()) in LABELS:
            by_image.add(line.picture, TaskItem(line.key, line.sentence, (label,)), value.where())
        elif label == NOT_AGREED:
            wanted.skips.add("sentences without an agreed label", value.where())
        else:
            value.refuse(f"`{line.label}`", f"one of {', '.join((*LABELS, NOT_AGREED))}", "gold_label")

    read_items(lines.path, wanted.skips, _Hypothesis, "key", "pair id", take)
    return by_image.records(
        wanted, lambda name, items, where: wanted.record(f"{name}{ending}", where, more={ENTAILMENT: items})
    )
