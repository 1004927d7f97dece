"""What a scene holds, before where: small groups of objects that belong together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from diptych.storybook.kinds import HAND, KINDS, SIZES, Kind, colours_of, rare_colour, sitting_drop


@dataclass(frozen=True)
class PlacePart:
    """One thing of a group; `x` and `y` are its feet's middle, in pixels from the group's own."""

    kind: str
    colour: str
    size: str
    pose: str
    look: int
    mirrored: bool
    x: float = 0.0
    y: float = 0.0
    holding: bool = False


@dataclass(frozen=True)
class Group:
    parts: tuple[PlacePart, ...]  # in painter's order
    relations: tuple[tuple[int, str, int], ...] = ()
    level: str = "ground"


def extent(part: PlacePart) -> tuple[float, float]:
    """Width and height in pixels."""
    kind, scale = KINDS[part.kind], SIZES[part.size]
    return kind.width * scale, kind.height * scale


def plan(rng: Random, place: str, most: int, rare: bool = False) -> Group:
    """One group of at most `most` objects of this place; with `rare`, one of them has its kind's rare colour."""
    makers: tuple[Callable[[Random, str], Group], ...] = (_single, _row, _holding, _on, _under)
    weights = (30, 24 if most > 2 else 12, 18, 14, 14)
    maker = rng.choices(makers, weights)[0] if most > 1 else _single
    group = _row(rng, place, most) if maker is _row else maker(rng, place)
    if rare:
        chosen = rng.randrange(len(group.parts))
        part = replace(group.parts[chosen], colour=rare_colour(group.parts[chosen].kind))
        group = replace(group, parts=(*group.parts[:chosen], part, *group.parts[chosen + 1 :]))
    return group


_ROLES: Mapping[str, Callable[[Kind], object]] = {
    "single": bool,
    "row": lambda kind: kind.width <= 50,
    "held": lambda kind: kind.grip,
    "carrier": lambda kind: kind.surface,
    "carried": lambda kind: kind.small_enough,
    "shelter": lambda kind: kind.shelter,
}


@cache
def _belongs(place: str, role: str) -> tuple[str, ...]:
    """The kinds of this place that can play a part in a group."""
    return tuple(kind.name for kind in KINDS.values() if place in kind.places and _ROLES[role](kind))


def _part(rng: Random, name: str, size: str | None = None) -> PlacePart:
    kind = KINDS[name]
    return PlacePart(
        kind=name,
        colour=rng.choice(colours_of(name)),
        size=size or rng.choice(("small", "medium", "big")),
        pose=rng.choice(kind.poses) if kind.poses else "",
        look=rng.randrange(kind.looks),
        mirrored=rng.random() < 0.5,
    )


def _level(part: PlacePart) -> str:
    return "sky" if part.pose == "flying" else KINDS[part.kind].level


def _single(rng: Random, place: str) -> Group:
    part = _part(rng, rng.choice(_belongs(place, "single")))
    return Group((part,), level=_level(part))


def _row(rng: Random, place: str, most: int = 2) -> Group:
    """Two to four of a kind, side by side: what makes counting and singling out worth asking."""
    name = rng.choice(_belongs(place, "row"))
    first = _part(rng, name)
    alike = rng.random() < 0.35  # all of one colour, or each of its own
    parts, x = [first], 0.0
    for _ in range(rng.randint(min(most, rng.randint(2, 3)), min(4, most)) - 1):
        other = _part(rng, name)
        other = replace(other, colour=first.colour if alike else other.colour)
        if _level(other) != _level(first):  # a flying bird among standing ones would hang in the air
            other = replace(other, pose=first.pose)
        x += (extent(parts[-1])[0] + extent(other)[0]) / 2 + rng.randint(1, 7)
        parts.append(replace(other, x=x, y=float(rng.randint(-7, 7))))
    middle = x / 2
    parts = sorted((replace(part, x=part.x - middle) for part in parts), key=lambda part: part.y)
    return Group(tuple(parts), level=_level(first))


def _holding(rng: Random, place: str) -> Group:
    person = replace(
        _part(rng, rng.choice(("man", "woman", "boy", "girl")), rng.choice(("medium", "big"))), holding=True
    )
    if person.pose == "waving":
        person = replace(person, pose="standing")
    held = _part(rng, rng.choice(_belongs(place, "held")), rng.choice(("small", "medium")))
    kind, scale = KINDS[held.kind], SIZES[held.size]
    width, height = extent(person)
    assert kind.grip is not None
    hand_x = (HAND[0] * SIZES[person.size] - width / 2) * (-1 if person.mirrored else 1)
    hand_y = HAND[1] * SIZES[person.size] - height + _crouch(person)
    held = replace(held, mirrored=person.mirrored)
    grip_x = (kind.grip[0] - kind.width / 2) * scale * (-1 if held.mirrored else 1)
    held = replace(held, x=hand_x - grip_x, y=hand_y + (kind.height - kind.grip[1]) * scale)
    return Group((person, held), ((0, "holding", 1),))


def _crouch(person: PlacePart) -> float:
    """How much lower the hand is: a sitting person's drawing starts lower in its frame."""
    return sitting_drop(KINDS[person.kind].height) * SIZES[person.size] if person.pose == "sitting" else 0.0


def _on(rng: Random, place: str) -> Group:
    below = _part(rng, rng.choice(_belongs(place, "carrier")), rng.choice(("medium", "big")))
    surface, scale = KINDS[below.kind].surface, SIZES[below.size]
    assert surface is not None
    left, right, height = (value * scale for value in surface)
    room = right - left
    above = _part(rng, rng.choice([name for name in _belongs(place, "carried") if name != below.kind]), "small")
    if above.pose in ("flying", "running", "jumping"):
        above = replace(above, pose=KINDS[above.kind].poses[0])
    slack = max(0.0, room - extent(above)[0]) / 2
    middle = (left + right) / 2 - extent(below)[0] / 2
    x = (-middle if below.mirrored else middle) + rng.uniform(-slack, slack)
    return Group((below, replace(above, x=x, y=height - extent(below)[1])), ((1, "on", 0),))


def _under(rng: Random, place: str) -> Group:
    above = _part(rng, rng.choice(_belongs(place, "shelter")), "big")
    shelter, scale = KINDS[above.kind].shelter, SIZES[above.size]
    assert shelter is not None
    left, right, height = (value * scale for value in shelter)
    fits = [name for name in _belongs(place, "carried") if KINDS[name].height * SIZES["small"] <= height + 1]
    below = _part(rng, rng.choice(fits), "small")
    if below.pose == "flying":
        below = replace(below, pose="standing")
    slack = max(0.0, right - left - extent(below)[0]) / 2
    middle = (left + right) / 2 - extent(above)[0] / 2
    x = (-middle if above.mirrored else middle) + rng.uniform(-slack, slack)
    if above.kind in ("tree", "umbrella"):
        return Group((above, replace(below, x=x, y=2.0)), ((1, "under", 0),))
    return Group((replace(below, x=x, y=-1.0), above), ((0, "under", 1),))
