"""Items as in visual commonsense reasoning (VCR): a question, four answers, four rationales.

The four options combine two details, each right or wrong. Each value of a detail occurs in two of the four options, so
the right option cannot be found without the picture.
"""

from random import Random
from typing import NamedTuple

from diptych.core import Choices
from diptych_world.facts import Facts
from diptych_world.grammar import is_person
from diptych_world.kinds import KINDS, SIZES, colours_of


class Detail(NamedTuple):
    """A detail of an object: a right phrase and a wrong phrase for it."""

    about: int  # index of the object that the detail describes
    right: str
    wrong: str


_QUESTIONS = (  # question, and the names of the two details that answer it
    ("what is {a} doing", ("pose", "side")),
    ("where is {a} and what is it doing", ("side", "pose")),
    ("how does {a} look", ("size", "colour")),
    ("where is {a} and how does it look", ("side", "colour")),
    ("how can one tell {a} from {b}", ("colour", "other colour")),
)


def choices(rng: Random, facts: Facts) -> tuple[Choices, ...]:
    """Generate one item about two objects, one left of the other. Return () if the scene has too few details."""
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
    """Return the details of the objects `a` and `b` by name, such as `colour` and `other colour`.

    Size and pose are left out for objects in a relation such as `holding`. A held object has fewer possible sizes and
    poses, which would reveal the right option.
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
    """Return the four combinations of two details in random order, and the index of the right one."""
    if rng.random() < 0.5:
        first, second = second, first
    pairs = [(x, y) for x in first[1:] for y in second[1:]]
    right = pairs[0]
    rng.shuffle(pairs)
    then = "and" if first.about == second.about else f"and [{second.about}] is"
    return tuple(f"[{first.about}] is {x} {then} {y}" for x, y in pairs), pairs.index(right)
