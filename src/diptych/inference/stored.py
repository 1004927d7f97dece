"""`StoredRegions`: the regions that a store has, so that images need not be extracted again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from diptych.core import Record, Regions
from diptych.data.store.store import Store
from diptych.vision.detectors.detector import Detector, Picture
from diptych.vision.fingerprints import image_fingerprint


class StoredRegions:
    """A detector that looks images up in a store, by their pixels, and detects the regions of other images.

    `opened` opens the detector of the other images, at the first of them. Stored features are in half precision.
    """

    needs_pictures = True
    network = None  # `opened` moves the networks to their device

    def __init__(self, store: Store, opened: Callable[[], Detector]) -> None:
        self.contract, self._store, self._opened = store.contract, store, opened

    @cached_property
    def _detector(self) -> Detector:
        return self._opened()

    @cached_property
    def _rows(self) -> dict[int, int]:
        """The content hash of each image of the store -> its record's index."""
        prints = ((self._store.words(row).fingerprint, row) for row in range(len(self._store)))
        return {known[0]: row for known, row in prints if known is not None}

    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        prints = [image_fingerprint(picture.permute(1, 2, 0).numpy())[0] for picture in pictures]
        regions = {at: self._store.regions(self._rows[one]) for at, one in enumerate(prints) if one in self._rows}
        if new := [at for at in range(len(pictures)) if at not in regions]:
            detected = self._detector.detect([pictures[at] for at in new], [records[at] for at in new])
            regions |= dict(zip(new, detected, strict=True))
        return [regions[at] for at in range(len(pictures))]

    def save(self, folder: Path) -> None:
        self._detector.save(folder)
