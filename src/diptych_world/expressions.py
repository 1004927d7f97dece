"""Referring expressions: they describe only one object of a scene, such as `the small dog under the tree`."""

from collections.abc import Callable, Sequence
from random import Random

from diptych.core import Expression
from diptych_world.facts import Facts
from diptych_world.grammar import SIZE_WORDS, is_person, noun, relate, wearing, with_article
from diptych_world.world import SIDE, Figure

MOST = 3  # maximum number of expressions per scene
_ENDS = 18  # `on the left` needs this distance in pixels between the leftmost object and the next


def expressions(rng: Random, facts: Facts) -> tuple[Expression, ...]:
    """Generate expressions for up to three objects. Objects of the most frequent kinds come first."""
    order = sorted(range(len(facts.figures)), key=lambda number: (-facts.counts[facts.of(number).kind], rng.random()))
    drawn: list[Expression] = []
    for number in order:
        words = single_out(rng, facts, number)
        if words is not None and len(drawn) < MOST:
            x1, y1, x2, y2 = (end / SIDE for end in facts.of(number).box)
            drawn.append(Expression(f"{facts.scene.key}/{len(drawn)}", words, (x1, y1, x2, y2)))
    return tuple(drawn)


def single_out(rng: Random, facts: Facts, number: int, without: str = "") -> str | None:
    """Generate a description that is true only of object `number`, or return None.

    `without`: a detail that must not be used.
    """
    details = [detail for name, detail in _DETAILS.items() if name != without]
    rng.shuffle(details)
    if len(facts.by_kind[facts.of(number).kind]) == 1:
        details = details[:1] if rng.random() < 0.4 else []  # may be redundant, as in people's expressions
    rivals = set(facts.by_kind[facts.of(number).kind])
    front, back = "", ""
    for detail in details:
        words = detail(rng, facts, number)
        if words is None or (len(rivals) > 1 and rivals <= words[2]) or (front and words[0]) or (back and words[1]):
            continue
        front, back, rivals = front or words[0], back or words[1], rivals & words[2]
        if len(rivals) == 1:
            break
    if len(rivals) > 1:
        return None
    return " ".join(word for word in ("the", front, noun(rng, facts.of(number).kind), back) if word)


def single_out_any(rng: Random, facts: Facts, numbers: Sequence[int], without: str) -> tuple[int, str] | None:
    """Choose a random object among `numbers`, and generate a description that is true only of it.

    Return None if there is no object or no description.
    """
    if not numbers:
        return None
    number = rng.choice(numbers)
    words = single_out(rng, facts, number, without)
    return None if words is None else (number, words)


# A detail function returns words before the noun, words after it, and all objects of this kind that the words describe.
DrawDetail = Callable[[Random, Facts, int], tuple[str, str, set[int]] | None]


def _alike(facts: Facts, number: int, test: Callable[[Figure], bool]) -> set[int]:
    return {other for other in facts.by_kind[facts.of(number).kind] if test(facts.of(other))}


def _colour(rng: Random, facts: Facts, number: int) -> tuple[str, str, set[int]]:
    figure = facts.of(number)
    alike = _alike(facts, number, lambda other: other.colour == figure.colour)
    return ("", wearing(rng, figure), alike) if is_person(figure) else (figure.colour, "", alike)


def _size(rng: Random, facts: Facts, number: int) -> tuple[str, str, set[int]] | None:
    """Return `small` or `big` as the detail. Return None for a medium object."""
    figure = facts.of(number)
    if figure.size not in SIZE_WORDS:
        return None
    alike = _alike(facts, number, lambda other: other.size == figure.size)
    return rng.choice(SIZE_WORDS[figure.size]), "", alike


def _pose(rng: Random, facts: Facts, number: int) -> tuple[str, str, set[int]] | None:
    figure = facts.of(number)
    if not figure.pose:
        return None
    alike = _alike(facts, number, lambda other: other.pose == figure.pose)
    return (figure.pose, "", alike) if rng.random() < 0.5 else ("", f"that is {figure.pose}", alike)


def _end(rng: Random, facts: Facts, number: int) -> tuple[str, str, set[int]] | None:
    """Return `on the left` or `on the right` if the object is the leftmost or rightmost of its kind, else None."""
    row = sorted(facts.by_kind[facts.of(number).kind], key=lambda other: facts.of(other).centre[0])
    if len(row) < 2 or number not in (row[0], row[-1]):
        return None
    side, gap = ("left", (0, 1)) if number == row[0] else ("right", (-2, -1))
    if facts.of(row[gap[1]]).centre[0] - facts.of(row[gap[0]]).centre[0] < _ENDS:
        return None
    return ("", rng.choice((f"on the {side}", f"farthest to the {side}")), {number})


def _link(rng: Random, facts: Facts, number: int) -> tuple[str, str, set[int]] | None:
    link = next((link for link in facts.links if link[0] == number), None)
    if link is None:
        return None
    _, relation, other = link
    kind = facts.of(other).kind
    alike = {a for a, name, b in facts.links if name == relation and facts.of(b).kind == kind}
    alike &= set(facts.by_kind[facts.of(number).kind])
    return "", f"{relate(rng, relation)} {with_article(kind)}", alike


_DETAILS: dict[str, DrawDetail] = {"colour": _colour, "size": _size, "pose": _pose, "side": _end, "link": _link}
