"""Records as JSON, without their regions, and back: what is read is held against the types of `Record`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from math import isfinite
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from diptych.core import Record
from diptych.runtime.files import parse_json

UNSAID = "regions"  # they lie beside
_HINTS = get_type_hints(Record)
_FIELDS: Any = {
    one.name: (_HINTS[one.name], ... if one.name in ("key", "split") else None)
    for one in fields(Record)
    if one.name != UNSAID
}
_Said: type[BaseModel] = create_model("_Said", __config__=ConfigDict(extra="forbid", strict=True), **_FIELDS)


def record_to_json(record: Record) -> dict[str, Any]:
    """The record without its regions; empty fields left out."""
    told = {f.name: value for f in fields(record) if (value := getattr(record, f.name)) not in (None, (), [], {})}
    return {name: _plain(value) for name, value in told.items() if name != UNSAID}


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return [asdict(noun) for noun in value]
    return value


def record_from_json(written: bytes) -> Record:
    """Raises ValueError for what `record_to_json` does not write."""
    picture: dict[str, Any] = {}
    try:
        written.decode()
    except UnicodeDecodeError:  # the name of a picture need not be UTF-8: `parse_json` reads its odd bytes
        values = parse_json(written)
        if not isinstance(values, dict) or not isinstance(name := values.pop("image", None), str):
            raise ValueError("no UTF-8") from None
        picture = {"image": Path(name)}
        written = json.dumps(values).encode()
    said = _Said.model_validate_json(written)
    record = Record(**{name: getattr(said, name) for name in said.model_fields_set}, **picture)
    _refuse_nonsense(record)
    return record


def _refuse_nonsense(record: Record) -> None:
    if record.image is not None and "\0" in str(record.image):
        raise ValueError("image: no name of a file")
    if record.size is not None and min(record.size) < 1:
        raise ValueError(f"size: found {record.size}")
    if not all(isfinite(side) for box in record.marked("box") for side in box):
        raise ValueError("box: found numbers that are not finite")
    for one in record.choices:
        for right, among in ((one.answer, one.answers), (one.rationale, one.rationales)):
            if right is not None and not -1 <= right < len(among):  # -1: not known
                raise ValueError(f"choices: found the right one to be number {right} of {len(among)}")
    for subject, _, other in record.relations:
        if not 0 <= min(subject, other) <= max(subject, other) < len(record.objects):
            raise ValueError(f"relations: found objects {subject} and {other} of {len(record.objects)}")
