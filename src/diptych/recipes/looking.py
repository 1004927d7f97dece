"""Extraction as a user asks for it: eyes by name, a store that carries them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from diptych.core import Record
from diptych.errors import DataError, RecipeError, nearest
from diptych.loading.extract import Extraction, extract
from diptych.loading.several import SeveralStores
from diptych.loading.store import INDEX, Store, iterate
from diptych.processes import PROCESSES
from diptych.progress import bar
from diptych.recipes.folder import EYES, INNER
from diptych.sources.anything import FORMS, read
from diptych.sources.reading import Skips
from diptych.vision.eyes import Eyes
from diptych.vision.faster_rcnn import WHOLE_NETWORKS, FasterRCNN, coco_shape
from diptych.vision.given import Given
from diptych.vision.grid import Grid
from diptych.vision.ground_truth import GroundTruth
from diptych.vision.load import load_eyes
from diptych.vision.selection import SELECTIONS
from diptych.vision.whole import WithWhole

NAMED_SET = re.compile(r"([a-z][a-z0-9_]*)=(.+)")
MANY = 500  # pictures that are worth processes of their own, which take a few seconds to start
NAMED = 5  # failures that are shown; failures.jsonl has all


def open_eyes(
    name: str,
    records: Sequence[Record],
    features: Path | None = None,
    weights: Path | None = None,
    select: str | None = None,
) -> Eyes:
    """By name: a folder of eyes, of a store, of a model or of the run that made one; or what no folder need hold.

    ground-truth    the things of the records           grid:resnet18    cells of a backbone, torchvision's or timm's
    given           one npz a picture, in `features`
    fasterrcnn_...  a torchvision detector, its weights from `weights` (with torchvision's 91 classes) or the network
    """
    if (name == "given") != (features is not None):
        raise RecipeError("--detector given and --features FOLDER belong together: give both, or neither")
    if features is not None:
        return Given.of(features, records)
    if name == "ground-truth":
        return GroundTruth.of(records)
    if name.startswith("grid:"):
        return Grid.of(name.removeprefix("grid:"), pretrained=True)
    if select is not None and select not in SELECTIONS:
        raise RecipeError(f"no selection {select!r}; {nearest(select, SELECTIONS)}")
    if name in WHOLE_NETWORKS:
        selection = SELECTIONS[select or "unified-vlp"]
        if weights is None:
            return FasterRCNN.from_torchvision(name, selection=selection)
        return FasterRCNN.from_file(weights, coco_shape(name), selection)
    folder = Path(name)
    for inside in (folder, folder / EYES, folder / INNER / EYES):
        if (inside / "eyes.json").is_file():
            return load_eyes(inside)
    raise RecipeError(
        f"no detector {name!r}; wanted a folder with eyes.json (of a detector, a store or a model), ground-truth, "
        f"given, grid:BACKBONE, or one of torchvision's: {', '.join(WHOLE_NETWORKS)}"
    )


def with_whole(eyes: Eyes, backbone: str | None) -> Eyes:
    """The same regions with the whole picture's feature of a backbone: its name, or a folder of grid eyes."""
    if backbone is None:
        return eyes
    if not (Path(backbone) / "eyes.json").is_file():
        return WithWhole.of(eyes, backbone)
    grid = load_eyes(Path(backbone))
    if not isinstance(grid, Grid):
        raise RecipeError(f"--whole {backbone} holds {grid.contract.extractor}; wanted a backbone, saved as grid eyes")
    return WithWhole(eyes, grid.backbone)


def look(
    records: Sequence[Record],
    eyes: Eyes,
    folder: Path,
    batch_size: int = 16,
    progress: Callable[[int], object] | None = None,
    processes: int | None = None,
) -> Extraction:
    """Regions for every picture; the eyes are kept beside them, for the models that will be made from them.

    Without a number, as many processes as there are cores where the pictures are worth starting them.
    """
    processes = processes or (PROCESSES if len(records) >= MANY else 1)
    done = extract(records, eyes, folder, batch_size, progress=progress, processes=processes)
    (folder / EYES).mkdir(exist_ok=True)
    eyes.save(folder / EYES)
    return done


def look_and_tell(
    records: Sequence[Record],
    eyes: Eyes,
    folder: Path,
    console: Console,
    batch_size: int = 16,
    processes: int | None = None,
) -> Extraction:
    """The same with a progress bar; what failed is named."""
    with bar("pictures") as progress:
        looking = progress.add_task("looking", total=len(records))
        done = look(records, eyes, folder, batch_size, lambda count: progress.advance(looking, count), processes)
    for key, reason in list(done.failed.items())[:NAMED]:
        tell(console, f"  {key}: {reason}")
    return done


def tell(console: Console, message: str) -> None:
    """As it is: names in brackets are no markup, and a path is not broken in two."""
    console.print(message, markup=False, highlight=False, soft_wrap=True)


def read_and_tell(
    data: Path, console: Console, pictures: Path | None, split: str | None, seed: int, look: bool = True
) -> list[Record]:
    """The records of a user's data; what was passed over is counted."""
    skips = Skips()
    records = read(data, pictures, split=split, seed=seed, look=look, skips=skips)
    if skips.counts:
        tell(console, f"passed over: {skips}")
    return records


def store_of(data: Path, folder: Path, detector: str | None, console: Console, seed: int = 0) -> Store:
    """A store as it is; of any other data the regions are found on the way, and a store of them is made in `folder`.

    The same call goes on where it was stopped.
    """
    if (data / INDEX).is_file():
        return Store(data)
    if not data.exists():
        raise DataError(f"nothing at {data}; wanted a store, which `diptych extract DATA STORE` makes, or {FORMS}")
    if detector is None:
        raise RecipeError(
            f"{data} is no store, and regions have to be found first: say with what (--model or --detector), or run "
            f"diptych extract {data} STORE --detector ..."
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RecipeError(
            f"several processes do not share the looking; do it once: diptych extract {data} STORE --detector "
            f"{detector}, then give --data STORE"
        )
    records = read_and_tell(data, console, None, None, seed)
    eyes = open_eyes(detector, records)
    if not eyes.looks:
        raise DataError(
            f"{detector} has no eyes of its own: its regions were from {eyes.contract.extractor}; give it a store made "
            f"so: diptych extract {data} STORE --detector {eyes.contract.extractor}"
            + (" --features FOLDER" if isinstance(eyes, Given) else "")
        )
    done = look_and_tell(records, eyes, folder, console)
    store = Store(folder)
    splits = ", ".join(f"{name} {count}" for name, count in sorted(store.splits.items()))
    tell(console, f"{done.summary()}; {folder}: {splits}")
    _same_words(store, records, data)
    return store


def stores_of(named: Sequence[str], out: Path, detector: str | None, console: Console, seed: int = 0) -> Store:
    """One set of data as `store_of` has it, or several with names, `cc=STORE`, as one store."""
    if len(named) == 1 and not NAMED_SET.fullmatch(named[0]):
        return store_of(Path(named[0]), out / "store", detector, console, seed)
    found: dict[str, Store] = {}
    for one in named:
        parts = NAMED_SET.fullmatch(one)
        if parts is None or parts[1] in found:
            raise RecipeError(
                f"--data {one}: several sets of data want names of their own, such as --data cc=STORE --data sbu=STORE"
            )
        found[parts[1]] = store_of(Path(parts[2]), out / f"store-{parts[1]}", detector, console, seed)
    return SeveralStores(found)


def _same_words(store: Store, records: Sequence[Record], data: Path) -> None:
    """Refuse a store that was filled before the data, or its splits, were changed."""
    wanted = {record.key: record for record in records}
    for there in iterate(store):
        known = wanted.get(there.key)
        if known is None or replace(_from_root(known), size=there.size) != _from_root(there):
            raise DataError(
                f"{store.folder} was filled when {data} said something else of {there.key!r} (its words, or its split: "
                "another --seed); give another --out, or delete that folder"
            )


def _from_root(record: Record) -> Record:
    """A picture is the same, from wherever its name starts."""
    return record if record.picture is None else replace(record, picture=Path(os.path.abspath(record.picture)))
