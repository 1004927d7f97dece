"""The images of a report, with detected regions, predictions and the score of each item."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from diptych.core import Record
from diptych.runs.reports.report import Box, ShownPicture, Word
from diptych.tasks.scores import ItemScore

HITS = 5  # number of retrieved images that a report shows for a query
BOXES = 16  # a report draws at most this many detected regions on an image
Mark = Callable[[str, Record], tuple[Word, ...]]  # splits a caption into words, some of which are marked


def extremes(rows: Iterable[ItemScore], most: int) -> dict[str, list[ItemScore]]:
    """Return {key of the image: its items} of at most `most` images, the lowest mean scores first.

    A third have the lowest scores, a third the highest scores, and the others are evenly spaced between them.
    """
    by_picture: dict[str, list[ItemScore]] = defaultdict(list)
    for row in rows:
        by_picture[row.picture].append(row)
    keys, third = sorted(by_picture, key=lambda key: (worth_of(by_picture[key]), key)), most // 3
    if len(keys) > most:
        middle, count = keys[third:-third], most - 2 * third
        keys = [*keys[:third], *(middle[at * len(middle) // count] for at in range(count)), *keys[-third:]]
    return {key: by_picture[key] for key in keys}


def worth_of(rows: Iterable[ItemScore]) -> float:
    """Return the mean score of items."""
    return fmean(row.value for row in rows)


def shown(
    records: Iterable[Record], class_names: Sequence[str], chosen: Mapping[str, Sequence[ItemScore]],
    mark: Mark | None = None, images: Mapping[str, Path | None] | None = None,
) -> list[ShownPicture]:  # fmt: skip
    """Return a `ShownPicture` for each image that `extremes` has chosen, in its order.

    `images`: {key: path} of all images that may be retrieved.
    """
    about = {record.key: record for record in records if record.key in chosen}
    return [_shown(about[key], class_names, rows, mark, images or {}) for key, rows in chosen.items()]


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


def _shown(
    record: Record, class_names: Sequence[str], rows: Sequence[ItemScore], mark: Mark | None,
    images: Mapping[str, Path | None],
) -> ShownPicture:  # fmt: skip
    written = next((row for row in rows if not row.query), None)
    answers = tuple(row for row in rows if row.query)
    own = [
        Box(f"{number} {name}" if len(answers) > 1 else name, (x1, y1, x2, y2), row.value)
        for number, row in enumerate(answers, start=1)
        for name, (x1, y1, x2, y2) in row.boxes
    ]
    return ShownPicture(
        key=record.key,
        picture=record.image,
        size=record.size or (record.regions.size if record.regions is not None else (1, 1)),
        boxes=tuple(own) or boxes(record, class_names)[:BOXES],
        caption=() if written is None else mark(written.given, record) if mark else (Word(written.given),),
        cider=None if written is None else 100 * written.value,
        references=record.captions,
        answers=answers,
        hits={key: images.get(key) for row in answers for key in row.hits[:HITS]},
        worth=worth_of(rows),
    )
