"""Samples, padded and stacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from diptych.core.attention import Attention
from diptych.core.regions import Regions
from diptych.core.sample import IGNORE, Sample
from diptych.core.states import StateRequest

Places = tuple[Int[Tensor, "n"], ...]  # of n places: their rows, their columns


@dataclass
class Batch:
    """The fields of Sample and Regions with a batch in front; `*_present` tells what is not padding."""

    keys: list[str]
    pictures: list[str]
    attention: list[Attention]
    text: Int[Tensor, "B T"]
    text_present: Bool[Tensor, "B T"]
    text_labels: Int[Tensor, "B T"]
    matched: Bool[Tensor, "B"]
    groups: list[str | None]
    truths: list[dict[str, Any]]
    boxes: Float[Tensor, "B R 4"]
    scores: Float[Tensor, "B R"]
    sizes: Int[Tensor, "B 2"]  # width, height in pixels
    regions_present: Bool[Tensor, "B R"]
    chosen: Bool[Tensor, "B R"]
    hidden: Bool[Tensor, "B R"]
    classes: Float[Tensor, "B R C"] | None = None
    features: Float[Tensor, "B R F"] | None = None
    masks: Float[Tensor, "B R m m"] | None = None  # 1 where a cell of a region's box shows the thing
    whole: Float[Tensor, "B whole_size"] | None = None
    pixels: Float[Tensor, "B 3 height width"] | None = None
    pixel_sizes: Int[Tensor, "B 2"] | None = None  # width, height of each picture there, without padding
    text_regions: Int[Tensor, "B T"] | None = None
    target: Int[Tensor, "B U"] | None = None
    target_present: Bool[Tensor, "B U"] | None = None
    target_labels: Int[Tensor, "B U"] | None = None
    target_start: list[int] | None = None  # None: 0 for all
    grounded: Bool[Tensor, "B"] | None = None  # None: no text is
    seeds: Int[Tensor, "B"] | None = None  # of what the model draws (`core.randomness`); None: torch's generator
    request: StateRequest | None = None  # which final states are read; None: all
    # By objective: the places that it asks for, found on the CPU (`Loader`). A GPU knows how many there are when it has
    # done all that was asked of it, and whoever asks waits.
    places: dict[str, Places] = field(default_factory=dict)
    region_counts: list[int] | None = None  # of each row, as `counted_regions` hands them out
    word_counts: list[int] | None = None
    idle: bool = False  # nothing is learnt from it: its records cannot be read, and another holds their place

    def __len__(self) -> int:
        return len(self.keys)

    def to(self, device: torch.device | str) -> Batch:
        """There, with numbers of half precision widened when they have come. A GPU is not waited for where the batch is
        pinned."""
        past = torch.device(device).type == "cuda"

        def moved(tensor: Tensor) -> Tensor:
            there = tensor.to(device, non_blocking=past)
            return there.float() if there.dtype == torch.float16 else there

        return self._each(moved)

    def pin_memory(self) -> Batch:
        """In memory from which a GPU can fetch by itself."""
        return self._each(Tensor.pin_memory)

    def tensors(self) -> list[Tensor]:
        found: list[Tensor] = []

        def kept(tensor: Tensor) -> Tensor:
            found.append(tensor)
            return tensor

        self._each(kept)
        return found

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        changed: dict[str, Any] = {
            f.name: change(v) for f in fields(self) if isinstance(v := getattr(self, f.name), Tensor)
        }
        places = {name: tuple(map(change, parts)) for name, parts in self.places.items()}
        return replace(self, **changed, places=places)

    def where(self, name: str, request: Callable[[Batch], StateRequest]) -> Places:
        """The places that objective `name` asks for: those that the loader has found, else by its mask."""
        found = self.places.get(name)
        return request(self).mask.nonzero(as_tuple=True) if found is None else found

    def counted_regions(self) -> list[int]:
        """Of each row; without a wait where `collate` has made the batch."""
        counts = self.region_counts
        return self.regions_present.sum(1).tolist() if counts is None else counts

    def counted_words(self) -> list[int]:
        """Of each row, likewise."""
        return self.text_present.sum(1).tolist() if self.word_counts is None else self.word_counts

    def without_text(self) -> Batch:
        """For a pass that reads no text."""
        return replace(
            self,
            text=self.text[:, :0],
            text_present=self.text_present[:, :0],
            text_labels=self.text_labels[:, :0],
            text_regions=None,
            word_counts=[0] * len(self),
        )

    def for_head(self, name: str) -> Batch:
        """Of whose final states nothing is read but what this head reads."""
        return replace(self, request=StateRequest(heads=frozenset({name})))

    def repeat(self, times: int) -> Batch:
        """Each sample `times` times, one after the other. Where objectives pick is to be found anew."""
        again: dict[str, Any] = {"places": {}}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Tensor):
                again[f.name] = value.repeat_interleave(times, 0)
            elif isinstance(value, list):
                again[f.name] = [item for item in value for _ in range(times)]
        return replace(self, **again)


def collate(samples: Sequence[Sample]) -> Batch:
    """Pad each field to the longest of the batch. A sample without regions (text alone) has none present."""
    regions = [s.regions if s.regions is not None else _no_regions() for s in samples]
    text = [s.text for s in samples]
    count = max(len(r) for r in regions)
    targets = [s.target if s.target is not None else torch.zeros(0, dtype=torch.long) for s in samples]
    has_target = any(s.target is not None for s in samples)
    seeds = [s.seed for s in samples]
    return Batch(
        keys=[s.key for s in samples],
        pictures=[s.picture for s in samples],
        attention=[s.attention for s in samples],
        groups=[s.group for s in samples],
        truths=[s.truth for s in samples],
        matched=torch.tensor([s.matched for s in samples]),
        text=_pad(text, 0),
        text_present=_present(text),
        text_labels=_pad([_labels(s.text, s.text_labels) for s in samples], IGNORE),
        text_regions=_pad([_labels(s.text, s.text_regions) for s in samples], IGNORE)
        if any(s.text_regions is not None for s in samples)
        else None,
        target=_pad(targets, 0) if has_target else None,
        target_present=_present(targets) if has_target else None,
        target_labels=_pad([_labels(t, s.target_labels) for t, s in zip(targets, samples, strict=True)], IGNORE)
        if has_target
        else None,
        target_start=[s.target_start for s in samples] if any(s.target_start for s in samples) else None,
        grounded=torch.tensor([s.grounded for s in samples]) if any(s.grounded for s in samples) else None,
        seeds=torch.tensor(seeds) if None not in seeds else None,
        boxes=_stack(regions, count, lambda r: r.boxes),
        scores=_stack(regions, count, lambda r: r.scores),
        sizes=torch.tensor([r.size for r in regions]),
        regions_present=_present([r.scores for r in regions]),
        chosen=_stack(regions, count, lambda r: r.chosen if r.chosen is not None else _false(r)),
        hidden=_stack(regions, count, lambda r: r.hidden if r.hidden is not None else _false(r)),
        classes=_optional(regions, count, "classes"),
        features=_optional(regions, count, "features"),
        masks=_optional(regions, count, "masks"),
        whole=_whole(regions),
        pixels=(pixels := _pixels(regions)),
        pixel_sizes=None if pixels is None else torch.tensor([_pixel_size(r) for r in regions]),
        region_counts=[len(r) for r in regions],
        word_counts=[len(t) for t in text],
    )


def _pad(rows: Sequence[Tensor], value: int) -> Tensor:
    return pad_sequence(list(rows), batch_first=True, padding_value=value)


def _present(rows: Sequence[Tensor]) -> Bool[Tensor, "B N"]:
    lengths = torch.tensor([len(row) for row in rows])
    return torch.arange(int(lengths.max()))[None] < lengths[:, None]


def _labels(tokens: Tensor, labels: Tensor | None) -> Tensor:
    return torch.full_like(tokens, IGNORE) if labels is None else labels


def _false(regions: Regions) -> Bool[Tensor, "R"]:
    return torch.zeros(len(regions), dtype=torch.bool)


def _stack(regions: Sequence[Regions], count: int, field: Callable[[Regions], Tensor]) -> Tensor:
    first = field(regions[0])
    stacked = first.new_zeros(len(regions), count, *first.shape[1:])
    for row, one in zip(stacked, regions, strict=True):
        row[: len(one)] = field(one)
    return stacked


def _optional(regions: Sequence[Regions], count: int, name: str) -> Tensor | None:
    """A field that all pictures with regions have, else None; pictures without regions get zeros."""
    known = [value for r in regions if len(r) and (value := getattr(r, name)) is not None]
    if not known or len(known) < sum(len(r) > 0 for r in regions):
        return None
    empty = known[0].new_zeros(0, *known[0].shape[1:])
    stacked = _stack(regions, count, lambda r: getattr(r, name) if len(r) else empty)
    return stacked if stacked.is_floating_point() else stacked.float()


def _whole(regions: Sequence[Regions]) -> Tensor | None:
    """As `_optional`: text alone, which has no picture, gets zeros."""
    known = [r.whole for r in regions if r.whole is not None]
    if not known or any(r.whole is None and len(r) for r in regions):
        return None
    stacked = known[0].new_zeros(len(regions), *known[0].shape)  # torch.stack fails under autocast with fp16 on a CPU
    for row, one in zip(stacked, regions, strict=True):
        if one.whole is not None:
            row.copy_(one.whole)
    return stacked


def _pixels(regions: Sequence[Regions]) -> Tensor | None:
    """Padded with zeros right and below. Of all pictures with regions, or None; text alone gets zeros."""
    pictures = [r.pixels for r in regions]
    known = [p for p in pictures if p is not None]
    if not known or any(r.pixels is None and len(r) for r in regions):
        return None
    height, width = (max(p.shape[axis] for p in known) for axis in (1, 2))
    stacked = known[0].new_zeros(len(pictures), 3, height, width)
    for row, picture in zip(stacked, pictures, strict=True):
        if picture is not None:
            row[:, : picture.shape[1], : picture.shape[2]] = picture
    return stacked


def _pixel_size(regions: Regions) -> tuple[int, int]:
    return (1, 1) if regions.pixels is None else (regions.pixels.shape[2], regions.pixels.shape[1])


def _no_regions() -> Regions:
    return Regions(boxes=torch.zeros(0, 4), scores=torch.zeros(0), size=(1, 1))
