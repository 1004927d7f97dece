"""Generate words for objects: nouns, articles, descriptions, relations, places.

Texts have no commas or full stops, because tokenisers treat them differently.
"""

from pathlib import Path
from random import Random

from msgspec.json import decode

from diptych.runtime.files import text_of
from diptych_world.kinds import KINDS
from diptych_world.world import Figure, Scene

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
# Topic -> name -> words. Topics: sizes, relations, places, skies, and wrong answers of careless people.
WORDS = decode(text_of(Path(__file__).with_name("words.json")), type=dict[str, dict[str, tuple[str, ...]]])
SIZE_WORDS = WORDS["sizes"]


def with_article(words: str) -> str:
    """Add the article `a` or `an` before words, by the first letter.

    The vocabulary has no exceptions such as `hour`.
    """
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def noun(rng: Random, kind: str) -> str:
    """Return the noun of a kind, or in 25% of calls a synonym."""
    synonyms = KINDS[kind].synonyms
    return rng.choice(synonyms) if synonyms and rng.random() < 0.25 else kind


def plural(kind: str, word: str | None = None) -> str:
    """Return the plural of the noun of a kind, or of its synonym `word`."""
    word = word or kind
    return KINDS[kind].plurals.get(word, word + "s")


def is_person(figure: Figure) -> bool:
    return KINDS[figure.kind].family == "person"


def wearing(rng: Random, figure: Figure) -> str:
    """Return a phrase with a person's colour, such as `in a red dress`."""
    garment = "dress" if figure.kind in ("woman", "girl") else "shirt"
    clothes = with_article(f"{figure.colour} {garment}")
    return rng.choice((f"in {figure.colour}", f"in {clothes}", f"wearing {clothes}", f"dressed in {figure.colour}"))


def describe(rng: Random, figure: Figure, colour: bool, size: bool, article: str = "a") -> str:
    """Return a description of an object, such as `a small red ball`. `size`, `colour`: whether to include them."""
    words = [noun(rng, figure.kind)]
    if colour and not is_person(figure):
        words.insert(0, figure.colour)
    if size and figure.size in SIZE_WORDS:
        words.insert(0, rng.choice(SIZE_WORDS[figure.size]))
    phrase = " ".join(words)
    phrase = with_article(phrase) if article == "a" else f"{article} {phrase}"
    return f"{phrase} {wearing(rng, figure)}" if colour and is_person(figure) else phrase


def relate(rng: Random, relation: str) -> str:
    """Return words for a relation, such as `to the left of`."""
    return rng.choice(WORDS["relations"][relation])


def doing(figure: Figure) -> str:
    """Return the pose or activity of an object, such as `sitting`, or ""."""
    if figure.pose:
        return figure.pose
    return "" if figure.kind in ("balloon", "kite") and figure.grounded else KINDS[figure.kind].activity


def where(rng: Random, scene: Scene) -> str:
    """Return words for the scene's place, such as `on the beach`."""
    return rng.choice(WORDS["places"][scene.place])


def sky(rng: Random, scene: Scene) -> str:
    """Return words for time and weather, or "". In a room the only words are `at night`."""
    if scene.place == "room":
        return "at night" if scene.time == "night" else ""
    return rng.choice(WORDS["skies"][f"{scene.time} {scene.weather}"])
