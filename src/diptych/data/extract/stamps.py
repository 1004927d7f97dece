"""Detect that an image, precomputed features or a text changed after a store was made of it.

STORE/inputs.json   {key of a record: [stamp of its image, stamp of its features]}

A stamp has the size, times and inode of a file, or of the archive that contains it. Where it differs, the image or the
features are read and compared with those of the store. If they are the same, the new stamp is saved.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from os.path import abspath
from pathlib import Path
from typing import TypeAlias

import torch

from diptych.core import Record, Regions
from diptych.data.extract.extract import is_another
from diptych.data.store.store import Store, halved, iterate
from diptych.runtime.errors import DataError
from diptych.runtime.files import saved_json, stamp_of, write_atomically
from diptych.vision.decoder import shared_decoders
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.given import GivenRegions
from diptych.vision.detectors.image_feature import WithImageFeature
from diptych.vision.features.profile import refuse_other_features
from diptych.vision.fingerprints import image_fingerprint

FILE = "inputs.json"
Stamps: TypeAlias = dict[str, list[str]]  # {key of a record: [stamp of its image, stamp of its features]}


def stamps_of(records: Sequence[Record], detector: Detector) -> Stamps:
    """Return the present stamps of the files of all records. A record without a file has the stamp ""."""
    given, stamp, stamps = _given(detector), cache(_stamp), Stamps()
    for record in records:
        features = None
        if given is not None:
            with suppress(DataError):  # the record has no features
                features = given.files.file_of(record)
        stamps[record.key] = [stamp(record.image), stamp(features)]
    return stamps


def saved_stamps(store: Path) -> Stamps:
    """Return the stamps that were saved in a store's folder. Raises DataError if their file is damaged."""
    return saved_json(store / FILE, dict) if (store / FILE).exists() else {}


def save_stamps(store: Path, stamps: Mapping[str, list[str]]) -> None:
    write_atomically(store / FILE, json.dumps(stamps).encode())


def check_same(store: Store, records: Sequence[Record], data: Path, detector: Detector, whole: bool = True) -> None:
    """Raise DataError if the store was extracted with another detector, or from other data.

    The latter means that a record has other texts, another split, a changed image or changed features in `records`.

    With `whole`, every record of the store must be in `records`. Otherwise the store may have more records. It may also
    have another image under the same key, which extraction reports.
    """
    refuse_other_features(store.folder, store.contract, detector.contract)
    wanted, other = {record.key: record for record in records}, "choose another --out, or delete this store"
    now, saved, given = stamps_of(records, detector), saved_stamps(store.folder), _given(detector)
    checked = dict(saved)
    for number, there in enumerate(iterate(store)):
        known, before = wanted.get(there.key), checked.setdefault(there.key, ["", ""])
        if known is None and whole:
            raise DataError(f"{store.folder} has the record {there.key!r}, which {data} lacks; {other}")
        if known is None or (not whole and is_another(known.image, there.image)):
            continue
        image, features = (one != last for one, last in zip(now[there.key], before, strict=True))
        if image and _is_changed(known.image, there):
            raise DataError(f"{known.image} has changed since its regions were extracted to {store.folder}; {other}")
        if features and given is not None and _are_others(given, known, store.stored_regions(number)):
            raise DataError(
                f"{given.files.file_of(known)} has other features of {there.key!r} than when {store.folder} was made; "
                f"{other}"
            )
        if replace(known, size=there.size, fingerprint=there.fingerprint, image=there.image) != there:
            texts = f"other texts or another split for {there.key!r} (see --split-seed; for boxes, --stored-boxes)"
            raise DataError(f"{store.folder} was made when {data} had {texts}; {other}")
        if whole and known.image != there.image and abspath(known.image or "") != abspath(there.image or ""):
            raise DataError(
                f"{store.folder} was made when {data} had the image of {there.key!r} at {there.image}; {other}"
            )
        checked[there.key] = now[there.key]
    if checked != saved:
        save_stamps(store.folder, checked)


def _given(detector: Detector) -> GivenRegions | None:
    """Return the precomputed features that a detector reads, or None."""
    regions = detector.regions if isinstance(detector, WithImageFeature) else detector
    return regions if isinstance(regions, GivenRegions) else None


def _stamp(path: Path | None) -> str:
    """Return the stamp of a file, or of the archive that contains it. A link has the stamp of its target."""
    for file in () if path is None else (path, *path.parents):
        with suppress(OSError):
            return stamp_of(file)
    return ""


def _is_changed(image: Path | None, there: Record) -> bool:
    """Return True if an image has other pixels than those of which a store has the fingerprint."""
    if image is not None and there.fingerprint is not None:
        with suppress(DataError):  # extraction reports an image that cannot be read
            return image_fingerprint(shared_decoders().open(image)) != tuple(there.fingerprint)
    return False


def _are_others(given: GivenRegions, record: Record, stored: Regions) -> bool:
    """Return True if the precomputed regions of a record differ from those of a store."""
    try:
        read = halved(replace(record, regions=given.read(record))).regions
    except DataError:  # the store has the features from before they were damaged or removed
        return False
    there = stored.tensors()
    return read is None or any(not torch.equal(one, there[name]) for name, one in read.tensors().items())
