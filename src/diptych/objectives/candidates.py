"""Candidate texts that are scored against each other, and the regions that their words refer to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from diptych.core import BIDIRECTIONAL, IGNORE, Regions, Sample

SAME = 0.99  # a region with at least this IoU counts as the object's annotated box
SHOWN = 0.3  # a detected region with at least this IoU shows the object; the papers do not state a threshold


@dataclass(frozen=True)
class NamedThing:
    """A token that refers to an object: the token's position in the text, the object's index, and its true box."""

    place: int
    thing: int
    box: tuple[float, float, float, float]


@dataclass(frozen=True)
class Candidate:
    """A candidate text about an image, with the objects that it refers to."""

    text: Int[Tensor, "T"]
    named: tuple[NamedThing, ...] = ()


def split_candidates(sample: Sample) -> list[Sample]:
    """Split a sample into a group of samples, one for each candidate text in `truth["candidates"]`.

    Only the sample of the right candidate has `matched` True. Its index is `truth["right"]`.
    """
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
    """Return the index of the region that each token refers to; IGNORE for other tokens.

    Return None if no token refers to an object.
    """
    if not candidate.named or regions is None:
        return None
    places = torch.full_like(candidate.text, IGNORE)
    for word in candidate.named:
        places[word.place] = region_of(word.thing, word.box, regions)
    return places


def region_of(thing: int, box: Sequence[float], regions: Regions) -> int:
    """Return the index of the region that shows object `thing`, or IGNORE if none does.

    If the regions are the annotated objects, this is `thing` itself. Otherwise it is the region that has the largest
    IoU with the object's box, if this IoU is at least SHOWN.
    """
    if not len(regions):
        return IGNORE
    overlaps = regions.overlaps(box)
    if thing < len(regions) and overlaps[thing] >= SAME:
        return thing
    best = int(overlaps.argmax())
    return best if overlaps[best] >= SHOWN else IGNORE
