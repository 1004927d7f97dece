"""Extract the regions of a user's images into a store that also contains the detector."""

import re
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from rich.console import Console

from diptych.core import Record
from diptych.core.folders import DETECTOR
from diptych.data.extract.extract import CPU, LOCAL, Extraction, extract
from diptych.data.extract.stamps import check_same, save_stamps, saved_stamps, stamps_of
from diptych.data.findings import KINDS, TURNED
from diptych.data.formats.format import LIST_THEM
from diptych.data.formats.parsing import Skips, are_many, refuse_many
from diptych.data.formats.table import read
from diptych.data.store.mirror import turn_of
from diptych.data.store.store import INDEX, Store
from diptych.runtime.devices import choose_device
from diptych.runtime.errors import DataError, RecipeError
from diptych.runtime.outputs import claim
from diptych.runtime.processes import PROCESSES, torchrun_processes
from diptych.runtime.progress import bar, tell
from diptych.runtime.terminal import printable
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.given import KIND as GIVEN
from diptych.vision.detectors.given import GivenRegions
from diptych.vision.detectors.open import open_detector

NAMED_SET = re.compile(r"([a-z][a-z0-9_]*)=(.+)")
MANY = 500  # with a GPU, processes open this many images or more; starting them takes seconds
NAMED = 5  # this many failures are printed; failures.jsonl lists all


def extract_regions(
    records: Sequence[Record], detector: Detector, folder: Path, console: Console | None = None, batch_size: int = 8,
    processes: int | None = None, engine: str = LOCAL, device: str = "auto", skip_bad: bool = False,
    stored: bool = False,
) -> Extraction:  # fmt: skip
    """Detect the regions of every image, and save regions and detector in a store.

    Models trained on this store include a copy of the detector. `processes` is by default 1 on a CPU, where threads are
    as fast and need no start; with a GPU or Ray it is the number of cores, up to 4. If there is a `console`, it shows a
    progress bar and the first failures. `stored`: boxes were converted from stored pixels, so that images that EXIF
    turns are not reported.
    """
    console = console or Console(quiet=True)
    claim(folder, "store")
    given = detector if isinstance(detector, GivenRegions) else None
    for note in given.files.notes if given is not None else ():
        tell(console, note)
    if not stored and (count := sum(turn_of(record) > 1 for record in records)):
        tell(console, f"{TURNED}: {count}; {KINDS[TURNED][1]}")
    chosen = CPU if device == "auto" and engine != LOCAL else choose_device(device, "--device")
    processes = processes or (PROCESSES if engine != LOCAL or (chosen != CPU and len(records) >= MANY) else 1)
    started = perf_counter()
    with bar("pictures", console) as progress:
        extracting = progress.add_task("extracting", total=len(records))

        def advance(count: int) -> bool:
            progress.advance(extracting, count)
            return given is None or skip_bad or not are_many(len(given.damaged), len(records))

        save_stamps(folder, stamps_of(records, detector) | saved_stamps(folder))
        done = extract(
            records, detector, folder, batch_size, progress=advance, processes=processes, engine=engine, device=chosen
        )
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
    features: Path | None = None, skip_bad: bool = False, complete: bool = False,
) -> Store:  # fmt: skip
    """Return `opened` if it is a store.

    If it is a list of records, extract their regions into a store in `folder` first. `opened`: what `open_data`
    returned for `data`. `features`: a file or folder of precomputed regions. With `features`, `detector` must be None,
    `given`, or the folder of a model that was trained on precomputed regions. A second call resumes an interrupted
    extraction. If the store was `complete`, it is only compared with the records, unless it was deleted. Raises
    DataError and RecipeError.
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
        check_same(store := Store(folder), records, data, finder)
        if complete:
            return store
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


def _bytes(count: float) -> str:
    unit, size = next((one for one in (("GB", 1e9), ("MB", 1e6)) if count >= one[1] / 10), ("kB", 1e3))
    return f"{count / size:.3g} {unit}"
