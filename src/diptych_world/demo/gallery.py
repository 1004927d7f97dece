"""The image gallery of a report: test images with detected regions and predictions."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from diptych.core import Question, Record
from diptych.metrics.captions import caption_items
from diptych.metrics.vqa import answer_accuracy, normalise_answer
from diptych.runs.reports.report import Answered, Box, ShownPicture, Word
from diptych_world.kinds import names_of_kinds

Kinds = Mapping[str, str]  # {lower-case word: kind of object that the word names}

Item = TypeVar("Item")

STORYBOOK: Kinds = names_of_kinds()
_PIECES = re.compile(r"[^\W_]+|[\W_]+")


def shown(
    records: Sequence[Record],
    class_names: Sequence[str],
    captions: Mapping[str, str],
    answers: Mapping[str, str],
    kinds: Kinds | None = None,
) -> list[ShownPicture]:
    """Return a `ShownPicture` for each record. If `kinds` is given, caption words for absent objects are marked."""
    scores = cider_by_picture(records, captions)
    return [
        ShownPicture(
            key=record.key,
            picture=record.image,
            size=record.size or (record.regions.size if record.regions is not None else (1, 1)),
            boxes=boxes(record, class_names),
            caption=words(captions.get(record.key, ""), record, kinds),
            cider=scores.get(record.key),
            references=record.captions,
            answers=tuple(_answered(q, answers[q.key]) for q in record.questions if q.key in answers),
        )
        for record in records
    ]


def cider_by_picture(records: Sequence[Record], captions: Mapping[str, str]) -> dict[str, float]:
    """Return {key of the record: CIDEr, times 100}. Document frequencies are counted over all scored records."""
    references = {r.key: r.captions for r in records if r.captions and r.key in captions}
    if not references:
        return {}
    items = caption_items({key: captions[key] for key in references}, references)
    return {key: 100 * float(score) for key, score in zip(items.keys, items.cider, strict=True)}


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """Return at most `count` items, evenly spaced over the sequence."""
    if len(items) <= count:
        return list(items)
    return [items[place * len(items) // count] for place in range(count)]


def boxes(record: Record, class_names: Sequence[str]) -> tuple[Box, ...]:
    """Return each region as a box with the name of its most probable class, ignoring "background"."""
    regions = record.regions
    if regions is None:
        return ()
    columns = [column for column, name in enumerate(class_names) if name != "background"]
    names = [""] * len(regions)
    if regions.classes is not None and columns:
        names = [class_names[columns[best]] for best in regions.classes[:, columns].argmax(-1).tolist()]
    corners = [(x1, y1, x2, y2) for x1, y1, x2, y2 in regions.boxes.tolist()]
    return tuple(Box(*parts) for parts in zip(names, corners, regions.scores.tolist(), strict=True))


def words(caption: str, record: Record, kinds: Kinds | None) -> tuple[Word, ...]:
    """Split a caption into words, and mark each word that names an absent object."""
    if kinds is None or not record.objects:
        return (Word(caption),) if caption else ()
    gone = absent_words(caption, record, kinds)
    return tuple(Word(piece, piece.lower() in gone) for piece in _PIECES.findall(caption))


def named_kinds(text: str, kinds: Kinds) -> dict[str, str]:
    """Return {word of the text: kind of object that it names}, without words that name no object."""
    return {piece: kinds[piece] for piece in _PIECES.findall(text.lower()) if piece in kinds}


def absent_words(caption: str, record: Record, kinds: Kinds) -> dict[str, str]:
    there = {thing.kind for thing in record.objects}
    return {word: kind for word, kind in named_kinds(caption, kinds).items() if kind not in there}


def _answered(question: Question, given: str) -> Answered:
    counts = Counter(map(normalise_answer, question.answers))
    wanted = counts.most_common(1)[0][0] if counts else ""
    accuracy = answer_accuracy(given, question.answers) if question.answers else 0.0
    return Answered(question.text, question.kind, given, wanted, accuracy)
