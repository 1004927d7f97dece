"""Claims that are true or false by the toss of a coin: yes/no questions and statements are made of them.

A true and a false claim of one form are equally likely and are drawn alike, so that the words alone tell
little. What is absent is drawn from what another scene of the same place would hold.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from diptych.storybook.expressions import single_out
from diptych.storybook.facts import Facts
from diptych.storybook.grammar import NUMBERS, is_person, plural, with_article
from diptych.storybook.kinds import KINDS, colours_of
from diptych.storybook.plan import plan


class Claim(NamedTuple):
    question: str
    statement: str
    true: bool


Maker = Callable[[Random, Facts, bool], Claim | None]


def claim(rng: Random, facts: Facts) -> Claim | None:
    """A claim of some form, or None where the scene does not allow what the dice say."""
    maker = rng.choices(tuple(_MAKERS), tuple(_MAKERS.values()))[0]
    return maker(rng, facts, rng.random() < 0.5)


def decoy(rng: Random, facts: Facts) -> tuple[str, str] | None:
    """A kind that is not there and a colour for it: taken from a group that might have been there."""
    for _ in range(6):
        part = rng.choice(plan(rng, facts.scene.place, 2).parts)
        if part.kind not in facts.counts:
            return part.kind, part.colour
    return None


def _existence(rng: Random, facts: Facts, true: bool) -> Claim | None:
    if true:
        kind = rng.choice(tuple(facts.counts))
    else:
        absent = decoy(rng, facts)
        if absent is None:
            return None
        kind = absent[0]
    thing = with_article(kind)
    ask = rng.choice((f"is there {thing}", f"is there {thing} in the picture", f"do you see {thing}"))
    say = rng.choice((f"there is {thing}", f"{thing} is in the picture"))
    return Claim(ask, say, true)


def _coloured(kind: str, colour: str) -> str:
    """`a red ball`; people wear their colour."""
    return f"{with_article(kind)} in {colour}" if KINDS[kind].family == "person" else with_article(f"{colour} {kind}")


def _coloured_existence(rng: Random, facts: Facts, true: bool) -> Claim | None:
    kind = rng.choice(tuple(facts.counts))
    seen = facts.colours_of_kind(kind)
    colour = rng.choice(sorted(seen) if true else [other for other in colours_of(kind) if other not in seen])
    thing = _coloured(kind, colour)
    return Claim(f"is there {thing}", rng.choice((f"there is {thing}", f"one can see {thing}")), true)


def _colour(rng: Random, facts: Facts, true: bool) -> Claim | None:
    number = rng.randrange(len(facts.figures))
    figure, words = facts.of(number), single_out(rng, facts, number, without="colour")
    if words is None:
        return None
    others = [other for other in colours_of(figure.kind) if other != figure.colour]
    colour = figure.colour if true else rng.choice(others)
    if is_person(figure):
        return Claim(f"is {words} wearing {colour}", f"{words} is wearing {colour}", true)
    return Claim(f"is {words} {colour}", f"{words} is {colour}", true)


def _pose(rng: Random, facts: Facts, true: bool) -> Claim | None:
    posed = [number for number in range(len(facts.figures)) if facts.of(number).pose]
    if not posed:
        return None
    number = rng.choice(posed)
    figure, words = facts.of(number), single_out(rng, facts, number, without="pose")
    if words is None:
        return None
    pose = figure.pose if true else rng.choice([pose for pose in KINDS[figure.kind].poses if pose != figure.pose])
    return Claim(f"is {words} {pose}", f"{words} is {pose}", true)


def _side(rng: Random, facts: Facts, true: bool) -> Claim | None:
    """Left and right of each other, said of two objects in either order."""
    if not facts.sides:
        return None
    a, relation, b = rng.choice(facts.sides)
    first, second = single_out(rng, facts, a, without="side"), single_out(rng, facts, b, without="side")
    if first is None or second is None:
        return None
    side = "left" if (relation == "left of") == true else "right"
    how = rng.choice((f"{side} of", f"to the {side} of"))
    return Claim(f"is {first} {how} {second}", f"{first} is {how} {second}", true)


def _more(rng: Random, facts: Facts, true: bool) -> Claim | None:
    """More of one kind than of another."""
    many, few = rng.sample(tuple(facts.counts), 2) if len(facts.counts) > 1 else ("", "")
    if facts.counts[many] == facts.counts[few]:
        return None
    if (facts.counts[many] > facts.counts[few]) != true:
        many, few = few, many
    return Claim(
        f"are there more {plural(many)} than {plural(few)}", f"there are more {plural(many)} than {plural(few)}", true
    )


def _number(rng: Random, facts: Facts, true: bool) -> Claim | None:
    """How many of a kind there are, two or more."""
    kinds = [kind for kind, count in facts.counts.items() if count > 1]
    if not kinds:
        return None
    kind = rng.choice(kinds)
    number = facts.counts[kind]
    if not true:  # drawn as often as true numbers are
        number = rng.choices((2, 3, 4), [weight * (n != number) for n, weight in ((2, 6), (3, 5), (4, 3))])[0]
    words = f"{NUMBERS[number]} {plural(kind)}"
    return Claim(f"are there {words}", rng.choice((f"there are {words}", f"the picture shows {words}")), true)


def _holding(rng: Random, facts: Facts, true: bool) -> Claim | None:
    links = [link for link in facts.links if link[1] == "holding"]
    if not links:
        return None
    person, _, held = rng.choice(links)
    words, kind = single_out(rng, facts, person, without="link"), facts.of(held).kind
    if words is None:
        return None
    if not true:
        place = facts.scene.place
        kind = rng.choice([k.name for k in KINDS.values() if k.grip and place in k.places and k.name != kind])
    return Claim(f"is {words} holding {with_article(kind)}", f"{words} is holding {with_article(kind)}", true)


_MAKERS: dict[Maker, int] = {  # plain existence and colour often enough that a small model can learn them
    _existence: 10,
    _coloured_existence: 3,
    _colour: 6,
    _pose: 1,
    _side: 2,
    _more: 1,
    _number: 2,
    _holding: 2,
}
