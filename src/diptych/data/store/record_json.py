"""Convert records, without their regions, to JSON and back. JSON is validated against the types of `Record`."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, PositiveInt, create_model
from pydantic_core import to_jsonable_python

from diptych.core import Record
from diptych.runtime.files import parse_json

_TYPES = get_type_hints(Record) | {"size": tuple[PositiveInt, PositiveInt] | None}
_FIELDS: Any = {
    one.name: (_TYPES[one.name], ... if one.name in ("key", "split") else None)
    for one in fields(Record)
    if one.name != "regions"  # regions are stored as tensors
}
_CONFIG = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_StoredRecord: type[BaseModel] = create_model("_StoredRecord", __config__=_CONFIG, **_FIELDS)


def record_to_json(record: Record) -> dict[str, Any]:
    """Return the record's fields that are not empty, except its regions."""
    filled = {name: value for name in _FIELDS if (value := getattr(record, name)) not in (None, (), [], {})}
    return {name: str(value) if name == "image" else to_jsonable_python(value) for name, value in filled.items()}


def record_from_json(written: bytes) -> Record:
    """Return the record of a JSON text. Raises ValueError for a text that `record_to_json` could not have written."""
    image: dict[str, Any] = {}
    try:
        written.decode()
    except UnicodeDecodeError:  # an image name is not UTF-8, which only `parse_json` can read
        values = parse_json(written)
        if not isinstance(values, dict) or not isinstance(name := values.pop("image", None), str):
            raise ValueError("not UTF-8") from None
        image = {"image": Path(name)}
        written = json.dumps(values).encode()
    stored = _StoredRecord.model_validate_json(written)
    record = Record(**{name: getattr(stored, name) for name in stored.model_fields_set}, **image)
    _check_references(record)
    return record


def _check_references(record: Record) -> None:
    """Raise ValueError for an impossible file name, and for indices of choices or objects that are out of range."""
    if record.image is not None and "\0" in str(record.image):
        raise ValueError("image: found a null byte, expected a file name")
    content, perceptual = record.fingerprint or (0, 0)
    if not (0 <= content < 2**64 and 0 <= perceptual < 2**256):
        raise ValueError("fingerprint: expected an integer of 64 bits and one of 256 bits")
    if len(record.caption_ids) > len(record.captions):
        raise ValueError(f"caption_ids: found {len(record.caption_ids)} ids for {len(record.captions)} captions")
    for one in record.choices:
        for right, among in ((one.answer, one.answers), (one.rationale, one.rationales)):
            if right is not None and not -1 <= right < len(among):  # -1: the right answer is unknown
                raise ValueError(f"choices: the index of the right answer is {right}, expected -1 to {len(among) - 1}")
    for subject, _, other in record.relations:
        if not 0 <= min(subject, other) <= max(subject, other) < len(record.objects):
            raise ValueError(f"relations: found indices {subject} and {other} into {len(record.objects)} objects")
