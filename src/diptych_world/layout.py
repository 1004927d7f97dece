"""Lay out a scene: groups of objects are placed one by one, so that they hide little of each other."""

from dataclasses import fields
from functools import lru_cache
from random import Random

from diptych.runtime.errors import DataError, nearest
from diptych_world.kinds import HORIZON, PLACES, is_rare
from diptych_world.plan import Group, PlacePart, extent, plan
from diptych_world.truth import Relations, relations_between, seen
from diptych_world.world import SIDE, SKIES, SPLITS, Figure, Scene, Thing

VARIANTS = 12  # backgrounds per place, sky and split
LEAST_VISIBLE = 0.35  # objects with a smaller visible share are removed
_TRIES = 14

Box = tuple[float, float, float, float]


@lru_cache(maxsize=4096)
def scene(seed: int, split: str, index: int) -> Scene:
    """Return scene `index` of a split. It depends only on the arguments. Raises DataError for an unknown split."""
    if split not in SPLITS:
        raise DataError(f"Storybook has no split `{split}`; {nearest(split, SPLITS)}")
    rng = Random(f"storybook {seed} {split} {index}")
    place = rng.choice(PLACES)
    time, weather = rng.choices(SKIES, (10, 3, 3, 4, 2, 2))[0]
    variant = rng.randrange(VARIANTS) * len(SPLITS) + SPLITS.index(split)
    figures: tuple[Figure, ...] = ()
    while len(figures) < 2:
        wanted = rng.choices(range(2, 9), (2, 4, 6, 6, 5, 3, 2))[0]
        figures, links = _fill(rng, place, wanted, rare=split == "test_rare")
        figures, links = seen(figures, links, LEAST_VISIBLE)
        if split == "test_rare" and not any(is_rare(figure.kind, figure.colour) for figure in figures):
            figures = ()
    relations = relations_between(figures, links)
    return Scene(seed, split, index, place, time, weather, variant, figures, relations)


def _fill(rng: Random, place: str, wanted: int, rare: bool) -> tuple[tuple[Figure, ...], Relations]:
    """Choose and place about `wanted` random figures.

    Return them in painter's order, with the relations inside their groups.
    """
    taken: list[Box] = []
    placed: list[tuple[float, list[Figure], Group]] = []
    count = 0
    for _ in range(2 * wanted):
        if count >= wanted:
            break
        group = plan(rng, place, wanted - count, rare=rare and not placed)
        spot = _spot(rng, group, place, taken)
        if spot is None:
            continue
        x, y = spot
        taken.append(_bounds(group, x, y))
        depth = y - 200 if group.level != "ground" else y  # draw objects in sky and sea behind the others
        placed.append((depth, [_figure(part, group, x, y) for part in group.parts], group))
        count += len(group.parts)
    placed.sort(key=lambda item: item[0])
    figures: list[Figure] = []
    links: list[tuple[int, str, int]] = []
    for _, parts, group in placed:
        links += [(len(figures) + a, relation, len(figures) + b) for a, relation, b in group.relations]
        figures += parts
    return tuple(figures), tuple(links)


def _bounds(group: Group, x: float, y: float) -> Box:
    """Return the box of a group that is placed with its feet at (x, y)."""
    boxes = []
    for part in group.parts:
        width, height = extent(part)
        boxes.append((x + part.x - width / 2, y + part.y - height, x + part.x + width / 2, y + part.y))
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)


def _spot(rng: Random, group: Group, place: str, taken: list[Box]) -> tuple[float, float] | None:
    """Choose a random position for the feet of a group. Return None if the picture is too full."""
    left, top, right, bottom = _bounds(group, 0, 0)
    horizon = HORIZON[place]
    if group.level == "ground":
        low, high = max(horizon + 7.0, 2 - top), SIDE - 3 - bottom
    elif group.level == "water":
        low, high = horizon - 14.0, horizon - 4.0
    else:
        low, high = 3 - top, min(horizon + 4.0, SIDE - 30.0)
    if 2 - left > SIDE - 2 - right or low > high:
        return None
    for _ in range(_TRIES):
        x, y = rng.uniform(2 - left, SIDE - 2 - right), rng.uniform(low, high)
        box = (x + left, y + top, x + right, y + bottom)
        if all(_hidden(box, other) <= 0.22 for other in taken):
            return x, y
    return None


def _hidden(a: Box, b: Box) -> float:
    """Return the area of the overlap of two boxes, as a share of the smaller box."""
    across = min(a[2], b[2]) - max(a[0], b[0])
    down = min(a[3], b[3]) - max(a[1], b[1])
    if across <= 0 or down <= 0:
        return 0.0
    return across * down / min((a[2] - a[0]) * (a[3] - a[1]), (b[2] - b[0]) * (b[3] - b[1]))


def _figure(part: PlacePart, group: Group, x: float, y: float) -> Figure:
    width, height = extent(part)
    left, top = round(x + part.x - width / 2), round(y + part.y - height)
    known = {one.name: getattr(part, one.name) for one in fields(Thing)}
    grounded = group.level == "ground" and part.y > -8
    return Figure(left=left, top=top, grounded=grounded, **known)
