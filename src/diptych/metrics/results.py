"""Files of predictions in the formats of the COCO caption and VQA servers, and COCO's file of reference captions.

    captions   [{"image_id": 404464, "caption": "a man by a building"}, ...]
    answers    [{"question_id": 458752000, "answer": "net"}, ...]
    references {"images": [{"id": 404464}, ...], "annotations": [{"image_id": 404464, "caption": "..."}, ...]}

Ids are whole numbers or strings in the file and strings here.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych.runtime.errors import DataError
from diptych.runtime.files import text_of


@dataclass(frozen=True)
class Results:
    """What a file predicts for the items that were asked."""

    predictions: Mapping[str, str]
    missing: tuple[str, ...]  # asked, not predicted
    unknown: tuple[str, ...]  # predicted, not asked
    empty: tuple[str, ...]  # predicted as nothing; they score 0

    @property
    def coverage(self) -> float:
        """The share of what was asked that is predicted, 0 to 1. A score below coverage 1 is of another set."""
        return len(self.predictions) / (len(self.predictions) + len(self.missing))


def read_caption_results(
    path: Path, asked: Collection[str], *, allow_missing: bool = False, allow_unknown: bool = False
) -> Results:
    """Predicted captions by picture. Raises DataError for anything that would make the score another than it seems."""
    return _checked(
        path, _pairs(path, _list(path, _json(path)), "image_id", "caption"), asked, allow_missing, allow_unknown
    )


def read_answer_results(
    path: Path, asked: Collection[str], *, allow_missing: bool = False, allow_unknown: bool = False
) -> Results:
    """Predicted answers by question, likewise."""
    return _checked(
        path, _pairs(path, _list(path, _json(path)), "question_id", "answer"), asked, allow_missing, allow_unknown
    )


def read_references(path: Path) -> dict[str, tuple[str, ...]]:
    """Reference captions by picture, in the file's order; a picture that is listed but has none is an error."""
    content = _json(path)
    if not isinstance(content, dict) or "annotations" not in content:
        raise DataError(
            f'{path}: wanted COCO\'s form {{"images": [...], "annotations": [...]}}, found {_found(content)}'
        )
    references: dict[str, list[str]] = {}
    for key, caption in _pairs(path, _list(path, content["annotations"]), "image_id", "caption"):
        references.setdefault(key, []).append(caption)
    for number, image in enumerate(_list(path, content.get("images", []))):
        key = _key(path, number, image, "id")
        if key not in references:
            raise DataError(f"{path}: a picture has no reference caption; take it out of images or caption it", key=key)
    if not references:
        raise DataError(f"{path}: no reference captions")
    return {key: tuple(captions) for key, captions in references.items()}


def _json(path: Path) -> Any:
    try:
        return json.loads(text_of(path), object_pairs_hook=_once_each)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from error
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: not JSON, line {error.lineno} column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON that can be read: {error}") from error


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entry = dict(pairs)
    if len(entry) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"one entry has {next(name for name in names if names.count(name) > 1)!r} twice")
    return entry


def _list(path: Path, content: Any) -> list[Any]:
    if not isinstance(content, list):
        raise DataError(f"{path}: wanted a list of entries, found {_found(content)}")
    return content


def _pairs(path: Path, entries: list[Any], key_name: str, value_name: str) -> list[tuple[str, str]]:
    pairs = []
    for number, entry in enumerate(entries):
        key = _key(path, number, entry, key_name)
        value = entry.get(value_name)
        if not isinstance(value, str):
            raise DataError(f"{path}: entry {number}: wanted text under {value_name!r}, found {_found(value)}", key=key)
        pairs.append((key, value))
    return pairs


def _key(path: Path, number: int, entry: Any, name: str) -> str:
    if not isinstance(entry, dict):
        raise DataError(f"{path}: entry {number}: wanted an object with {name!r}, found {_found(entry)}")
    key = entry.get(name)
    if type(key) not in (int, str):  # True is an int too, and no id
        raise DataError(f"{path}: entry {number}: wanted a whole number or text under {name!r}, found {_found(key)}")
    return str(key)


def _found(value: Any) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 60 else shown[:57] + '...'}"


def _checked(
    path: Path, pairs: list[tuple[str, str]], asked: Collection[str], allow_missing: bool, allow_unknown: bool
) -> Results:
    wanted = set(asked)
    found: dict[str, str] = {}
    for key, value in pairs:
        if key in found:
            raise DataError(f"{path}: predicted twice; keep one entry for each id", key=key)
        found[key] = value
    predictions = {key: value for key, value in found.items() if key in wanted}
    missing = tuple(key for key in asked if key not in found)
    unknown = tuple(key for key in found if key not in wanted)
    if not predictions:
        raise DataError(f"{path}: none of its {len(found)} ids is one of the {len(wanted)} asked; is it of this split?")
    if unknown and not allow_unknown:
        raise DataError(
            f"{path}: {len(unknown)} of {len(found)} ids were not asked ({_some(unknown)}); is it of this split?"
        )
    if missing and not allow_missing:
        raise DataError(
            f"{path}: {len(missing)} of {len(wanted)} ids are missing ({_some(missing)}); "
            "predict them too, or allow missing ones and report the coverage"
        )
    return Results(predictions, missing, unknown, tuple(key for key, value in predictions.items() if not value.strip()))


def _some(keys: tuple[str, ...]) -> str:
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")
