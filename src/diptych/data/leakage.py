"""Count the test images that a model was trained on.

Images are compared by their fingerprints (`diptych.vision.fingerprints`). Two images with equal content hashes are the
same. Two images are near copies if their perceptual hashes differ in at most NEAR of 256 bits; one of the images may be
mirrored. docs/results/near_copies.md has the shares of copies and of unlike images that are near.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file

from diptych.core import Record
from diptych.data.store.store import Store
from diptych.runtime.errors import CheckpointError, DataError, explained
from diptych.runtime.weight_files import write_weights
from diptych.vision.archives import is_there
from diptych.vision.decoder import shared_decoders
from diptych.vision.fingerprints import NEAR, U64, Indices, image_fingerprint, matrix, near_pairs, of_mirrored

FILE = "seen.safetensors"
FORMAT = 2  # version of the file's format; version 1 had difference hashes of 64 bits
# If a store lacks fingerprints, at most this many image files are opened to compute them, which takes minutes.
MOST_OPENED = 50_000


class Fingerprints(NamedTuple):
    """Fingerprints of N images, and the number of further images without a fingerprint."""

    content: U64  # content hashes (N,)
    perceptual: U64  # perceptual hashes (N, 4)
    missing: int = 0

    @classmethod
    def of(cls, prints: Sequence[Sequence[int]], missing: int) -> Fingerprints:
        content = np.array([one for one, _ in prints], np.uint64)
        return cls(content, matrix(one.to_bytes(32) for _, one in prints), missing)


@dataclass(frozen=True)
class Leakage:
    """The number of test images that a model was trained on; `exact` and `near` are None if unknown."""

    exact: int | None  # number of test images that are copies of training images
    near: int | None  # number of other test images that are near copies of a training image
    tested: int  # number of test images that were compared
    gaps: tuple[str, ...] = ()  # sentences that state which images could not be compared

    @property
    def text(self) -> str:
        """Return the sentence about leakage that is shown next to scores."""
        if self.exact is None:
            return "; ".join(self.gaps)
        copies = "1 near copy" if self.near == 1 else f"{self.near} near copies"
        return "; ".join([f"{self.exact} of {self.tested} scored images were trained on, and {copies}", *self.gaps])

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"gaps": list(self.gaps), "text": self.text}


UNKNOWN = Leakage(None, None, 0, ("the training images of this model are unknown",))


@dataclass(frozen=True)
class SeenImages:
    """Fingerprints of the images that a model was trained on, without validation images; 40 bytes per image."""

    content: U64  # content hashes (N,), ascending, without duplicates
    perceptual: U64  # perceptual hashes (N, 4) of the same images
    missing: int = 0  # number of training images without a fingerprint
    complete: bool = True  # False: the model was initialised from a model whose training images are unknown

    @classmethod
    def of(cls, prints: Fingerprints, before: SeenImages | None, begun: bool) -> SeenImages:
        """Join the fingerprints of a training split with those of the model that the run started from.

        `begun`: True if the run started from a model. `before`: that model's fingerprints, None if they are unknown.
        """
        content, perceptual, missing = prints
        if before is not None:
            content = np.append(before.content, content)
            perceptual = np.append(before.perceptual, perceptual, axis=0)
            missing += before.missing
        content, first = np.unique(content, return_index=True)
        return cls(content, perceptual[first], missing, before.complete if before is not None else not begun)

    def leakage(self, prints: Fingerprints) -> Leakage:
        """Count the test images that are among these training images, or are near copies of one."""
        exact = np.isin(prints.content, self.content)
        near = _near(prints.perceptual[~exact], self.perceptual) >= 0
        gaps = [
            f"{prints.missing} of the test images could not be compared" * (prints.missing > 0),
            f"{self.missing} of the training images have no fingerprint" * (self.missing > 0),
            "" if self.complete else "the training images of its start model are unknown",
        ]
        left, blind = tuple(filter(None, gaps)), self.missing > 0 and not len(self.content)
        if blind or not len(exact):
            return Leakage(None, None, 0, UNKNOWN.gaps * blind + left)
        return Leakage(int(exact.sum()), int(near.sum()), len(exact), left)

    def save(self, folder: Path) -> None:
        values = torch.from_numpy(np.column_stack([self.content, self.perceptual]).view(np.int64))
        about = {"missing": torch.tensor([self.missing, not self.complete]), "format": torch.tensor(FORMAT)}
        write_weights({"prints": values, **about}, folder / FILE)

    @classmethod
    def load(cls, folder: Path) -> SeenImages | None:
        """Read the fingerprints of a model folder.

        Return None if the folder has no fingerprints. Raises CheckpointError for a damaged file, and for one of another
        format.
        """
        path = folder / FILE
        if not path.is_file():
            return None
        with explained(CheckpointError, f"{path} is damaged", "copy the model folder again", SafetensorError):
            tensors = load_file(path)
            if (form := int(tensors.get("format", 1))) != FORMAT:
                raise CheckpointError(
                    f"{path} has format {form}, but this version of Diptych reads {FORMAT}; remove it, and the model's "
                    f"training images are unknown: rm {path}"
                )
            prints, (missing, unknown) = tensors["prints"].view(np.uint64), tensors["missing"].tolist()
            content, perceptual = prints[:, 0].copy(), prints[:, 1:5].copy()
            if prints.shape[1] != 5 or not (content[1:] > content[:-1]).all():
                raise ValueError("its hashes are not in ascending order")
        return cls(content, perceptual, int(missing), not unknown)


def leakage(seen: SeenImages | None, store: Store, numbers: Sequence[int]) -> Leakage:
    """Count the records (`numbers`: indices into the store) whose images a model was trained on.

    `seen`: the images of the model, None if they are unknown.
    """
    return UNKNOWN if seen is None else seen.leakage(prints_of(store, numbers))


def prints_of(store: Store, numbers: Sequence[int]) -> Fingerprints:
    """Return the fingerprints of the records' images. If the store lacks fingerprints, the image files are opened."""
    prints: list[Sequence[int]] = []
    without: list[Record] = []
    for number in numbers:
        record = store.words(number)
        if record.fingerprint is not None:
            prints.append(record.fingerprint)
        elif record.image is not None and len(without) < MOST_OPENED and is_there(record.image):
            without.append(record)
    if without:
        with ThreadPoolExecutor(2) as pool:
            prints += filter(None, pool.map(_opened, without))
    return Fingerprints.of(prints, len(numbers) - len(prints))


def _opened(record: Record) -> Sequence[int] | None:
    assert record.image is not None
    with suppress(DataError):
        return image_fingerprint(shared_decoders().open(record.image))
    return None


def copies_across(
    splits: Mapping[str, Mapping[str, Sequence[int]]], scored: tuple[str, ...]
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield pairs of an image in a held-out split and a near copy in another split, each as (key, split).

    `splits`: split -> key -> fingerprint. `scored`: prefixes of the names of held-out splits. Each pair of splits is
    compared once.
    """
    for place, split in enumerate(splits):
        others = [one for at, one in enumerate(splits) if at < place or not one.startswith(scored)]
        if split.startswith(scored):
            images = [(key, other, own[1]) for other in others for key, own in splits[other].items()]
            tested = Fingerprints.of([*splits[split].values()], 0)
            near = _near(tested.perceptual, matrix(one.to_bytes(32) for *_, one in images)).tolist()
            yield from (((key, split), images[at][:2]) for key, at in zip(splits[split], near, strict=True) if at >= 0)


def _near(tested: U64, seen: U64) -> Indices:
    """Return for each test image the index of a near copy among `seen`.

    For an image without a near copy, the hash of the mirrored image is tried. If this fails too, the index is -1.
    """
    near = near_copies(tested, seen)
    return np.where(near >= 0, near, near_copies(np.where(tested.any(1, keepdims=True), of_mirrored(tested), 0), seen))


def near_copies(tested: U64, seen: U64) -> Indices:
    """Return for each of M `tested` perceptual hashes (M, 4) the first index of a near copy in `seen` (N, 4), else -1.

    The hash 0 is ignored: it is the hash of images of one colour.
    """
    places = np.full(len(tested), -1)
    shown = np.flatnonzero(tested.any(1))
    rows, copies = near_pairs(tested[shown], seen, NEAR)
    rows, first = np.unique(rows, return_index=True)
    places[shown[rows]] = copies[first]
    return places
