"""Candidate texts of one image that are scored against each other, and the regions that their words name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from diptych.core import BIDIRECTIONAL, IGNORE, Regions, Sample

SAME = 0.99  # IoU above which a region is the object itself, up to rounding
SHOWN = 0.3  # IoU above which a detected region shows an object; the papers give no number


@dataclass(frozen=True)
class NamedThing:
    """A word that names an object: its position in the text, the object's index and true box."""

    place: int
    thing: int
    box: tuple[float, float, float, float]


@dataclass(frozen=True)
class Candidate:
    """One of several texts about an image, with the objects that it names."""

    text: Int[Tensor, "T"]
    named: tuple[NamedThing, ...] = ()


def split_candidates(sample: Sample) -> list[Sample]:
    """Make a sample of each of `truth["candidates"]`, all in one group; the one at `truth["right"]` is `matched`."""
    candidates, right = sample.truth["candidates"], sample.truth["right"]
    return [
        replace(
            sample,
            key=f"{sample.key}/{number}",
            text=candidate.text,
            text_regions=pointed(candidate, sample.regions),
            attention=BIDIRECTIONAL,
            matched=number == right,
            group=sample.key,
            truth={"choice": number},
        )
        for number, candidate in enumerate(candidates)
    ]


def pointed(candidate: Candidate, regions: Regions | None) -> Int[Tensor, "T"] | None:
    """The region that each word names, IGNORE elsewhere; None if no word names anything."""
    if not candidate.named or regions is None:
        return None
    places = torch.full_like(candidate.text, IGNORE)
    for word in candidate.named:
        places[word.place] = region_of(word.thing, word.box, regions)
    return places


def region_of(thing: int, box: Sequence[float], regions: Regions) -> int:
    """The index of the region that shows an object, or IGNORE.

    If the regions are the objects themselves (given boxes), it is the object's index. Otherwise it is the region with
    the greatest IoU with the object's box, if this is at least SHOWN.
    """
    if not len(regions):
        return IGNORE
    overlaps = regions.overlaps(box)
    if thing < len(regions) and overlaps[thing] >= SAME:
        return thing
    best = int(overlaps.argmax())
    return best if overlaps[best] >= SHOWN else IGNORE
