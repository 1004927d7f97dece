"""The settings of `diptych mine`. OUT/mine.json has all of them, including defaults."""

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from diptych.runtime.configs import assignment, first_problem, value_of
from diptych.runtime.errors import RecipeError, nearest
from diptych.vision.fingerprints import MOST_NEAR, NEAR

OFF = ("off", "none", "null")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PageRules(_Frozen):
    """Rules for pages and for the images on them.

    `off` (None) turns a rule off. `rules.py` describes the meaning and source of each rule.
    """

    opt_out: bool | None = True
    language: float | None = Field(default=0.8, ge=0, le=1)
    address: bool | None = True
    dominant: float | None = Field(default=1.0, ge=0)
    dominant_least: float = -1.0


class TextRules(_Frozen):
    """Rules for the texts of an image."""

    file_name: bool | None = True
    boilerplate: bool | None = True
    short: int | None = Field(default=3, ge=1)
    long: int | None = Field(default=40, ge=1)
    bad_words: bool | None = True
    spam: int | None = Field(default=2, ge=1)
    repeats: float | None = Field(default=0.5, ge=0, le=1)
    letters: float | None = Field(default=0.7, ge=0, le=1)
    vocabulary: float | None = Field(default=0.3, ge=0, le=1)
    text_language: float | None = Field(default=0.2, ge=0, le=1)
    text_language_from: int = Field(default=8, ge=1)


class PictureRules(_Frozen):
    """Rules for image files."""

    small_file: int | None = Field(default=2_000, ge=0)
    large_file: int | None = Field(default=10_000_000, ge=0)
    pixels: int = Field(default=64_000_000, ge=1, le=64_000_000)
    sides: int | None = Field(default=300, ge=0)
    ratio: float | None = Field(default=3.0, ge=1)
    one_colour: bool | None = True
    animation: bool | None = False
    realism: float | None = Field(default=None, ge=0, le=1)
    nsfw: float | None = Field(default=None, ge=0, le=1)


class KeepRules(_Frozen):
    """Rules for pairs of image and text, applied to the whole collection."""

    score: float | None = None
    kinds: tuple[Literal["figcaption", "alt", "title", "caption", "near"], ...] | None = Field(
        default=None, min_length=1
    )
    common_text: int | None = Field(default=10, ge=1)
    near_bits: int | None = Field(default=NEAR, ge=0, le=MOST_NEAR)
    top: float | None = Field(default=None, gt=0, le=1)
    host_pairs: int | None = Field(default=None, ge=1)
    licence: str | None = None


class Fetch(_Frozen):
    """How URLs are fetched.

    Times are in seconds. These settings do not change the result, so they may differ when a run is resumed.
    """

    contact: str = ""
    connections_per_host: int = Field(default=2, ge=1)
    rate: float = Field(default=1.0, gt=0)
    at_once: int = Field(default=64, ge=1)
    first_byte: float = Field(default=10.0, gt=0)
    whole: float = Field(default=30.0, gt=0)
    most_bytes: int = Field(default=10_000_000, ge=1)
    redirects: int = Field(default=5, ge=0)
    retries: int = Field(default=2, ge=0)
    backoff: float = Field(default=2.0, ge=0)
    rest: float = Field(default=60.0, ge=0)
    longest_rest: float = Field(default=120.0, ge=0)
    failures: int = Field(default=20, ge=1)
    crawl_delay: float = Field(default=60.0, ge=0)
    robots_hours: float = Field(default=24.0, ge=0)
    ports: tuple[int, ...] = (80, 443)
    allow: tuple[str, ...] = ()
    resolve: tuple[str, ...] = ()
    agent: str = "diptych-mine"

    @field_validator("contact", "agent")
    @classmethod
    def _check_header(cls, value: str) -> str:
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"found {value!r}, expected printable ASCII, because it is sent as an HTTP header")
        return value.strip()


class MiningSettings(_Frozen):
    """All settings of a run, in sections."""

    pages: PageRules = PageRules()
    texts: TextRules = TextRules()
    pictures: PictureRules = PictureRules()
    keep: KeepRules = KeepRules()
    fetch: Fetch = Fetch()
    offline: bool = False
    seed: int = 0


RULES = ("pages", "texts", "pictures", "keep")


def changed(settings: MiningSettings, assignments: Iterable[str]) -> MiningSettings:
    """Return a copy with assignments such as `rules.sides=300` or `fetch.rate=2` applied.

    Raises RecipeError for an unknown key (and suggests the nearest one), and for values out of range.
    """
    values = settings.model_dump()
    places = {f"rules.{name}": (part, name) for part in RULES for name in values[part] if name != "kinds"}
    places |= {f"fetch.{name}": ("fetch", name) for name in values["fetch"]}
    for given in assignments:
        key, text = assignment(given, "rules.sides=300")
        if key not in places:
            raise RecipeError(f"no setting {key!r}; {nearest(key, places)}")
        part, name = places[key]
        values[part][name] = None if text.lower() in OFF else value_of(text)
    return checked(values)


def checked(values: dict[str, Any]) -> MiningSettings:
    """Return the settings, given section -> values. Raises RecipeError for the first value that is out of range."""
    try:
        return MiningSettings.model_validate(values)
    except ValidationError as error:
        raise RecipeError(f"{first_problem(error)}; `off` switches a rule off") from error
