"""Questions with ten answers, and true or false statements."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from diptych.core import Question, Statement
from diptych.storybook.claims import claim, decoy
from diptych.storybook.expressions import single_out
from diptych.storybook.facts import Facts
from diptych.storybook.grammar import is_person, plural
from diptych.storybook.kinds import COLOURS, KINDS

ANSWERERS = 10
YES_NO, NUMBER, OTHER, STATEMENTS = 3, 2, 4, 4  # a scene, where it allows so many
_TRIES = 6
_CONFUSED = {  # what people answer who look carelessly
    "red": ("orange", "pink"), "orange": ("yellow", "red"), "yellow": ("orange",), "green": ("blue",),
    "blue": ("purple", "green"), "purple": ("blue", "pink"), "pink": ("red", "purple"), "brown": ("orange", "red"),
    "park": ("grass", "garden"), "beach": ("sea", "sand"), "street": ("city", "road"), "room": ("house", "inside"),
    "standing": ("waiting",), "sitting": ("resting",), "walking": ("running",), "waving": ("standing",),
    "sleeping": ("resting",), "running": ("walking",), "flying": ("standing",), "jumping": ("running",),
    "man": ("person",), "woman": ("person",), "boy": ("child",), "girl": ("child",),
}  # fmt: skip


class TopicQuestion(NamedTuple):
    topic: str  # asked but once in a scene, in whatever words
    question: str
    truth: str
    others: tuple[str, ...]  # what else people say


def questions(rng: Random, facts: Facts) -> tuple[Question, ...]:
    """No question twice in a scene: the same words must have one answer."""
    found: dict[str, Question] = {}
    topics: set[str] = set()

    def add(kind: str, wanted: int, ask: Callable[[Random, Facts], TopicQuestion | None]) -> None:
        most = len(found) + wanted
        for _ in range(wanted * _TRIES):
            asked = ask(rng, facts) if len(found) < most else None
            if asked is not None and asked.question not in found and asked.topic not in topics:
                topic, text, truth, others = asked
                topics.add(topic)
                found[text] = Question(f"{facts.scene.key}/{len(found)}", text, _answered(rng, truth, others), kind)

    add("yes/no", YES_NO, _yes_no)
    add("number", NUMBER, _how_many)
    add("other", OTHER, _other)
    return tuple(found.values())


def statements(rng: Random, facts: Facts) -> tuple[Statement, ...]:
    found: dict[str, Statement] = {}
    for _ in range(STATEMENTS * _TRIES):
        made = claim(rng, facts) if len(found) < STATEMENTS else None
        if made is not None and made.statement not in found:
            key = f"{facts.scene.key}/{len(found)}"
            found[made.statement] = Statement(key, made.statement, made.true)
    return tuple(found.values())


def _answered(rng: Random, truth: str, others: tuple[str, ...]) -> tuple[str, ...]:
    """Ten answers: most people say the truth, up to three do not."""
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
    """The answer is drawn first, so that no number is the safe one."""
    wanted = rng.choices((0, 1, 2, 3, 4), (1, 1, 5, 12, 20))[0]
    what = rng.choice(("kind", "kind", "colour", "family"))
    words, count = "", 0
    if what == "kind":
        if wanted == 0:
            absent = decoy(rng, facts)
            kinds = [absent[0]] if absent else []
        else:
            kinds = [kind for kind, count in facts.counts.items() if count == wanted]
        kinds = [kind for kind in kinds if KINDS[kind].width <= 50]  # the others never come in rows
        words, count = (plural(rng.choice(kinds)), wanted) if kinds else ("", 0)
    elif what == "colour":
        objects = [figure.colour for figure in facts.figures if not is_person(figure)]
        colours = [colour for colour in COLOURS if objects.count(colour) == wanted]
        words, count = (f"{rng.choice(colours)} things", wanted) if colours else ("", 0)
    else:
        family = rng.choice(("person", "animal", "vehicle"))
        count = sum(KINDS[figure.kind].family == family for figure in facts.figures)
        words = {"person": "people", "animal": "animals", "vehicle": "vehicles"}[family] if count == wanted else ""
    if not words:
        return None
    near = (str(abs(count - 1)), str(count + 1), "many")
    ask = rng.choice((f"how many {words} are there", f"how many {words} do you see"))
    return TopicQuestion(words, ask, str(count), near)


def _other(rng: Random, facts: Facts) -> TopicQuestion | None:
    maker = rng.choices((_colour, _linked, _beside, _pose, _place), (9, 5, 5, 2, 1))[0]
    asked = maker(rng, facts)
    if asked is None:
        return None
    topic, text, truth = asked
    return TopicQuestion(topic, text, truth, _CONFUSED.get(truth, KINDS[truth].synonyms if truth in KINDS else ()))


def _colour(rng: Random, facts: Facts) -> tuple[str, str, str] | None:
    number = rng.randrange(len(facts.figures))
    figure, words = facts.of(number), single_out(rng, facts, number, without="colour")
    if words is None:
        return None
    if is_person(figure):
        return f"colour {number}", f"what colour is {words} wearing", figure.colour
    question = rng.choice((f"what colour is {words}", f"which colour does {words} have"))
    return f"colour {number}", question, figure.colour


def _linked(rng: Random, facts: Facts) -> tuple[str, str, str] | None:
    """What is held, on or under something."""
    if not facts.links:
        return None
    a, relation, b = rng.choice(facts.links)
    if relation == "holding":
        words = single_out(rng, facts, a, without="link")
        return None if words is None else (f"held {a}", f"what is {words} holding", facts.of(b).kind)
    words = single_out(rng, facts, b, without="link")
    return None if words is None else (f"{relation} {b}", f"what is {relation} {words}", facts.of(a).kind)


def _beside(rng: Random, facts: Facts) -> tuple[str, str, str] | None:
    """What is left or right of something, where only one thing is."""
    if not facts.sides:
        return None
    _, relation, b = rng.choice(facts.sides)
    there = {a for a, name, other in facts.sides if (name, other) == (relation, b)}
    middle = facts.of(b).centre[0]
    unclear = [f for f in facts.figures if f is not facts.of(b) and (f.centre[0] < middle) == (relation == "left of")]
    words = single_out(rng, facts, b)
    if len(there) != 1 or len(unclear) != 1 or words is None:
        return None
    (only,) = there
    return f"{relation} {b}", f"what is to the {relation} {words}", facts.of(only).kind


def _pose(rng: Random, facts: Facts) -> tuple[str, str, str] | None:
    posed = [number for number in range(len(facts.figures)) if facts.of(number).pose]
    if not posed:
        return None
    number = rng.choice(posed)
    words = single_out(rng, facts, number, without="pose")
    return None if words is None else (f"pose {number}", f"what is {words} doing", facts.of(number).pose)


def _place(rng: Random, facts: Facts) -> tuple[str, str, str]:
    return (
        "place",
        rng.choice(("where is this", "what place is this", "where was this picture made")),
        facts.scene.place,
    )
