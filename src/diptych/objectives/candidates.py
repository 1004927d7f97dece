"""Texts that are scored against each other for one picture, and the regions at which their words point."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from diptych.core import BIDIRECTIONAL, IGNORE, Regions, Sample

SAME = 0.99  # IoU from which on a region is the thing itself, up to rounding
SHOWN = 0.3  # IoU from which on a detected region counts as showing a thing; the papers do not say


@dataclass(frozen=True)
class NamedThing:
    """A word that names a thing: its place in the text, the thing's number and true box."""

    place: int
    thing: int
    box: tuple[float, float, float, float]


@dataclass(frozen=True)
class Candidate:
    """One of several texts about a picture, with the regions that it names."""

    text: Int[Tensor, "T"]
    named: tuple[NamedThing, ...] = ()


def split_candidates(sample: Sample) -> list[Sample]:
    """A sample for each of `truth["candidates"]`, in one group; the right one (`truth["right"]`) is `matched`."""
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
    """The region of each word; None where no word names anything."""
    if not candidate.named or regions is None:
        return None
    places = torch.full_like(candidate.text, IGNORE)
    for word in candidate.named:
        places[word.place] = region_of(word.thing, word.box, regions)
    return places


def region_of(thing: int, box: Sequence[float], regions: Regions) -> int:
    """The region that shows a thing, or IGNORE.

    By number where the regions are the objects themselves (given boxes), else the one that overlaps its box most, by an
    IoU of SHOWN at least.
    """
    if not len(regions):
        return IGNORE
    overlaps = regions.overlaps(box)
    if thing < len(regions) and overlaps[thing] >= SAME:
        return thing
    best = int(overlaps.argmax())
    return best if overlaps[best] >= SHOWN else IGNORE
