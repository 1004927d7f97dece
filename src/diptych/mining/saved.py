"""What the JSON files of a run's folder say, checked as they are read: its maker may have written anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, TypeAdapter

from diptych.runtime.configs import first_problem
from diptych.runtime.errors import DataError
from diptych.runtime.files import parse_json, text_of

T = TypeVar("T")
Object = dict[str, Any]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Times = dict[str, Annotated[float, Field(ge=0, lt=2**33)]]  # seconds since 1970, by address


class Parts(BaseModel):
    """Of a WARC: where each of its shards begins and ends."""

    parts: list[tuple[Count, Count]]


class Measured(BaseModel):
    """The plan of a shard of measured pictures."""

    index: str


class PageCounts(BaseModel, extra="allow"):
    __pydantic_extra__: dict[str, Count]
    bad: dict[str, Count]
    held: list[str]


class Retries(BaseModel):
    retries: int = Field(ge=0, le=1_000)


class _Given(BaseModel):
    kind: str
    digest: str


class _Versions(BaseModel):
    diptych: str


class Begun(BaseModel):
    """mine.json, as far as the card tells it."""

    inputs: list[_Given]
    versions: _Versions
    rules: str


class _About(BaseModel):
    scorer: str
    judges: dict[str, str]
    vocabulary: str
    rules: str


class Counted(BaseModel):
    """funnel.json, as far as it cannot be counted again."""

    inputs: dict[str, Count | dict[str, Count]]
    about: _About


def read_json(path: Path, shape: type[T]) -> T:
    """Raises DataError for what cannot be read, or says something else."""
    try:
        adapter: TypeAdapter[T] = TypeAdapter(shape)
        return adapter.validate_python(parse_json(text_of(path)))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}; give the same command again") from error
    except ValueError as error:
        raise DataError(
            f"cannot read {path}: {first_problem(error)}; take it away and give the same command again"
        ) from error
