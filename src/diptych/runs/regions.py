"""What a run should say about regions before it begins: more than the model reads, or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diptych.core import Record
from diptych.data.store.pixels import Pixels
from diptych.data.store.store import Store
from diptych.systems.recipe import Recipe


def pixels_of(recipe: Recipe) -> Pixels | None:
    """How pictures are read, where the model reads pixels."""
    if not recipe.model.reads_pixels:
        return None
    return Pixels(recipe.data.pixels_shorter, recipe.data.pixels_longer, recipe.data.pixels_colours)


def more_regions(store: Store, records: Sequence[int], most: int) -> Iterator[str]:
    """Whether pictures have more regions than a model reads."""
    over = [index for index in records if store.region_count(index) > most]
    if over:
        yield (
            f"{len(over)} of {len(records)} pictures have more than {most} regions: the best {most} are kept "
            f"(the first: {store.words(over[0]).key}, {store.region_count(over[0])})"
        )


def unseen(records: Sequence[Record]) -> Iterator[str]:
    """Whether pictures have no region at all."""
    bare = [record.key for record in records if record.regions is None or not len(record.regions)]
    if bare:
        yield f"{len(bare)} of {len(records)} pictures have no region (the first: {bare[0]}): nothing was seen of them"
