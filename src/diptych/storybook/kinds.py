"""The inventory of the drawn world: kinds of things, colours, sizes, poses and the places of each."""

from collections.abc import Mapping
from dataclasses import dataclass

COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown")
SIZES: Mapping[str, float] = {"small": 0.72, "medium": 1.0, "big": 1.36}  # scale of the drawing
PLACES = ("park", "beach", "street", "room")
PARK, BEACH, STREET, ROOM = PLACES
HORIZON: Mapping[str, float] = {PARK: 84, BEACH: 96, STREET: 92, ROOM: 104}  # y at which the ground starts
OUTDOORS = (PARK, BEACH, STREET)


@dataclass(frozen=True)
class Kind:
    """One kind of thing. Lengths are pixels of a medium-sized one in a picture of 160 x 160."""

    name: str
    family: str  # "person", "animal", "vehicle" or "object"
    width: int
    height: int
    places: tuple[str, ...]
    poses: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()
    level: str = "ground"  # its place when nothing carries it: "ground", "sky" or "water"
    surface: tuple[float, float, float] | None = None  # left, right, y from the top: room for others on it
    shelter: tuple[float, float, float] | None = None  # left, right, height above the ground: room below it
    grip: tuple[float, float] | None = None  # x, y at which a hand holds it; None: it cannot be held
    looks: int = 1  # number of variants of the drawing, whose details no word names, such as skin and hair
    small_enough: bool = False  # fits on or under another thing
    plurals: Mapping[str, str] | None = None  # noun -> plural, for nouns that do not take an s


PEOPLE_POSES = ("standing", "walking", "sitting", "waving")
HAND = (27.0, 21.0)  # x, y of the hand that holds something, in the person's own pixels
EVERYWHERE = PLACES

_ALL = (
    Kind("man", "person", 32, 54, EVERYWHERE, PEOPLE_POSES, ("guy",), plurals={"man": "men"}, looks=4),
    Kind("woman", "person", 32, 52, EVERYWHERE, PEOPLE_POSES, ("lady",), looks=4,
         plurals={"woman": "women", "lady": "ladies"}),
    Kind("boy", "person", 32, 44, EVERYWHERE, PEOPLE_POSES, ("lad",), looks=4),
    Kind("girl", "person", 32, 44, EVERYWHERE, PEOPLE_POSES, looks=4),
    Kind("dog", "animal", 36, 28, EVERYWHERE, ("standing", "sitting", "running"), ("puppy",), small_enough=True,
         plurals={"puppy": "puppies"}),
    Kind("cat", "animal", 30, 26, EVERYWHERE, ("sitting", "walking", "sleeping"), ("kitten",), small_enough=True),
    Kind("bird", "animal", 24, 20, OUTDOORS, ("standing", "flying"), small_enough=True),
    Kind("duck", "animal", 26, 22, (PARK, BEACH), ("standing", "sitting"), small_enough=True),
    Kind("rabbit", "animal", 22, 28, (PARK, ROOM), ("sitting", "jumping"), ("bunny",), small_enough=True,
         plurals={"bunny": "bunnies"}),
    Kind("car", "vehicle", 60, 30, (STREET,), (), ("automobile",), looks=2),
    Kind("bus", "vehicle", 70, 38, (STREET,), (), ("coach",), plurals={"coach": "coaches", "bus": "buses"}, looks=2),
    Kind("bicycle", "vehicle", 44, 30, (STREET, PARK), (), ("bike",)),
    Kind("boat", "vehicle", 44, 46, (BEACH,), (), ("sailboat",), level="water", looks=2),
    Kind("plane", "vehicle", 48, 24, OUTDOORS, (), ("airplane",), level="sky"),
    Kind("balloon", "object", 20, 42, EVERYWHERE, level="sky", grip=(10, 41)),
    Kind("kite", "object", 28, 46, (PARK, BEACH), level="sky", grip=(2, 45), looks=2),
    Kind("umbrella", "object", 40, 40, OUTDOORS, (), ("parasol",), shelter=(3, 37, 24), grip=(20, 36)),
    Kind("cup", "object", 18, 15, EVERYWHERE, (), ("mug",), grip=(3, 9), small_enough=True),
    Kind("ball", "object", 18, 18, EVERYWHERE, grip=(1, 9), small_enough=True, looks=2),
    Kind("flower", "object", 18, 30, (PARK, STREET, ROOM), (), ("blossom",), grip=(9, 26), small_enough=True, looks=4),
    Kind("book", "object", 22, 17, EVERYWHERE, grip=(2, 10), small_enough=True),
    Kind("chair", "object", 28, 42, (ROOM, PARK, BEACH), surface=(5, 24, 22), shelter=(5, 24, 15)),
    Kind("table", "object", 58, 32, (ROOM, PARK), (), ("desk",), surface=(5, 53, 3), shelter=(10, 48, 24)),
    Kind("bench", "object", 58, 32, (PARK, STREET, BEACH), surface=(5, 53, 17), shelter=(10, 48, 12),
         plurals={"bench": "benches"}),
    Kind("lamp", "object", 24, 60, (STREET, ROOM), (), ("light",)),
    Kind("tree", "object", 50, 70, OUTDOORS, shelter=(2, 20, 20), looks=4),
    Kind("house", "object", 60, 58, (PARK, STREET, BEACH), (), ("cottage",), looks=2),
    Kind("tent", "object", 56, 38, (PARK, BEACH), looks=2),
    Kind("box", "object", 28, 24, (ROOM, STREET), (), ("crate",), surface=(3, 25, 3), small_enough=True,
         plurals={"box": "boxes"}),
)  # fmt: skip

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}
NAMES = tuple(KINDS)
# The one colour of each kind that only the split `test_rare` has.
RARE_COLOURS = {name: COLOURS[(3 * i + 5) % len(COLOURS)] for i, name in enumerate(NAMES)}


def names_of_kinds() -> dict[str, str]:
    """Map every noun of the world, singular and plural, to its kind: {"puppies": "dog", ...}."""
    return {
        name: kind.name
        for kind in KINDS.values()
        for word in (kind.name, *kind.synonyms)
        for name in (word, (kind.plurals or {}).get(word, word + "s"))
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
