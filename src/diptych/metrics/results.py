"""Read prediction files in the formats of the COCO caption and VQA servers, and COCO's reference captions.

    captions   [{"image_id": 404464, "caption": "a man by a building"}, ...]
    answers    [{"question_id": 458752000, "answer": "net"}, ...]
    references {"images": [{"id": 404464}, ...], "annotations": [{"image_id": 404464, "caption": "..."}, ...]}

Ids in a file are integers or strings. The functions return them as strings.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych.data.formats.parsing import Skips, read_json
from diptych.runtime.errors import DataError


@dataclass(frozen=True)
class Results:
    """The predictions in a file for the expected ids."""

    predictions: Mapping[str, str]
    missing: tuple[str, ...]  # ids in the data that have no prediction
    unknown: tuple[str, ...]  # ids of predictions that are not in the data
    empty: tuple[str, ...]  # ids whose prediction is an empty text; it scores 0

    @property
    def coverage(self) -> float:
        """The share of the expected ids that have a prediction, 0 to 1.

        If the share is below 1, the score is for a smaller set.
        """
        return len(self.predictions) / (len(self.predictions) + len(self.missing))


def read_caption_results(
    path: Path, expected: Collection[str], *, allow_missing: bool = False, allow_unknown: bool = False
) -> Results:
    """Read image id -> predicted caption. Raises DataError for a file that would give a misleading score."""
    return _checked(path, ("image_id", "caption"), expected, allow_missing, allow_unknown)


def read_answer_results(
    path: Path, expected: Collection[str], *, allow_missing: bool = False, allow_unknown: bool = False
) -> Results:
    """Read question id -> predicted answer. Raises DataError in the same cases as `read_caption_results`."""
    return _checked(path, ("question_id", "answer"), expected, allow_missing, allow_unknown)


def read_references(path: Path, skips: Skips | None = None) -> dict[str, tuple[str, ...]]:
    """Read image id -> reference captions, in the file's order. Empty ones are counted in `skips` and left out.

    Raises DataError for an image without references.
    """
    content = read_json(path, str(path)).value
    if not isinstance(content, dict) or "annotations" not in content:
        raise _mismatch(f"{path}", 'COCO\'s form {"images": [...], "annotations": [...]}', content)
    references: dict[str, list[str]] = {}
    for key, caption in _pairs(path, content["annotations"], "image_id", "caption"):
        kept = references.setdefault(key, [])
        if caption.strip():
            kept.append(caption)
        elif skips is not None:
            skips.add("empty references (left out)", key)
    listed = (key for key, _, _ in _entries(path, content.get("images", []), "id"))
    for key in dict.fromkeys((*references, *listed)):
        if not references.get(key):
            raise DataError(f"{path}: an image has no reference caption; add a caption, or remove the image", key=key)
    if not references:
        raise DataError(f"{path}: found no reference captions; pass a file with captions")
    return {key: tuple(captions) for key, captions in references.items()}


def _pairs(path: Path, content: Any, key_name: str, value_name: str) -> Iterator[tuple[str, str]]:
    """Yield the id and the text of each entry of a list."""
    for key, entry, where in _entries(path, content, key_name):
        value = entry.get(value_name)
        if not isinstance(value, str):
            raise _mismatch(where, f"text under {value_name!r}", value, key)
        yield key, value


def _entries(path: Path, content: Any, key_name: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the id, the entry and the place in the file, for each entry of a list."""
    if not isinstance(content, list):
        raise _mismatch(f"{path}", "a list of entries", content)
    for number, entry in enumerate(content):
        where = f"{path}: entry {number}"
        if not isinstance(entry, dict):
            raise _mismatch(where, f"an object with {key_name!r}", entry)
        key = entry.get(key_name)
        if type(key) not in (int, str):  # isinstance(True, int) is true, but True is not an id
            raise _mismatch(where, f"a whole number or text under {key_name!r}", key)
        yield str(key), entry, where


def _mismatch(where: str, wanted: str, value: Any, key: str | None = None) -> DataError:
    text = repr(value)
    shown = text if len(text) <= 60 else text[:57] + "..."
    return DataError(f"{where}: expected {wanted}, found {type(value).__name__} {shown}", key=key)


def _checked(
    path: Path, names: tuple[str, str], expected: Collection[str], allow_missing: bool, allow_unknown: bool
) -> Results:
    wanted, predicted = set(expected), dict[str, str]()
    for key, value in _pairs(path, read_json(path, str(path)).value, *names):
        if key in predicted:
            raise DataError(f"{path}: this id has two predictions; keep one of them", key=key)
        predicted[key] = value
    predictions = {key: value for key, value in predicted.items() if key in wanted}
    missing = tuple(key for key in expected if key not in predicted)
    unknown = tuple(key for key in predicted if key not in wanted)
    ids = f"of {len(predicted)} ids"
    if not predictions:
        raise DataError(f"{path}: none {ids} is among the {len(wanted)} of this split; pass a file of this split")
    if unknown and not allow_unknown:
        raise DataError(
            f"{path}: {len(unknown)} {ids} are not in this split ({_some(unknown)}); pass a file of this split"
        )
    if missing and not allow_missing:
        raise DataError(
            f"{path}: {len(missing)} of {len(wanted)} ids are missing ({_some(missing)}); "
            "predict these too, or allow missing predictions and report the coverage"
        )
    return Results(predictions, missing, unknown, tuple(key for key, value in predictions.items() if not value.strip()))


def _some(keys: tuple[str, ...]) -> str:
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")
