"""Extract the regions of a user's images into a store that also contains the detector."""

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console

from diptych.core import Record, Regions
from diptych.core.folders import DETECTOR
from diptych.data.extract.extract import CPU, LOCAL, Extraction, extract, is_another
from diptych.data.findings import KINDS, TURNED
from diptych.data.formats.format import LIST_THEM
from diptych.data.formats.parsing import Skips, are_many, refuse_many
from diptych.data.formats.table import read
from diptych.data.store.mirror import turn_of
from diptych.data.store.store import INDEX, Store, halved, iterate
from diptych.runtime.devices import choose_device
from diptych.runtime.errors import DataError, RecipeError
from diptych.runtime.outputs import claim
from diptych.runtime.processes import PROCESSES, torchrun_processes
from diptych.runtime.progress import bar, tell
from diptych.runtime.terminal import printable
from diptych.vision.decoder import shared_decoders
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.given import KIND as GIVEN
from diptych.vision.detectors.given import GivenRegions
from diptych.vision.detectors.image_feature import WithImageFeature
from diptych.vision.detectors.open import open_detector
from diptych.vision.features.profile import refuse_other_features
from diptych.vision.fingerprints import image_fingerprint

NAMED_SET = re.compile(r"([a-z][a-z0-9_]*)=(.+)")
MANY = 500  # below this number of images, starting processes (a few seconds) costs more time than it saves
SAMPLED, MOST_OPENED = 32, 200  # numbers of images that are opened to detect changed ones: of all, of newer files
NAMED = 5  # this many failures are printed; failures.jsonl lists all


def extract_regions(
    records: Sequence[Record], detector: Detector, folder: Path, console: Console | None = None, batch_size: int = 16,
    processes: int | None = None, engine: str = LOCAL, device: str = "auto", skip_bad: bool = False,
    stored: bool = False,
) -> Extraction:  # fmt: skip
    """Detect the regions of every image, and save regions and detector in a store.

    Models trained on this store include a copy of the detector. `processes` is by default the number of cores for MANY
    images or more, else 1. If there is a `console`, it shows a progress bar and the first failures. `stored`:
    boxes were converted from stored pixels, so that images that EXIF turns are not reported.
    """
    console = console or Console(quiet=True)
    claim(folder, "store")
    given = detector if isinstance(detector, GivenRegions) else None
    for note in given.files.notes if given is not None else ():
        tell(console, note)
    if not stored and (count := sum(turn_of(record) > 1 for record in records)):
        tell(console, f"{TURNED}: {count}; {KINDS[TURNED][1]}")
    processes = processes or (PROCESSES if len(records) >= MANY or engine != LOCAL else 1)
    chosen = CPU if device == "auto" and engine != LOCAL else choose_device(device, "--device")
    started = perf_counter()
    with bar("pictures", console) as progress:
        extracting = progress.add_task("extracting", total=len(records))

        def advance(count: int) -> bool:
            progress.advance(extracting, count)
            return given is None or skip_bad or not are_many(len(given.damaged), len(records))

        with _dated(folder / INDEX):
            done = extract(
                records, detector, folder, batch_size, progress=advance, processes=processes, engine=engine,
                device=chosen,
            )  # fmt: skip
    (folder / DETECTOR).mkdir(exist_ok=True)
    detector.save(folder / DETECTOR)
    for key, reason in list(done.failed.items())[:NAMED]:
        tell(console, f"  {printable(key)}: {printable(reason)}")
    if given is not None and given.bytes_read:
        rate = given.bytes_read / max(perf_counter() - started, 1e-9)
        tell(console, f"{_bytes(given.bytes_read)} of features converted, {_bytes(rate)}/s")
    if given is not None and not skip_bad:
        where = f"{given.folder} ({folder} keeps the regions already read): "
        refuse_many(len(given.damaged), len(records), list(given.damaged.values()), where)
    return done


def read_records(
    data: Path, console: Console, pictures: Path | None, split: str | None, seed: int, need_pictures: bool = True,
    skip_bad: bool = False, stored: bool = False,
) -> list[Record]:  # fmt: skip
    """Read the records of a user's data. Print the number of skipped or corrected entries, with examples."""
    skips = Skips(skip_bad)
    records = read(data, pictures, split=split, seed=seed, need_pictures=need_pictures, skips=skips, stored=stored)
    if skips.counts:
        tell(console, f"skipped or corrected: {skips}")
    return records


def open_data(
    data: Path, console: Console, seed: int = 0, features: Path | None = None, skip_bad: bool = False
) -> Store | list[Record]:
    """Open `data` if it is a store; else read its records. Raises DataError and RecipeError."""
    if (data / INDEX).is_file():
        if features is not None:
            raise RecipeError(f"{data} is a store, which already has regions; leave out --features {features}")
        return Store(data)
    if not data.exists():
        raise DataError(
            f"nothing at {data}; expected a store, which `diptych extract DATA --out STORE` makes, or data of a known "
            f"format; {LIST_THEM}"
        )
    return read_records(data, console, None, None, seed, features is None, skip_bad)


def store_of(
    opened: Store | Sequence[Record], data: Path, folder: Path, detector: str | None, console: Console,
    features: Path | None = None, skip_bad: bool = False,
) -> Store:  # fmt: skip
    """Return `opened` if it is a store.

    If it is a list of records, extract their regions into a store in `folder` first. `opened`: what `open_data`
    returned for `data`. `features`: a file or folder of precomputed regions. With `features`, `detector` must be None,
    `given`, or the folder of a model that was trained on precomputed regions. A second call resumes an interrupted
    extraction. Raises DataError and RecipeError.
    """
    if isinstance(opened, Store):
        return opened
    records = opened
    if detector is None and features is None:
        raise RecipeError(
            f"{data} is not a store, so its regions must be extracted first: pass a detector (--model or --detector), "
            f"pass features that you have (--features PATH), or run diptych extract {data} --out STORE --detector ..."
        )
    if torchrun_processes() > 1:
        raise RecipeError(
            f"several training processes cannot extract regions; run this first: diptych extract {data} --out STORE "
            + (f"--detector {detector}" if features is None else f"--detector {GIVEN} --features {features}")
            + ", then pass --data STORE"
        )
    finder = detector_or_features(detector, features, records)
    if not finder.needs_pictures and features is None:
        raise DataError(
            f"the model {detector} cannot find regions: it reads regions of {finder.contract.extractor}; "
            + (f"pass them: --features PATH, or make a store: diptych extract {data} --out STORE --detector given ..."
               if isinstance(finder, GivenRegions)
               else f"make a store of them: diptych extract {data} --out STORE --detector {finder.contract.extractor}")
        )  # fmt: skip
    if (folder / INDEX).is_file():
        check_same(Store(folder), records, data, finder)
    done = extract_regions(records, finder, folder, console, skip_bad=skip_bad)
    store = Store(folder)
    splits = ", ".join(f"{name} {count}" for name, count in sorted(store.splits.items()))
    tell(console, f"{done.summary()}; {folder}: {splits}")
    return store


def detector_or_features(detector: str | None, features: Path | None, records: Sequence[Record]) -> Detector:
    """Open the detector, or the precomputed `features` if they are given.

    With `features`, `detector` may also be a model that was trained on precomputed regions. Raises RecipeError for any
    other detector with `features`.
    """
    if features is None:
        assert detector is not None
        return open_detector(detector, records)
    form = open_detector(detector, records) if detector not in (None, GIVEN) else None
    if form is not None and not isinstance(form, GivenRegions):
        raise RecipeError(f"found both --features {features} and the detector {detector}; pass only one")
    return open_detector(GIVEN, records, features, boxes="whole" if form is not None and form.whole_boxes else None)


def named_data(given: Sequence[str]) -> Path | dict[str, Path]:
    """Return the path of a single data set, or the paths of several by name (`cc=STORE`)."""
    if len(given) == 1 and not NAMED_SET.fullmatch(given[0]):
        return Path(given[0])
    named: dict[str, Path] = {}
    for one in given:
        parts = NAMED_SET.fullmatch(one)
        if parts is None or parts[1] in named:
            raise RecipeError(f"--data {one}: data sets need distinct names, such as --data a=STORE --data b=STORE")
        named[parts[1]] = Path(parts[2])
    return named


def refuse_changed(out: Path, records: Sequence[Record], data: Path, detector: Detector) -> None:
    """Raise DataError if `out` is a store that was extracted from an earlier version of `data` or of its features."""
    if (out / INDEX).is_file():
        check_same(Store(out), records, data, detector, whole=False)


@contextmanager
def _dated(index: Path) -> Iterator[None]:
    """Keep the time of a store's index, which is that of the last check of its images (`check_same`).

    A new index gets the time at which the `with` block began.
    """
    time_ns = index.stat().st_mtime_ns if index.is_file() else time.time_ns()
    try:
        yield
    finally:
        with suppress(OSError):
            os.utime(index, ns=(time_ns, time_ns))


def check_same(store: Store, records: Sequence[Record], data: Path, detector: Detector, whole: bool = True) -> None:
    """Raise DataError if the store was extracted with another detector, or from other data.

    The latter means that a record has other texts, another split, a changed image or changed features in `records`.

    With `whole`, every record of the store must be in `records`. Otherwise the store may have more records. It may also
    have another image under the same key, which extraction reports. Images and features are read if their file is newer
    than the last check, at most MOST_OPENED of them. SAMPLED of them are read in any case, because older files may have
    replaced them.
    """
    refuse_other_features(store.folder, store.contract, detector.contract)
    wanted = {record.key: record for record in records}
    other, index = "choose another --out, or delete this store", store.folder / INDEX
    began, checked = time.time_ns(), index.stat().st_mtime_ns
    opened, newer = _sampled({record.key: record.image for record in records if record.image is not None}, checked)
    given = detector.regions if isinstance(detector, WithImageFeature) else detector
    files = _feature_files(given, records) if isinstance(given, GivenRegions) else {}
    read, _ = _sampled(files, checked)
    for number, there in enumerate(iterate(store)):
        known = wanted.get(there.key)
        if whole and known is None:
            raise DataError(f"{store.folder} has the record {there.key!r}, which {data} lacks; {other}")
        image = None if known is None else known.image
        if not whole:
            if known is None or is_another(image, there.image):
                continue
            # An image that has moved since the store was made is still the same image.
            known = replace(known, image=there.image)
        if there.key in opened and _is_changed(image, there):
            raise DataError(f"{image} has changed since its regions were extracted to {store.folder}; {other}")
        if there.key in read and _are_others(given, wanted[there.key], store.stored_regions(number)):
            raise DataError(
                f"{files[there.key]} has other features of {there.key!r} than when {store.folder} was made; {other}"
            )
        if known is not None:  # records in a store have a size and a fingerprint, which extraction adds
            known = replace(known, size=there.size, fingerprint=there.fingerprint)
        if known is None or _from_root(known) != _from_root(there):
            moved = known is not None and replace(known, image=there.image) == there
            texts = f"other texts or another split for {there.key!r} (see --split-seed; for boxes, --stored-boxes)"
            had = f"the image of {there.key!r} at {there.image}" if moved else texts
            raise DataError(f"{store.folder} was made when {data} had {had}; {other}")
    if newer and wanted.keys() >= store.keys():  # these images are not opened again
        with suppress(OSError):
            os.utime(index, ns=(began, began))


def check_older(records: Sequence[Record], finished: Path, store: Path) -> None:
    """Raise DataError if an image is newer than the file `finished` of a run whose store was deleted."""
    if newer := _newer({record.image for record in records if record.image is not None}, finished.stat().st_mtime_ns):
        raise DataError(
            f"{min(newer)} was written after the run in {finished.parent} ended, and {store}, with which it could be "
            "compared, was deleted; choose another --out"
        )


def _sampled(files: Mapping[str, Path], time_ns: int) -> tuple[set[str], list[str]]:
    """Return the keys of the files to compare, and the keys of all files that are newer than a time."""
    keys, recent = list(files), _newer(set(files.values()), time_ns)
    newer = [key for key in keys if files[key] in recent]
    return {*keys[:: max(1, len(keys) // SAMPLED)], *newer[:: -(-len(newer) // MOST_OPENED) or 1]}, newer


def _feature_files(given: GivenRegions, records: Sequence[Record]) -> dict[str, Path]:
    """Return the file with the features of each record that has some."""
    files = {}
    for record in records:
        with suppress(DataError):
            files[record.key] = given.files.file_of(record)
    return files


def _newer(images: Iterable[Path], time_ns: int) -> set[Path]:
    """Return the images whose file, or the archive with it, was written or replaced after a time."""
    newer = set()
    for image in images:
        file = next((one for one in (image, *image.parents) if os.path.lexists(one)), image)
        with suppress(OSError):
            stats = [file.lstat(), *([file.stat()] if file.is_symlink() else [])]
            if any(max(one.st_mtime_ns, one.st_ctime_ns) > time_ns for one in stats):
                newer.add(image)
    return newer


def _is_changed(image: Path | None, there: Record) -> bool:
    """Return True if an image has other pixels than those of which a store has the fingerprint."""
    if image is None or there.fingerprint is None:
        return False
    try:
        own = image_fingerprint(shared_decoders().open(image))
    except DataError:  # extraction reports an image that cannot be read
        return False
    return own != tuple(there.fingerprint)


def _are_others(detector: Detector, record: Record, stored: Regions) -> bool:
    """Return True if the precomputed regions of a record differ from those of a store."""
    assert isinstance(detector, GivenRegions)
    try:
        read = halved(replace(record, regions=detector.read(record))).regions
    except DataError:  # the store has the features from before they were damaged or removed
        return False
    there = stored.tensors()
    return read is None or any(not torch.equal(one, there[name]) for name, one in read.tensors().items())


def _from_root(record: Record) -> Record:
    """Return the record with an absolute path of its image."""
    return record if record.image is None else replace(record, image=Path(os.path.abspath(record.image)))


def _bytes(count: float) -> str:
    unit, size = next((one for one in (("GB", 1e9), ("MB", 1e6)) if count >= one[1] / 10), ("kB", 1e3))
    return f"{count / size:.3g} {unit}"
