"""What a run should say about regions before it begins: more than the model reads, and words that no region shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from diptych.core import IGNORE, Record
from diptych.loading.pixels import Pixels
from diptych.loading.store import Store
from diptych.models import VLBertConfig
from diptych.objectives import region_of
from diptych.recipes.recipe import Recipe
from diptych.tasks.referring import can_be_found

LOOKED_AT = 1000  # records whose regions are read to count; more would keep a large run waiting


def best_regions(record: Record, most: int) -> Record:
    """The record with the best of its regions."""
    return record if record.regions is None else replace(record, regions=record.regions.first(most))


def pixels_of(recipe: Recipe) -> Pixels | None:
    """How pictures are read, where the model looks at pixels."""
    if not isinstance(recipe.model, VLBertConfig) or recipe.model.network is None:
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


def pointing_nowhere(store: Store, records: Sequence[int], task: str, most: int) -> Iterator[str]:
    """Expressions that no region fits, and tags of objects that no region shows."""
    if task not in ("referring", "vcr"):
        return
    looked = [best_regions(store.record(index), most) for index in records[:LOOKED_AT]]
    first = "" if len(looked) == len(records) else f" (of the first {len(looked):,} pictures)"
    if task == "referring":
        asked = [(record, e) for record in looked for e in record.expressions]
        lost = [e.key for record, e in asked if not can_be_found(e, record.regions)]
        if lost:
            yield (
                f"{len(lost)} of {len(asked)} expressions{first} are left out: no region overlaps the true box by half "
                f"(the first: {lost[0]})"
            )
        return
    named = [(record, c.key, k) for record in looked for c in record.choices for k in c.named]
    lost = [key for record, key, k in named if not _shown(record, k)]
    if lost:
        yield (
            f"{len(lost)} of {len(named)} objects that questions name{first} go without a region: none shows them "
            f"(the first: {lost[0]})"
        )


def _shown(record: Record, thing: int) -> bool:
    if record.regions is None or thing >= len(record.objects):
        return False
    return region_of(thing, record.objects[thing].box, record.regions) != IGNORE
