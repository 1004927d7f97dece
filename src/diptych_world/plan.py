"""Choose the contents of a scene before its layout: small groups of objects that belong together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from diptych_world.kinds import HAND, KINDS, RARE_COLOURS, SIZES, Kind, colours_of, sitting_drop
from diptych_world.world import Thing


@dataclass(frozen=True)
class PlacePart(Thing):
    """An object of a group. `x`, `y`: the middle of its feet, in pixels relative to the middle of the group's feet."""

    x: float = 0.0
    y: float = 0.0


@dataclass(frozen=True)
class Group:
    """Objects that are placed together, and the relations between them, as indices into `parts`."""

    parts: tuple[PlacePart, ...]  # in painter's order, the farthest first
    relations: tuple[tuple[int, str, int], ...] = ()
    level: str = "ground"


def extent(part: PlacePart) -> tuple[float, float]:
    """Return the width and height of an object in pixels."""
    kind, scale = KINDS[part.kind], SIZES[part.size]
    return kind.width * scale, kind.height * scale


def plan(rng: Random, place: str, most: int, rare: bool = False) -> Group:
    """Choose a random group of at most `most` objects that fit a place.

    `rare`: give one object the rare colour of its kind.
    """
    makers: tuple[Callable[[Random, str], Group], ...] = (_single, _row, _holding, _on, _under)
    weights = (30, 24 if most > 2 else 12, 18, 14, 14)
    maker = rng.choices(makers, weights)[0] if most > 1 else _single
    group = _row(rng, place, most) if maker is _row else maker(rng, place)
    if rare:
        chosen = rng.randrange(len(group.parts))
        part = replace(group.parts[chosen], colour=RARE_COLOURS[group.parts[chosen].kind])
        group = replace(group, parts=(*group.parts[:chosen], part, *group.parts[chosen + 1 :]))
    return group


_ROLES: Mapping[str, Callable[[Kind], object]] = {  # role in a group -> test for kinds that can have it
    "single": bool,
    "row": lambda kind: kind.width <= 50,
    "held": lambda kind: kind.grip,
    "carrier": lambda kind: kind.surface,
    "carried": lambda kind: kind.small_enough,
    "shelter": lambda kind: kind.shelter,
}


@cache
def belonging(place: str, role: str) -> tuple[str, ...]:
    """Return the kinds in a place that can have a role in a group. `role`: a key of `_ROLES`, such as "held"."""
    return tuple(kind.name for kind in KINDS.values() if place in kind.places and _ROLES[role](kind))


def _part(rng: Random, name: str, size: str | None = None) -> PlacePart:
    kind = KINDS[name]
    colour, size = rng.choice(colours_of(name)), size or rng.choice(tuple(SIZES))
    pose = rng.choice(kind.poses) if kind.poses else ""
    return PlacePart(name, colour, size, pose, rng.randrange(kind.looks), mirrored=rng.random() < 0.5, holding=False)


def _level(part: PlacePart) -> str:
    return "sky" if part.pose == "flying" else KINDS[part.kind].level


def _single(rng: Random, place: str) -> Group:
    part = _part(rng, rng.choice(belonging(place, "single")))
    return Group((part,), level=_level(part))


def _row(rng: Random, place: str, most: int = 2) -> Group:
    """Choose two to four objects of a random kind, side by side, for counting and for referring expressions."""
    name = rng.choice(belonging(place, "row"))
    first = _part(rng, name)
    alike = rng.random() < 0.35  # True: all objects of the row have the same colour
    parts, x = [first], 0.0
    for _ in range(rng.randint(min(most, rng.randint(2, 3)), min(4, most)) - 1):
        other = _part(rng, name)
        other = replace(other, colour=first.colour if alike else other.colour)
        if _level(other) != _level(first):  # keeps a flying bird out of a row on the ground
            other = replace(other, pose=first.pose)
        x += (extent(parts[-1])[0] + extent(other)[0]) / 2 + rng.randint(1, 7)
        parts.append(replace(other, x=x, y=float(rng.randint(-7, 7))))
    middle = x / 2
    parts = sorted((replace(part, x=part.x - middle) for part in parts), key=lambda part: part.y)
    return Group(tuple(parts), level=_level(first))


def _holding(rng: Random, place: str) -> Group:
    name, size = rng.choice(("man", "woman", "boy", "girl")), rng.choice(("medium", "big"))
    person = replace(_part(rng, name, size), holding=True)
    if person.pose == "waving":
        person = replace(person, pose="standing")
    held = _part(rng, rng.choice(belonging(place, "held")), rng.choice(("small", "medium")))
    kind, scale = KINDS[held.kind], SIZES[held.size]
    width, height = extent(person)
    assert kind.grip is not None
    sideways = -1 if person.mirrored else 1
    hand_x = (HAND[0] * SIZES[person.size] - width / 2) * sideways
    # The neck and hands of a sitting person are lower in the drawing.
    lower = sitting_drop(KINDS[person.kind].height) * SIZES[person.size] if person.pose == "sitting" else 0.0
    hand_y = HAND[1] * SIZES[person.size] - height + lower
    grip_x = (kind.grip[0] - kind.width / 2) * scale * sideways
    y = hand_y + (kind.height - kind.grip[1]) * scale
    held = replace(held, mirrored=person.mirrored, x=hand_x - grip_x, y=y)
    return Group((person, held), ((0, "holding", 1),))


def _place_within(rng: Random, holder: PlacePart, span: tuple[float, float, float], other: PlacePart) -> float:
    """Choose a random x for `other`, on or under `holder`.

    `span`: left, right and height of the space, in the holder's pixels.
    """
    left, right, _ = (value * SIZES[holder.size] for value in span)
    slack = max(0.0, right - left - extent(other)[0]) / 2
    middle = (left + right) / 2 - extent(holder)[0] / 2
    return (-middle if holder.mirrored else middle) + rng.uniform(-slack, slack)


def _on(rng: Random, place: str) -> Group:
    below = _part(rng, rng.choice(belonging(place, "carrier")), rng.choice(("medium", "big")))
    surface = KINDS[below.kind].surface
    assert surface is not None
    above = _part(rng, rng.choice([name for name in belonging(place, "carried") if name != below.kind]), "small")
    if above.pose in ("flying", "running", "jumping"):
        above = replace(above, pose=KINDS[above.kind].poses[0])
    x = _place_within(rng, below, surface, above)
    return Group((below, replace(above, x=x, y=surface[2] * SIZES[below.size] - extent(below)[1])), ((1, "on", 0),))


def _under(rng: Random, place: str) -> Group:
    above = _part(rng, rng.choice(belonging(place, "shelter")), "big")
    shelter = KINDS[above.kind].shelter
    assert shelter is not None
    most = shelter[2] * SIZES[above.size] + 1
    fits = [name for name in belonging(place, "carried") if KINDS[name].height * SIZES["small"] <= most]
    below = _part(rng, rng.choice(fits), "small")
    if below.pose == "flying":
        below = replace(below, pose="standing")
    x = _place_within(rng, above, shelter, below)
    if above.kind in ("tree", "umbrella"):
        return Group((above, replace(below, x=x, y=2.0)), ((1, "under", 0),))
    return Group((replace(below, x=x, y=-1.0), above), ((0, "under", 1),))
