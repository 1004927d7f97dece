"""Visual commonsense reasoning of a drawn kind: a question, four answers, four rationales.

The four of each are two details, each told rightly or wrongly: right-right, right-wrong, wrong-right and
wrong-wrong. Every value stands in two of the four, so that nothing but the picture tells which is right.
"""

from random import Random
from typing import NamedTuple

from diptych.core import Choices
from diptych.storybook.facts import Facts
from diptych.storybook.grammar import is_person
from diptych.storybook.kinds import KINDS, colours_of


class Detail(NamedTuple):
    """One thing to know: of which thing, and the words that say it rightly and wrongly."""

    about: int
    right: str
    wrong: str


_ASKED = (  # the question and the two details that answer it
    ("what is {a} doing", ("pose", "side")),
    ("where is {a} and what is it doing", ("side", "pose")),
    ("how does {a} look", ("size", "colour")),
    ("where is {a} and how does it look", ("side", "colour")),
    ("how can one tell {a} from {b}", ("colour", "other colour")),
)


def choices(rng: Random, facts: Facts) -> tuple[Choices, ...]:
    """One, about two objects of which one is left of the other; none where too little can be told."""
    for _ in range(4 if facts.sides else 0):
        a, relation, b = rng.choice(facts.sides)
        details = _details(rng, facts, a, relation, b)
        asked = [entry for entry in _ASKED if details.keys() >= set(entry[1])]
        if len(details) < 4 or not asked:
            continue
        question, (first, second) = rng.choice(asked)
        rest = sorted(details.keys() - {first, second})
        third, fourth = rng.sample(rest, 2)
        answers, answer = _four(rng, details[first], details[second])
        because = rng.choice(("because {}", "since {}", "one can see that {}"))
        reasons, rationale = _four(rng, details[third], details[fourth])
        reasons = tuple(because.format(reason) for reason in reasons)
        text = question.format(a=f"[{a}]", b=f"[{b}]")
        return (Choices(f"{facts.scene.key}/0", text, answers, answer, reasons, rationale),)
    return ()


def _details(rng: Random, facts: Facts, a: int, relation: str, b: int) -> dict[str, Detail]:
    """What can be told of the two.

    Size and pose only of objects that stand by themselves: what is held or lies on a table has fewer of
    them, which would give the right one away.
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
        sizes = ("small", "medium", "big")
        details[f"{start}size"] = Detail(number, figure.size, rng.choice([s for s in sizes if s != figure.size]))
        if figure.pose:
            wrong = rng.choice([pose for pose in KINDS[figure.kind].poses if pose != figure.pose])
            details[f"{start}pose"] = Detail(number, figure.pose, wrong)
    return details


def _four(rng: Random, first: Detail, second: Detail) -> tuple[tuple[str, ...], int]:
    """The four combinations in a drawn order, and where the right one is."""
    if rng.random() < 0.5:
        first, second = second, first
    pairs = [(x, y) for x in first[1:] for y in second[1:]]
    right = pairs[0]
    rng.shuffle(pairs)
    then = "and" if first.about == second.about else f"and [{second.about}] is"
    return tuple(f"[{first.about}] is {x} {then} {y}" for x, y in pairs), pairs.index(right)
