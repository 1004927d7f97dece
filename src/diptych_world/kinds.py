"""The kinds of objects in Storybook, with their colours, sizes, poses and places."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.json import decode

from diptych.runtime.files import text_of

COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown")
SIZES: Mapping[str, float] = {"small": 0.72, "medium": 1.0, "big": 1.36}  # size -> scale of the drawing
PLACES = ("park", "beach", "street", "room")
PARK, BEACH, STREET, ROOM = PLACES
HORIZON: Mapping[str, float] = {PARK: 84, BEACH: 96, STREET: 92, ROOM: 104}  # place -> y at which the ground starts


class Kind(Struct, frozen=True):
    """A kind of object. Lengths are in pixels, for an object of medium size in a picture of 160 x 160."""

    name: str
    family: str  # "person", "animal", "vehicle" or "object"
    width: int
    height: int
    places: tuple[str, ...]
    poses: tuple[str, ...] = ()
    activity: str = ""  # words for what an object of this kind does, for kinds without poses
    synonyms: tuple[str, ...] = ()
    level: str = "ground"  # where the object is unless it is carried: "ground", "sky" or "water"
    surface: tuple[float, float, float] | None = None  # space for other objects on it: left, right, y from the top
    shelter: tuple[float, float, float] | None = None  # space for other objects below it: left, right, height
    grip: tuple[float, float] | None = None  # x, y where a hand holds the object; None: it cannot be held
    looks: int = 1  # variants of the drawing, in details that no text mentions
    small_enough: bool = False  # True: can be on or under another object
    plurals: dict[str, str] = {}  # noun -> irregular plural


HAND = (27.0, 21.0)  # x, y of a holding hand in the drawing of a person

KINDS = {one.name: one for one in decode(text_of(Path(__file__).with_name("kinds.json")), type=list[Kind])}
NAMES = tuple(KINDS)
# For each kind, the colour that occurs only in the split `test_rare`.
RARE_COLOURS = {name: COLOURS[(3 * i + 5) % len(COLOURS)] for i, name in enumerate(NAMES)}


def names_of_kinds() -> dict[str, str]:
    """Return a dict from every noun, singular and plural, to its kind: {"puppies": "dog", ...}."""
    return {
        name: kind.name
        for kind in KINDS.values()
        for word in (kind.name, *kind.synonyms)
        for name in (word, kind.plurals.get(word, word + "s"))
    }


def is_rare(kind: str, colour: str) -> bool:
    """Return True if this kind has this colour only in the split `test_rare`."""
    return RARE_COLOURS[kind] == colour


def colours_of(kind: str) -> tuple[str, ...]:
    """Return the seven colours that a kind has in all splits."""
    return tuple(colour for colour in COLOURS if not is_rare(kind, colour))


def sitting_drop(height: float) -> float:
    """Return how many pixels lower the neck of a sitting person is than of a standing one.

    `height`: height of the standing person.
    """
    return 0.53 * height - 12.7
