"""Generate claims for yes/no questions and statements. They are true or false with equal probability.

True and false claims of the same form have a similar distribution, so that the words alone reveal little. Absent
objects are chosen from those that other scenes of the same place may contain.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from diptych_world.expressions import single_out, single_out_any
from diptych_world.facts import Facts
from diptych_world.grammar import NUMBERS, is_person, plural, with_article
from diptych_world.kinds import KINDS, colours_of
from diptych_world.plan import belonging, plan


class Claim(NamedTuple):
    """A claim as a question and as a statement, and whether it is true."""

    question: str
    statement: str
    true: bool


Maker = Callable[[Random, Facts, bool], Claim | None]


def claim(rng: Random, facts: Facts) -> Claim | None:
    """Generate a claim of a random form. Return None if this form does not fit the scene."""
    maker = rng.choices(tuple(_MAKERS), tuple(_MAKERS.values()))[0]
    return maker(rng, facts, rng.random() < 0.5)


def decoy(rng: Random, facts: Facts) -> tuple[str, str] | None:
    """Choose a random kind that is absent from the scene but may occur in its place, and a colour for it.

    Return None if no such kind exists.
    """
    for _ in range(6):
        part = rng.choice(plan(rng, facts.scene.place, 2).parts)
        if part.kind not in facts.counts:
            return part.kind, part.colour
    return None


def _existence(rng: Random, facts: Facts, true: bool) -> Claim | None:
    absent = None if true else decoy(rng, facts)
    if not true and absent is None:
        return None
    thing = with_article(absent[0] if absent else rng.choice(tuple(facts.counts)))
    ask = rng.choice((f"is there {thing}", f"is there {thing} in the picture", f"do you see {thing}"))
    state = rng.choice((f"there is {thing}", f"{thing} is in the picture"))
    return Claim(ask, state, true)


def _coloured(kind: str, colour: str) -> str:
    """Return words for an object, such as `a red ball`, or `a man in red` for a person."""
    return f"{with_article(kind)} in {colour}" if KINDS[kind].family == "person" else with_article(f"{colour} {kind}")


def _coloured_existence(rng: Random, facts: Facts, true: bool) -> Claim | None:
    kind = rng.choice(tuple(facts.counts))
    present = facts.colours_of_kind(kind)
    colour = rng.choice(sorted(present) if true else [other for other in colours_of(kind) if other not in present])
    thing = _coloured(kind, colour)
    return Claim(f"is there {thing}", rng.choice((f"there is {thing}", f"one can see {thing}")), true)


def _colour(rng: Random, facts: Facts, true: bool) -> Claim | None:
    single = single_out_any(rng, facts, range(len(facts.figures)), without="colour")
    if single is None:
        return None
    figure, words = facts.of(single[0]), single[1]
    others = [other for other in colours_of(figure.kind) if other != figure.colour]
    colour = figure.colour if true else rng.choice(others)
    if is_person(figure):
        colour = f"wearing {colour}"
    return Claim(f"is {words} {colour}", f"{words} is {colour}", true)


def _pose(rng: Random, facts: Facts, true: bool) -> Claim | None:
    single = single_out_any(rng, facts, facts.posed, without="pose")
    if single is None:
        return None
    figure, words = facts.of(single[0]), single[1]
    pose = figure.pose if true else rng.choice([pose for pose in KINDS[figure.kind].poses if pose != figure.pose])
    return Claim(f"is {words} {pose}", f"{words} is {pose}", true)


def _side(rng: Random, facts: Facts, true: bool) -> Claim | None:
    """Generate a claim that one object is left or right of another. `true`: whether the claim is true."""
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
    """Generate a claim that there are more objects of one kind than of another. `true`: whether the claim is true."""
    many, few = rng.sample(tuple(facts.counts), 2) if len(facts.counts) > 1 else ("", "")
    if facts.counts[many] == facts.counts[few]:
        return None
    if (facts.counts[many] > facts.counts[few]) != true:
        many, few = few, many
    more = f"more {plural(many)} than {plural(few)}"
    return Claim(f"are there {more}", f"there are {more}", true)


def _number(rng: Random, facts: Facts, true: bool) -> Claim | None:
    """Generate a claim about the number of objects of a kind that occurs at least twice.

    `true`: whether the claim is true.
    """
    kinds = [kind for kind, count in facts.counts.items() if count > 1]
    if not kinds:
        return None
    kind = rng.choice(kinds)
    number = facts.counts[kind]
    if not true:  # draw wrong numbers with the frequencies of true numbers
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
        kind = rng.choice([name for name in belonging(facts.scene.place, "held") if name != kind])
    return Claim(f"is {words} holding {with_article(kind)}", f"{words} is holding {with_article(kind)}", true)


_MAKERS: dict[Maker, int] = {  # form -> weight: existence and colour are frequent, so that a small model can learn them
    _existence: 10, _coloured_existence: 3, _colour: 6, _pose: 1, _side: 2, _more: 1, _number: 2, _holding: 2,
}  # fmt: skip
