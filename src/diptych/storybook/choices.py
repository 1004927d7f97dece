"""Visual commonsense reasoning in the drawn world: a question, four answers, four rationales.

The four options combine two details, each right or wrong: right-right, right-wrong, wrong-right and wrong-wrong. Every
value occurs in two of the four options, so that only the picture shows which is right.
"""

from random import Random
from typing import NamedTuple

from diptych.core import Choices
from diptych.storybook.facts import Facts
from diptych.storybook.grammar import is_person
from diptych.storybook.kinds import KINDS, SIZES, colours_of


class Detail(NamedTuple):
    """One detail of an object: a phrase that is right and one that is wrong."""

    about: int  # index of the object
    right: str
    wrong: str


_QUESTIONS = (  # a question and the two details that answer it
    ("what is {a} doing", ("pose", "side")),
    ("where is {a} and what is it doing", ("side", "pose")),
    ("how does {a} look", ("size", "colour")),
    ("where is {a} and how does it look", ("side", "colour")),
    ("how can one tell {a} from {b}", ("colour", "other colour")),
)


def choices(rng: Random, facts: Facts) -> tuple[Choices, ...]:
    """Draw one item about two objects, one left of the other; () if too few details are known."""
    for _ in range(4 if facts.sides else 0):
        a, relation, b = rng.choice(facts.sides)
        details = _details(rng, facts, a, relation, b)
        possible = [entry for entry in _QUESTIONS if details.keys() >= set(entry[1])]
        if len(details) < 4 or not possible:
            continue
        question, (first, second) = rng.choice(possible)
        third, fourth = rng.sample(sorted(details.keys() - {first, second}), 2)
        answers, answer = _four(rng, details[first], details[second])
        because = rng.choice(("because {}", "since {}", "one can see that {}"))
        reasons, rationale = _four(rng, details[third], details[fourth])
        reasons = tuple(because.format(reason) for reason in reasons)
        text = question.format(a=f"[{a}]", b=f"[{b}]")
        return (Choices(f"{facts.scene.key}/0", text, answers, answer, reasons, rationale),)
    return ()


def _details(rng: Random, facts: Facts, a: int, relation: str, b: int) -> dict[str, Detail]:
    """Return the details of two objects by name.

    Size and pose are left out for linked objects. An object that is held or lies on a table has fewer sizes and poses,
    which would reveal the right option.
    """
    other = "right of" if relation == "left of" else "left of"
    details = {"side": Detail(a, f"to the {relation} [{b}]", f"to the {other} [{b}]")}
    linked = {number for link in facts.links for number in (link[0], link[2])}
    for number, start in ((a, ""), (b, "other ")):
        figure = facts.of(number)
        wear = "wearing " if is_person(figure) else ""
        wrong = rng.choice([colour for colour in colours_of(figure.kind) if colour != figure.colour])
        details[f"{start}colour"] = Detail(number, wear + figure.colour, wear + wrong)
        if number in linked:
            continue
        wrong = rng.choice([size for size in SIZES if size != figure.size])
        details[f"{start}size"] = Detail(number, figure.size, wrong)
        if figure.pose:
            wrong = rng.choice([pose for pose in KINDS[figure.kind].poses if pose != figure.pose])
            details[f"{start}pose"] = Detail(number, figure.pose, wrong)
    return details


def _four(rng: Random, first: Detail, second: Detail) -> tuple[tuple[str, ...], int]:
    """Return the four combinations in random order, and the index of the right one."""
    if rng.random() < 0.5:
        first, second = second, first
    pairs = [(x, y) for x in first[1:] for y in second[1:]]
    right = pairs[0]
    rng.shuffle(pairs)
    then = "and" if first.about == second.about else f"and [{second.about}] is"
    return tuple(f"[{first.about}] is {x} {then} {y}" for x, y in pairs), pairs.index(right)
