"""Generate questions with ten answers each, and true or false statements."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from diptych.core import Question, Statement
from diptych_world.claims import claim, decoy
from diptych_world.expressions import single_out, single_out_any
from diptych_world.facts import Facts
from diptych_world.grammar import WORDS, is_person, plural
from diptych_world.kinds import COLOURS, KINDS

ANSWERERS = 10
YES_NO, NUMBER, OTHER, STATEMENTS = 3, 2, 4, 4  # maximum number of questions or statements of each type per scene
_TRIES = 6


class TopicQuestion(NamedTuple):
    """A question, its true answer, and wrong answers that people may give."""

    topic: str  # a scene has at most one question on a topic
    question: str
    truth: str
    others: tuple[str, ...]


def questions(rng: Random, facts: Facts) -> tuple[Question, ...]:
    """Generate the questions of a scene. No text and no topic occurs twice, so that a question has only one answer."""
    drawn: dict[str, Question] = {}
    topics: set[str] = set()

    def add(kind: str, count: int, draw: Callable[[Random, Facts], TopicQuestion | None]) -> None:
        most = len(drawn) + count
        for _ in range(count * _TRIES):
            one = draw(rng, facts) if len(drawn) < most else None
            if one is not None and one.question not in drawn and one.topic not in topics:
                topics.add(one.topic)
                answers = _answers(rng, one.truth, one.others)
                drawn[one.question] = Question(f"{facts.scene.key}/{len(drawn)}", one.question, answers, kind)

    add("yes/no", YES_NO, _yes_no)
    add("number", NUMBER, _how_many)
    add("other", OTHER, _other)
    return tuple(drawn.values())


def statements(rng: Random, facts: Facts) -> tuple[Statement, ...]:
    """Generate the statements of a scene, without duplicates."""
    drawn: dict[str, Statement] = {}
    for _ in range(STATEMENTS * _TRIES):
        made = claim(rng, facts) if len(drawn) < STATEMENTS else None
        if made is not None and made.statement not in drawn:
            drawn[made.statement] = Statement(f"{facts.scene.key}/{len(drawn)}", made.statement, made.true)
    return tuple(drawn.values())


def _answers(rng: Random, truth: str, others: tuple[str, ...]) -> tuple[str, ...]:
    """Generate ten answers, of which at least seven are true."""
    astray = rng.choices((0, 1, 2, 3), (11, 6, 2, 1))[0] if others else 0
    answers = [truth] * (ANSWERERS - astray) + rng.choices(others or ("",), k=astray)
    rng.shuffle(answers)
    return tuple(answers)


def _yes_no(rng: Random, facts: Facts) -> TopicQuestion | None:
    made = claim(rng, facts)
    if made is None:
        return None
    truth, other = ("yes", "no") if made.true else ("no", "yes")
    return TopicQuestion(made.statement, made.question, truth, (other, "maybe", "not sure"))


def _how_many(rng: Random, facts: Facts) -> TopicQuestion | None:
    """Generate a counting question. The answer is chosen first, so that all numbers are equally frequent."""
    count = rng.choices((0, 1, 2, 3, 4), (1, 1, 5, 12, 20))[0]
    what = rng.choice(("kind", "kind", "colour", "family"))
    words = ""
    if what == "kind":
        absent = decoy(rng, facts) if count == 0 else None
        kinds = [absent[0]] if absent else [kind for kind, number in facts.counts.items() if number == count]
        kinds = [kind for kind in kinds if KINDS[kind].width <= 50]  # wider objects never occur in rows
        words = plural(rng.choice(kinds)) if kinds else ""
    elif what == "colour":
        objects = [figure.colour for figure in facts.figures if not is_person(figure)]
        colours = [colour for colour in COLOURS if objects.count(colour) == count]
        words = f"{rng.choice(colours)} things" if colours else ""
    else:
        family = rng.choice(("person", "animal", "vehicle"))
        if sum(KINDS[figure.kind].family == family for figure in facts.figures) == count:
            words = {"person": "people", "animal": "animals", "vehicle": "vehicles"}[family]
    if not words:
        return None
    ask = rng.choice((f"how many {words} are there", f"how many {words} do you see"))
    return TopicQuestion(words, ask, str(count), (str(abs(count - 1)), str(count + 1), "many"))


def _other(rng: Random, facts: Facts) -> TopicQuestion | None:
    maker = rng.choices((_colour, _linked, _neighbour, _pose, _place), (9, 5, 5, 2, 1))[0]
    made = maker(rng, facts)
    if made is None:
        return None
    topic, text, truth = made
    return TopicQuestion(
        topic, text, truth, tuple(WORDS["confused"].get(truth, KINDS[truth].synonyms if truth in KINDS else ()))
    )


def _colour(rng: Random, facts: Facts) -> tuple[str, str, str] | None:
    single = single_out_any(rng, facts, range(len(facts.figures)), without="colour")
    if single is None:
        return None
    number, words = single
    figure = facts.of(number)
    if is_person(figure):
        return f"colour {number}", f"what colour is {words} wearing", figure.colour
    question = rng.choice((f"what colour is {words}", f"which colour does {words} have"))
    return f"colour {number}", question, figure.colour


def _linked(rng: Random, facts: Facts) -> tuple[str, str, str] | None:
    """Generate a question about a relation: what is held, or what is on or under an object."""
    if not facts.links:
        return None
    a, relation, b = rng.choice(facts.links)
    holding = relation == "holding"
    words = single_out(rng, facts, a if holding else b, without="link")
    if words is None:
        return None
    if holding:
        return f"held {a}", f"what is {words} holding", facts.of(b).kind
    return f"{relation} {b}", f"what is {relation} {words}", facts.of(a).kind


def _neighbour(rng: Random, facts: Facts) -> tuple[str, str, str] | None:
    """Generate a question about what is left or right of an object, if exactly one object is."""
    if not facts.sides:
        return None
    _, relation, b = rng.choice(facts.sides)
    there = {a for a, name, other in facts.sides if (name, other) == (relation, b)}
    middle = facts.of(b).centre[0]
    unclear = [f for f in facts.figures if f is not facts.of(b) and (f.centre[0] < middle) == (relation == "left of")]
    words = single_out(rng, facts, b)
    if len(there) != 1 or len(unclear) != 1 or words is None:
        return None
    return f"{relation} {b}", f"what is to the {relation} {words}", facts.of(there.pop()).kind


def _pose(rng: Random, facts: Facts) -> tuple[str, str, str] | None:
    single = single_out_any(rng, facts, facts.posed, without="pose")
    return None if single is None else (f"pose {single[0]}", f"what is {single[1]} doing", facts.of(single[0]).pose)


def _place(rng: Random, facts: Facts) -> tuple[str, str, str]:
    question = rng.choice(("where is this", "what place is this", "where was this picture made"))
    return "place", question, facts.scene.place
