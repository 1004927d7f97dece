"""The batch: samples that are padded to the same length and stacked."""

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

Places = tuple[Int[Tensor, "n"], ...]  # (rows, columns) of n positions in a batch


@dataclass
class Batch:
    """Samples, padded and stacked to tensors.

    The masks `*_present` are False at padding. A field is None if no sample has it.

    Fields of words. B samples have T tokens of text and U tokens of the target:

    - keys, pictures: names of the samples and of their images. images: like `pictures`, but copies of an image under
      other names have the same name.
    - text (B T), text_present (B T): token ids that the model reads; each text ends with [SEP], and has no [CLS].
    - text_labels (B T): token ids to predict at positions of the text; IGNORE elsewhere.
    - text_regions (B T): index of the region that a token names (VCR); IGNORE elsewhere.
    - target (B U), target_present, target_labels: like the fields of the text, for the tokens that a decoder reads.
    - target_start: position of the target's first token in its sentence.
    - attention: the attention table of each sample.
    - matched (B): False for a mismatched pair of text and image.
    - groups: samples of the same group are scored against each other.
    - truths: the task's ground truth for each sample.
    - grounded (B): True if each word is replaced by the regions that it attends to (XGPT's IDA).
    - seeds (B): seeds of the model's random draws, such as sampled words; None: torch's generator is used.

    Fields of the R regions of each image:

    - boxes (B R 4): corners x1, y1, x2, y2, as fractions of the image.
    - scores (B R): the detector's confidence, 0 to 1.
    - sizes (B 2): width and height of the image in pixels.
    - regions_present (B R): False at padding; a text without an image has no region.
    - chosen (B R): True for regions whose feature or class an objective predicts.
    - hidden (B R): True for regions that are masked in the model's input.
    - classes (B R C): the detector's class probabilities.
    - background: column of `classes` for boxes that show no object; None: there is none.
    - features (B R F), whole (B whole_size): features of the regions, and of the whole image.
    - masks (B R m m): the object's mask in its box of m x m cells; 1 if a cell shows the object.
    - pixels (B 3 height width), pixel_sizes (B 2): images for models that read pixels, and their sizes without padding.

    Fields of the computation:

    - request: the final states that the model must compute; None: all states.
    - places: {objective: (rows, columns) of the states that it reads}; see `where`.
    - region_counts, word_counts: numbers of regions and of tokens of each sample, on the CPU.
    - idle: True for a placeholder that must not change the weights.
    """

    keys: list[str]
    pictures: list[str]
    attention: list[Attention]
    text: Int[Tensor, "B T"]
    text_present: Bool[Tensor, "B T"]
    text_labels: Int[Tensor, "B T"]
    matched: Bool[Tensor, "B"]
    groups: list[str | None]
    truths: list[dict[str, Any]]
    boxes: Float[Tensor, "B R 4"]  # corners (x1, y1, x2, y2) as fractions of the image
    scores: Float[Tensor, "B R"]
    sizes: Int[Tensor, "B 2"]  # (width, height) of each image in pixels
    regions_present: Bool[Tensor, "B R"]
    chosen: Bool[Tensor, "B R"]
    hidden: Bool[Tensor, "B R"]
    classes: Float[Tensor, "B R C"] | None = None
    background: int | None = None
    features: Float[Tensor, "B R F"] | None = None
    masks: Float[Tensor, "B R m m"] | None = None  # the object's mask in each box, of m x m cells
    whole: Float[Tensor, "B whole_size"] | None = None
    pixels: Float[Tensor, "B 3 height width"] | None = None
    pixel_sizes: Int[Tensor, "B 2"] | None = None  # (width, height) of each image in `pixels`, without padding
    text_regions: Int[Tensor, "B T"] | None = None
    target: Int[Tensor, "B U"] | None = None
    target_present: Bool[Tensor, "B U"] | None = None
    target_labels: Int[Tensor, "B U"] | None = None
    target_start: list[int] | None = None  # `Sample.target_start` of each sample; None: 0 for all
    # True: the sample's words are replaced by regions, see `Sample.grounded`. None: no sample has this.
    grounded: Bool[Tensor, "B"] | None = None
    # Seeds for random draws, one per sample (`core.randomness`). None: torch's generator draws.
    seeds: Int[Tensor, "B"] | None = None
    request: StateRequest | None = None  # the final states that are needed; None: all
    # Positions that each objective reads. The loader finds them on the CPU. Finding them on a GPU would mean waiting
    # for all queued work.
    places: dict[str, Places] = field(default_factory=dict)
    region_counts: list[int] | None = None  # number of regions of each sample; see `counted_regions`
    word_counts: list[int] | None = None  # number of text tokens of each sample; see `counted_words`
    images: list[str] = field(default_factory=list)  # `Sample.image` of each sample
    idle: bool = False  # True: a placeholder for unreadable records, which adds nothing to the loss

    def __len__(self) -> int:
        return len(self.keys)

    def to(self, device: torch.device | str) -> Batch:
        """Move the tensors to a device, and convert half precision to float32 there.

        Pinned memory is copied to a GPU asynchronously.
        """
        cuda = torch.device(device).type == "cuda"

        def moved(tensor: Tensor) -> Tensor:
            there = tensor.to(device, non_blocking=cuda)
            return there.float() if there.dtype == torch.float16 else there

        return self._each(moved)

    def pin_memory(self) -> Batch:
        """Copy the tensors to page-locked memory, from which a GPU can copy asynchronously."""
        return self._each(Tensor.pin_memory)

    def tensors(self) -> list[Tensor]:
        """Return all tensors of the batch, including the tensors in `places`."""
        own = [value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)]
        return own + [part for parts in self.places.values() for part in parts]

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        changed: dict[str, Any] = {
            f.name: change(v) for f in fields(self) if isinstance(v := getattr(self, f.name), Tensor)
        }
        places = {name: tuple(map(change, parts)) for name, parts in self.places.items()}
        return replace(self, **changed, places=places)

    def where(self, name: str, request: Callable[[Batch], StateRequest]) -> Places:
        """Return (rows, columns) of the states that the objective `name` reads.

        The positions come from `places`, or else from the mask of `request(batch)`.
        """
        known = self.places.get(name)
        return request(self).mask.nonzero(as_tuple=True) if known is None else known

    def has_class(self, background: bool = False) -> Bool[Tensor, "B R"]:
        """Return True for regions with a class probability above 0. `background`: whether that class counts too."""
        if self.classes is None:
            return torch.zeros_like(self.chosen)
        sums = self.classes.sum(-1, dtype=torch.float32)  # on the CPU, class probabilities are in half precision
        return sums > (0 if background or self.background is None else self.classes[..., self.background])

    def best_classes(self, places: Places) -> Int[Tensor, "n"]:
        """Return the most probable class, except the background, of the regions at (rows, columns)."""
        assert self.classes is not None
        wanted = self.classes[places]  # a copy
        if self.background is not None:
            wanted[:, self.background] = -1
        return wanted.argmax(-1)

    def counted_regions(self) -> list[int]:
        """Return the number of regions of each sample. A batch made by `collate` has it without a wait for the GPU."""
        return self.regions_present.sum(1).tolist() if self.region_counts is None else self.region_counts

    def counted_words(self) -> list[int]:
        """Return the number of text tokens of each sample.

        For a batch made by `collate`, this does not wait for the GPU.
        """
        return self.text_present.sum(1).tolist() if self.word_counts is None else self.word_counts

    def without_text(self) -> Batch:
        """Return the batch with empty texts (T = 0), for a forward pass that reads no text."""
        empty: dict[str, Any] = {name: getattr(self, name)[:, :0] for name in ("text", "text_present", "text_labels")}
        return replace(self, **empty, text_regions=None, word_counts=[0] * len(self))

    def for_head(self, name: str) -> Batch:
        """Return the batch with a request for the states that the head `name` reads."""
        return replace(self, request=StateRequest(heads=frozenset({name})))

    def repeat(self, times: int) -> Batch:
        """Return the batch with each sample repeated `times` times; the copies are consecutive.

        `places` is cleared, because row numbers change.
        """
        again: dict[str, Any] = {"places": {}}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Tensor):
                again[f.name] = value.repeat_interleave(times, 0)
            elif isinstance(value, list):
                again[f.name] = [item for item in value for _ in range(times)]
        return replace(self, **again)


def collate(samples: Sequence[Sample]) -> Batch:
    """Stack samples to a batch. Pad each field to its longest value.

    For a sample without an image, `regions_present` is all False.
    """
    regions = [s.regions if s.regions is not None else _no_regions() for s in samples]
    text = [s.text for s in samples]
    targets = [s.target if s.target is not None else torch.zeros(0, dtype=torch.long) for s in samples]
    target: dict[str, Any] = {}
    if any(s.target is not None for s in samples):
        labels = [_labels(t, s.target_labels) for t, s in zip(targets, samples, strict=True)]
        target = {"target": _pad(targets), "target_labels": _pad(labels, IGNORE), "target_present": _present(targets)}
    named = any(s.text_regions is not None for s in samples)
    seeds = [s.seed for s in samples]
    return Batch(
        keys=[s.key for s in samples],
        pictures=[s.picture for s in samples],
        images=[s.image for s in samples],
        attention=[s.attention for s in samples],
        groups=[s.group for s in samples],
        truths=[s.truth for s in samples],
        matched=torch.tensor([s.matched for s in samples]),
        text=_pad(text),
        text_present=_present(text),
        text_labels=_pad([_labels(s.text, s.text_labels) for s in samples], IGNORE),
        text_regions=_pad([_labels(s.text, s.text_regions) for s in samples], IGNORE) if named else None,
        **target,
        target_start=[s.target_start for s in samples] if any(s.target_start for s in samples) else None,
        grounded=torch.tensor([s.grounded for s in samples]) if any(s.grounded for s in samples) else None,
        seeds=torch.tensor(seeds) if None not in seeds else None,
        boxes=_pad([r.boxes for r in regions]),
        scores=_pad([r.scores for r in regions]),
        sizes=torch.tensor([r.size for r in regions]),
        regions_present=_present([r.scores for r in regions]),
        chosen=_pad([_mask(r, r.chosen) for r in regions]),
        hidden=_pad([_mask(r, r.hidden) for r in regions]),
        classes=_per_region(regions, "classes"),
        features=_per_region(regions, "features"),
        masks=_per_region(regions, "masks"),
        whole=_per_image(regions, [r.whole for r in regions]),
        pixels=(pixels := _per_image(regions, [r.pixels for r in regions])),
        pixel_sizes=None if pixels is None else torch.tensor([_pixel_size(r) for r in regions]),
        region_counts=[len(r) for r in regions],
        word_counts=[len(t) for t in text],
    )


def _pad(rows: Sequence[Tensor], value: int = 0) -> Tensor:
    return pad_sequence(list(rows), batch_first=True, padding_value=value)


def _present(rows: Sequence[Tensor]) -> Bool[Tensor, "B N"]:
    lengths = torch.tensor([len(row) for row in rows])
    return torch.arange(int(lengths.max()))[None] < lengths[:, None]


def _labels(tokens: Tensor, labels: Tensor | None) -> Tensor:
    return torch.full_like(tokens, IGNORE) if labels is None else labels


def _mask(regions: Regions, mask: Tensor | None) -> Bool[Tensor, "R"]:
    return torch.zeros(len(regions), dtype=torch.bool) if mask is None else mask


def _per_region(regions: Sequence[Regions], name: str) -> Tensor | None:
    """Stack a field (R, ...) of `Regions`, padded to the largest R. Samples without regions get zeros.

    Return None if an image with regions lacks the field.
    """
    known = [value for r in regions if len(r) and (value := getattr(r, name)) is not None]
    if not known or len(known) < sum(len(r) > 0 for r in regions):
        return None
    empty = known[0].new_zeros(0, *known[0].shape[1:])
    stacked = _pad([getattr(r, name) if len(r) else empty for r in regions])
    return stacked if stacked.is_floating_point() else stacked.float()


def _per_image(regions: Sequence[Regions], values: Sequence[Tensor | None]) -> Tensor | None:
    """Stack one tensor per image, padded with zeros at the end of each dimension (pixels: at the right and the bottom).

    Return None if an image with regions lacks the value. Samples without an image get zeros.
    """
    known = [value for value in values if value is not None]
    if not known or any(value is None and len(r) for r, value in zip(regions, values, strict=True)):
        return None
    assert known[0].dim() > 1 or len({value.shape for value in known}) == 1, "features of whole images differ in size"
    shape = [max(sizes) for sizes in zip(*(value.shape for value in known), strict=True)]
    stacked = known[0].new_zeros(len(values), *shape)  # torch.stack fails under autocast with fp16 on a CPU
    for row, value in zip(stacked, values, strict=True):
        if value is not None:
            row[tuple(map(slice, value.shape))] = value
    return stacked


def _pixel_size(regions: Regions) -> tuple[int, int]:
    return (1, 1) if regions.pixels is None else (regions.pixels.shape[2], regions.pixels.shape[1])


def _no_regions() -> Regions:
    return Regions(boxes=torch.zeros(0, 4), scores=torch.zeros(0), size=(1, 1))
