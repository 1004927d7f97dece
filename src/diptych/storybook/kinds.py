"""The inventory of the drawn world: kinds of things, with their colours, sizes, poses and places."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.json import decode

from diptych.runtime.files import text_of

COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown")
SIZES: Mapping[str, float] = {"small": 0.72, "medium": 1.0, "big": 1.36}  # scale of the drawing
PLACES = ("park", "beach", "street", "room")
PARK, BEACH, STREET, ROOM = PLACES
HORIZON: Mapping[str, float] = {PARK: 84, BEACH: 96, STREET: 92, ROOM: 104}  # y at which the ground starts


class Kind(Struct, frozen=True):
    """One kind of thing. Lengths are pixels of a medium-sized one in a picture of 160 x 160."""

    name: str
    family: str  # "person", "animal", "vehicle" or "object"
    width: int
    height: int
    places: tuple[str, ...]
    poses: tuple[str, ...] = ()
    activity: str = ""  # activity of a kind without poses
    synonyms: tuple[str, ...] = ()
    level: str = "ground"  # where it is if nothing carries it: "ground", "sky" or "water"
    surface: tuple[float, float, float] | None = None  # left, right, y from the top: room for others on it
    shelter: tuple[float, float, float] | None = None  # left, right, height above the ground: room below it
    grip: tuple[float, float] | None = None  # x, y at which a hand holds it; None: it cannot be held
    looks: int = 1  # number of variants of the drawing, whose details no word names, such as skin and hair
    small_enough: bool = False  # fits on or under another thing
    plurals: dict[str, str] = {}  # noun -> plural, for nouns that do not take an s


HAND = (27.0, 21.0)  # x, y of the hand that holds something, in the person's own pixels

KINDS = {one.name: one for one in decode(text_of(Path(__file__).with_name("kinds.json")), type=list[Kind])}
NAMES = tuple(KINDS)
# The one colour of each kind that only the split `test_rare` has.
RARE_COLOURS = {name: COLOURS[(3 * i + 5) % len(COLOURS)] for i, name in enumerate(NAMES)}


def names_of_kinds() -> dict[str, str]:
    """Map every noun of the world, singular and plural, to its kind: {"puppies": "dog", ...}."""
    return {
        name: kind.name
        for kind in KINDS.values()
        for word in (kind.name, *kind.synonyms)
        for name in (word, kind.plurals.get(word, word + "s"))
    }


def is_rare(kind: str, colour: str) -> bool:
    """Return True if this combination occurs only in the split `test_rare`."""
    return RARE_COLOURS[kind] == colour


def colours_of(kind: str) -> tuple[str, ...]:
    """Return the seven colours that a kind has in every split."""
    return tuple(colour for colour in COLOURS if not is_rare(kind, colour))


def sitting_drop(height: float) -> float:
    """Return how much lower a sitting person's neck is, in the person's own pixels: the trunk rests on the ground."""
    return 0.53 * height - 12.7
