"""Validate the JSON files and tables of a run's folder, because another program may have changed them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, TypeAdapter

from diptych.runtime.configs import first_problem
from diptych.runtime.errors import DataError
from diptych.runtime.files import parse_json, text_of
from diptych_mine.layout import ENDING, SHA256, SHARD, damaged
from diptych_mine.rules import KINDS, RULES, TEXT_RULES

T = TypeVar("T")
Object = dict[str, Any]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Times = dict[str, Annotated[float, Field(ge=0, lt=2**33)]]  # URL -> seconds since 1970


class WarcParts(BaseModel):
    """The start and end of each shard of a WARC file, in bytes."""

    parts: list[tuple[Count, Count]]


class Measured(BaseModel):
    """The plan of a shard of `measured`: the name of the shard of `index` that has the images."""

    index: str


class PageCounts(BaseModel, extra="allow"):
    __pydantic_extra__: dict[str, Count]
    bad: dict[str, Count]
    held: list[str]
    moves: dict[str, str] = {}


class JournalRow(BaseModel, extra="forbid"):
    """A row of the table `index`: the response to the request for one URL, or the reason why there is none."""

    address: str
    reason: str
    status: Annotated[int, Field(ge=0, lt=1_000)]
    final: str
    moved: str
    hops: Annotated[int, Field(ge=0, lt=1_000)]
    media: str
    date: str
    offset: Annotated[int, Field(ge=-1, lt=2**53)]
    length: Count


class FetchJournal(BaseModel):
    """The HTTP responses for the URLs of a shard so far, and the time of each."""

    rows: list[JournalRow]
    times: Times


class Retries(BaseModel):
    retries: int = Field(ge=0, le=1_000)


class InputDigest(BaseModel):
    kind: str
    digest: str


class _Versions(BaseModel):
    diptych: str


class RunSettings(BaseModel):
    """The values of mine.json that the data card shows."""

    inputs: list[InputDigest]
    versions: _Versions
    rules: str


class _About(BaseModel):
    scorer: str
    judges: dict[str, str]
    vocabulary: str
    rules: str


class FunnelInputs(BaseModel):
    """The values of funnel.json that cannot be counted again from the table `decisions`."""

    inputs: dict[str, Count | dict[str, Count]]
    about: _About


def read_json(path: Path, shape: type[T]) -> T:
    """Return the content of a JSON file, validated as `shape`. Raises DataError if it cannot be read or is invalid."""
    try:
        adapter: TypeAdapter[T] = TypeAdapter(shape)
        return adapter.validate_python(parse_json(text_of(path)))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}; run the same command again") from error
    except ValueError as error:
        raise damaged(path, first_problem(error)) from error


PICTURE_RULES = {rule.name for rule in RULES}
OF_TEXTS = {"kinds", "score", *(rule.name for rule in TEXT_RULES)}
# Kind of table -> columns that are never null.
ALWAYS = {
    "index": ("address", "reason", "moved", "hops", "offset", "length"),
    "measured": ("address", "fails"),
    **dict.fromkeys(("pages", "joined", "decisions"), ("page", "address", "place", "texts", "fails", "licence")),
}
# Columns that are never null in rows of kept images.
KEPT = ("sha256", "phash", "bytes", "width", "height")
LEFT = (*KEPT, "blob", "offset", "length")


def faults(table: Any, kind: str) -> Iterator[str]:
    """Yield the faults in the values of a table. The table may have only some columns of its kind."""
    import pyarrow.compute as pc

    present = set(table.column_names)
    yield from (f"`{name}` is missing in a row" for name in ALWAYS[kind] if name in present and table[name].null_count)
    if "fails" in present:
        yield from _unknown("fails", pc.list_flatten(table["fails"]), PICTURE_RULES.__contains__)
    for name, known in (
        ("dropped_by", PICTURE_RULES.__contains__), ("sha256", SHA256.fullmatch), ("type", ENDING.fullmatch),
        ("blob", SHARD.fullmatch),
    ):  # fmt: skip
        if name in present:
            yield from _unknown(name, pc.drop_null(table[name]), known)
    for name in ("offset", "length", "hops", "place", "bytes", "width", "height"):
        if name in present and pc.any(pc.less(table[name], -1 if name == "offset" else 0)).as_py():
            yield f"`{name}` is negative in a row"
    if "texts" in present:
        yield from _faults_of_texts(pc.list_flatten(table["texts"]))
    if kind in ("joined", "decisions"):
        yield from _missing(table, present, kind)


def _faults_of_texts(texts: Any) -> Iterator[str]:
    import pyarrow.compute as pc

    if texts.null_count:
        yield "a text is missing"
        return
    kinds, words, fails, scores = (pc.struct_field(texts, name) for name in ("kind", "text", "fails", "score"))
    if kinds.null_count or words.null_count or fails.null_count:
        yield "a text lacks its `kind`, `text` or `fails`"
    yield from _unknown("kind", kinds, KINDS.__contains__)
    yield from _unknown("texts.fails", pc.list_flatten(fails), OF_TEXTS.__contains__)
    if not pc.all(pc.is_finite(pc.drop_null(scores))).as_py() and len(pc.drop_null(scores)):
        yield "a `score` of a text is not finite"


def _missing(table: Any, present: set[str], kind: str) -> Iterator[str]:
    """Yield the faults in rows of kept images: missing values, and a kept text that the image does not have."""
    import pyarrow.compute as pc

    if kind == "joined":
        left = pc.equal(pc.list_value_length(table["fails"]), 0)
    else:
        left = pc.is_valid(table["kept"])
        texts = pc.list_value_length(table["texts"])
        if pc.any(pc.or_(pc.less(table["kept"], 0), pc.greater_equal(table["kept"], texts))).as_py():
            yield "`kept` is not the index of a text of the image"
    for name in LEFT if kind == "joined" else KEPT:
        if name in present and pc.any(pc.and_(left, pc.is_null(table[name]))).as_py():
            yield f"`{name}` is missing in a row that is kept"


def _unknown(column: str, values: Any, known: Callable[[str], object]) -> Iterator[str]:
    import pyarrow.compute as pc

    strange = [one for one in pc.unique(values).to_pylist() if one is None or not known(one)]
    if strange:
        yield f"`{column}` has the unknown value {str(strange[0])[:80]!r}"
