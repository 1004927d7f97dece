"""The drawn world: the same on every machine, true to its pixels, its splits apart."""

import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.runtime.errors import DataError
from diptych_world.book import Storybook, record
from diptych_world.kinds import COLOURS, KINDS, SIZES, colours_of, is_rare
from diptych_world.layout import scene
from diptych_world.render import render
from diptych_world.sprites import sprite
from diptych_world.world import SIDE, SPLITS, Figure, Scene

numbers = st.integers(0, 10**6)
splits = st.sampled_from(SPLITS)


def figure(kind: str, colour: str = "red", pose: str = "", holding: bool = False) -> Figure:
    return Figure(kind, colour, "medium", pose, 0, False, holding, True, 10, 10)


@pytest.mark.parametrize(
    ("split", "pixels", "words"),
    [("train", "d5539d46c23ca382", "3a7d2af4fe16267e"), ("web", "91e4ceaec0d55c7c", "40f69830a069c372"),
     ("test_rare", "88feee12556a3e20", "9e904d4f73ee3c29")],
)  # fmt: skip
def test_a_seed_is_the_same_everywhere(split: str, pixels: str, words: str) -> None:
    """Changed on purpose? Then raise `files.WORLD` and write the new sums here."""
    book = Storybook(7, split, 30)
    drawn, said = hashlib.sha256(), hashlib.sha256()
    for one in book:
        drawn.update(render(one).tobytes())
        said.update(repr(record(one)).encode())
    assert (drawn.hexdigest()[:16], said.hexdigest()[:16]) == (pixels, words)


def test_it_holds_what_was_promised() -> None:
    assert len(KINDS) >= 24
    assert len(COLOURS) == 8
    assert len(SIZES) == 3
    scenes = Storybook(0, "train", 300)[:]
    assert {one.place for one in scenes} == {"park", "beach", "street", "room"}
    assert {one.time for one in scenes} == {"day", "night"}
    assert {one.weather for one in scenes} == {"clear", "rain", "snow"}
    assert {name for one in scenes for _, name, _ in one.relations} == {
        *("left of", "right of", "above", "on", "under", "holding", "near")
    }
    assert {thing.kind for one in scenes for thing in one.figures} == set(KINDS)
    sizes = Counter(len(one.figures) for one in scenes)
    assert min(sizes) == 2
    assert max(sizes) == 8


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_kind_shows_its_colour_and_pose(kind) -> None:  # type: ignore[no-untyped-def]
    for pose in kind.poses or ("",):
        drawings = {sprite(figure(kind.name, colour, pose)).pixels.tobytes() for colour in COLOURS}
        assert len(drawings) == len(COLOURS)
    assert len({sprite(figure(kind.name, "red", pose)).pixels.tobytes() for pose in kind.poses}) == len(kind.poses)


def test_drawings_blend_without_a_dark_rim() -> None:
    """Colours come multiplied by their opacity: none exceeds it."""
    drawn = sprite(figure("balloon"))
    assert (drawn.pixels <= 255 - drawn.clear).all()


@settings(max_examples=40, deadline=None)
@given(numbers, splits, numbers)
def test_truth_is_within_bounds(seed: int, split: str, index: int) -> None:
    one = scene(seed, split, index)
    assert 2 <= len(one.figures) <= 8
    for thing in one.figures:
        x1, y1, x2, y2 = thing.box
        assert 0 <= x1 < x2 <= SIDE
        assert 0 <= y1 < y2 <= SIDE
        assert 0.35 <= thing.visible <= 1
    for subject, relation, other in one.relations:
        assert subject != other
        gap = one.figures[other].centre[0] - one.figures[subject].centre[0]
        assert relation != "left of" or gap > 0
        assert relation != "right of" or gap < 0


def test_a_covered_thing_is_visible_by_its_share() -> None:
    """The front half of a box hides what is behind it, to the pixel."""
    from diptych_world.truth import seen

    back = figure("box", "red")
    mask = sprite(back).mask
    front = Figure("box", "blue", "medium", "", 0, False, False, True, back.left + 14, back.top)
    (behind, before), _ = seen((back, front), (), 0.0)
    hidden = (mask[:, 14:] & sprite(front).mask[:, : mask.shape[1] - 14]).sum()
    assert before.visible == 1
    assert behind.visible == pytest.approx(1 - hidden / mask.sum(), abs=1e-4)
    assert behind.box[2] < before.box[0] + 6 < back.right  # the box is that of the visible part


@pytest.mark.slow
def test_no_scene_is_in_two_splits() -> None:
    """Backgrounds differ by split, whatever the seed: a picture cannot be in two."""
    variants = {split: {one.variant for one in Storybook(3, split, 200)} for split in SPLITS}
    assert sum(map(len, variants.values())) == len(set().union(*variants.values()))
    scenes = [render(one).tobytes() for split in SPLITS for one in Storybook(3, split, 60)]
    assert len(set(scenes)) == len(scenes)


def has_rare(one: Scene) -> bool:
    return any(is_rare(thing.kind, thing.colour) for thing in one.figures)


@pytest.mark.slow
def test_rare_combinations_are_only_in_their_split() -> None:
    assert all(sum(is_rare(kind, colour) for colour in COLOURS) == 1 for kind in KINDS)
    assert all(len(colours_of(kind)) == 7 for kind in KINDS)
    assert all(has_rare(one) for one in Storybook(0, "test_rare", 200))
    assert not any(has_rare(one) for split in ("web", "train", "val", "test") for one in Storybook(0, split, 200))


def test_a_storybook_is_a_sequence() -> None:
    book = Storybook(1, "val", 5)
    assert len(book) == len(list(book)) == 5
    assert book[-1] == book[4] == scene(1, "val", 4)
    assert book[1:3] == [book[1], book[2]]
    with pytest.raises(IndexError, match="of a Storybook of 5"):
        book[5]
    with pytest.raises(DataError, match=r"Storybook has no split `tset`.*did you mean test"):
        scene(1, "tset", 0)


def test_a_zoomed_picture_shows_the_same() -> None:
    one = scene(0, "train", 4)
    small, large = render(one).astype(float), render(one, zoom=2).astype(float)
    assert large.shape == (2 * SIDE, 2 * SIDE, 3)
    assert np.abs(large.reshape(SIDE, 2, SIDE, 2, 3).mean((1, 3)) - small).mean() < 6
