"""Generate captions with one or two facts, in several sentence forms, and noisy alt texts for the web split."""

from random import Random

from diptych_world.facts import Facts
from diptych_world.grammar import NUMBERS, describe, doing, noun, plural, relate, sky, where
from diptych_world.kinds import KINDS
from diptych_world.layout import scene

CAPTIONS = 5
_CLUTTER = ("photo", "image", "stock photo", "clipart", "free download", "wallpaper", "cute", "best price", "new")


def captions(rng: Random, facts: Facts) -> tuple[str, ...]:
    """Generate five random captions. They are different, unless thirty attempts give fewer than five different ones."""
    written: list[str] = []
    for attempt in range(40):
        text = caption(rng, facts)
        if text not in written or attempt > 30:
            written.append(text)
        if len(written) == CAPTIONS:
            break
    return tuple(written)


def caption(rng: Random, facts: Facts) -> str:
    """Generate one random caption."""
    mentioned: set[int] = set()
    subject, about, many = _clause(rng, facts, mentioned)
    place = where(rng, facts.scene) if rng.random() < 0.75 else ""
    when = sky(rng, facts.scene) if rng.random() < (0.3 if place else 0.55) else ""
    be = "are" if many else "is"
    alone = about and not about.startswith("with ")  # to avoid `is with an umbrella`
    shapes = {"fragment": 40, "there": 18, "shows": 10, "full": 22 if alone else 0, "fronted": 10 if place else 0}
    if len(mentioned) < len(facts.figures) - 1 and rng.random() < 0.3:  # also mention another object
        more, more_about, _ = _clause(rng, facts, mentioned)
        about = _join(about, "and" if more_about or rng.random() < 0.5 else "with", more, more_about)
        shapes["full"] = 0  # to avoid `is holding a ball and two dogs running`
    shape = rng.choices(tuple(shapes), tuple(shapes.values()))[0]
    if shape == "full":
        return _join(subject, be, about, place, when)
    if shape == "there":
        return _join("there", be, subject, about, place, when)
    if shape == "shows":
        return _join(rng.choice(("a picture of", "the picture shows", "a drawing of")), subject, about, place, when)
    if shape == "fronted":
        return _join(place, "there", be, subject, about, when)
    return _join(subject, about, place, when)


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _clause(rng: Random, facts: Facts, mentioned: set[int]) -> tuple[str, str, bool]:
    """Return a subject that is not in `mentioned`, words about it, and True if it takes `are`.

    The subject is added to `mentioned`.
    """
    order = [number for number in facts.order if number not in mentioned]
    first = order[1] if len(order) > 1 and rng.random() < 0.28 else order[0]
    figure = facts.of(first)
    links = [link for link in facts.links if first in (link[0], link[2]) and not mentioned & {link[0], link[2]}]
    if links and rng.random() < 0.75:
        a, relation, b = links[0]
        mentioned |= {a, b}
        return _thing(rng, facts, a), _linked(rng, facts, a, relation, b), False
    if facts.counts[figure.kind] > 1 and not mentioned.intersection(facts.by_kind[figure.kind]) and rng.random() < 0.75:
        mentioned |= set(facts.by_kind[figure.kind])
        return _several(rng, facts, figure.kind), doing(figure) if _all_do(facts, figure.kind) else "", True
    mentioned.add(first)
    other = next((number for number in order if number != first and facts.of(number).kind != figure.kind), None)
    if other is None or rng.random() < 0.35:
        return _thing(rng, facts, first), doing(figure), False
    mentioned.add(other)
    lies = facts.between(first, other)
    if lies is None or rng.random() < 0.4:
        return f"{_thing(rng, facts, first)} and {_thing(rng, facts, other)}", "", False
    activity = doing(figure) if rng.random() < 0.6 else ""
    return _thing(rng, facts, first), _join(activity, relate(rng, lies), _thing(rng, facts, other)), False


def _linked(rng: Random, facts: Facts, a: int, relation: str, b: int) -> str:
    """Return words for a relation of object `a` to object `b`, such as `holding a ball` or `sitting on the table`."""
    activity = facts.of(a).pose if relation != "holding" and rng.random() < 0.5 else ""
    return _join(activity, relate(rng, relation), _thing(rng, facts, b))


def _thing(rng: Random, facts: Facts, number: int) -> str:
    return describe(rng, facts.of(number), colour=rng.random() < 0.8, size=rng.random() < 0.4)


def _several(rng: Random, facts: Facts, kind: str) -> str:
    """Return words for all objects of a kind, such as `three red balloons`.

    The colour is left out if they have several.
    """
    colours = facts.colours_of_kind(kind)
    word = plural(kind, noun(rng, kind))
    number = NUMBERS[facts.counts[kind]] if rng.random() < 0.85 else "some"
    if len(colours) > 1 or rng.random() < 0.2:
        return f"{number} {word}"
    (colour,) = colours
    return f"{number} {word} in {colour}" if KINDS[kind].family == "person" else f"{number} {colour} {word}"


def _all_do(facts: Facts, kind: str) -> bool:
    return len({doing(facts.of(number)) for number in facts.by_kind[kind]}) == 1


def alt_text(rng: Random, facts: Facts) -> str:
    """Generate a noisy alt text, as on web pages. It is incomplete or careless; 12% describe another picture."""
    about = facts
    if rng.random() < 0.12:
        here = facts.scene
        about = Facts(scene(here.seed, here.split, here.index + rng.randint(1, 40)))
    text = caption(rng, about)
    manner = rng.random()
    if manner < 0.25:  # a list of keywords
        numbers = rng.sample(about.order[:3], min(len(about.order), rng.randint(1, 3)))
        words = [f"{figure.colour} {noun(rng, figure.kind)}" for figure in map(about.of, numbers)]
        text = " ".join([*words, about.scene.place] if rng.random() < 0.5 else words)
    elif manner < 0.45:  # an incomplete sentence
        words = text.split()
        text = " ".join(words[: max(3, len(words) - rng.randint(2, 5))])
    elif manner < 0.6:  # leave out function words
        text = " ".join(word for word in text.split() if word not in ("a", "an", "the", "is", "are", "there"))
    if rng.random() < 0.3:
        clutter = rng.choice(_CLUTTER)
        text = f"{clutter} {text}" if rng.random() < 0.5 else f"{text} {clutter}"
    return text
