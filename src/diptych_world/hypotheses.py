"""Generate sentences that a scene entails, contradicts or leaves open, as in SNLI-VE.

All sentences of a scene have the same form, and are about an object such as `the dog`. If the scene has one dog, the
sentence is true or false. If it has no dog, the sentence is neutral. So the words alone do not reveal the class.
"""

from collections.abc import Callable
from random import Random

from diptych.core import TaskItem
from diptych.core.entailment import LABELS
from diptych_world.claims import decoy
from diptych_world.facts import Facts
from diptych_world.grammar import with_article
from diptych_world.kinds import KINDS, colours_of
from diptych_world.plan import belonging

_TRIES = 8


def hypotheses(rng: Random, facts: Facts) -> tuple[TaskItem, ...]:
    """Generate one sentence of each class, in random order. Return () if no form of sentence fits the scene."""
    for _ in range(_TRIES):
        form = rng.choices(tuple(_FORMS), tuple(_FORMS.values()))[0]
        texts = {label: _sentence(rng, facts, form, label) for label in LABELS}
        if all(texts.values()):
            order = enumerate(rng.sample(LABELS, len(LABELS)))
            return tuple(TaskItem(f"{facts.scene.key}/{at}", texts[label], (label,)) for at, label in order)
    return ()


def _sentence(rng: Random, facts: Facts, form: "Form", label: str) -> str:
    """Generate a sentence of this form and class.

    For the class neutral it is about an absent object, else about the only object of its kind. Return "" if none fits.
    """
    absent = decoy(rng, facts)
    if absent is None or not facts.alone:
        return ""
    number = None if label == "neutral" else rng.choice(facts.alone)
    kind = absent[0] if number is None else facts.of(number).kind
    ends = [words for words, true in form(facts, kind, number) if number is None or true == (label == "entailment")]
    return f"the {kind} is {rng.choice(ends)}" if ends else ""


def _colour(facts: Facts, kind: str, number: int | None) -> list[tuple[str, bool]]:
    wears = "wearing " if KINDS[kind].family == "person" else ""
    true = None if number is None else facts.of(number).colour
    return [(f"{wears}{colour}", colour == true) for colour in dict.fromkeys((*colours_of(kind), true)) if colour]


def _pose(facts: Facts, kind: str, number: int | None) -> list[tuple[str, bool]]:
    return [(pose, number is not None and pose == facts.of(number).pose) for pose in KINDS[kind].poses]


def _side(facts: Facts, _: str, number: int | None) -> list[tuple[str, bool]]:
    known = {(relation, b) for a, relation, b in facts.sides if a == number}
    others = [b for b in facts.alone if number is None or known & {("left of", b), ("right of", b)}]
    return [(f"{side} the {facts.of(b).kind}", (side, b) in known) for b in others for side in ("left of", "right of")]


def _holding(facts: Facts, kind: str, number: int | None) -> list[tuple[str, bool]]:
    held = {facts.of(b).kind for a, relation, b in facts.links if relation == "holding" and a == number}
    if KINDS[kind].family != "person" or (number is not None and not held):
        return []
    return [(f"holding {with_article(name)}", name in held) for name in belonging(facts.scene.place, "held")]


# A form returns all ends that a sentence about a kind can have, each with True if the sentence is true of object
# `number`. The number is None if the scene has no object of this kind.
Form = Callable[[Facts, str, int | None], list[tuple[str, bool]]]
# Form -> weight; colours are frequent, because a small model can learn them.
_FORMS: dict[Form, int] = {_colour: 6, _pose: 2, _side: 2, _holding: 1}
