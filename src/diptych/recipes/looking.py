"""Extraction as a user asks for it: eyes by name, a store that carries them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from diptych.core import Record
from diptych.errors import RecipeError, nearest
from diptych.loading.extract import Extraction, extract
from diptych.recipes.folder import EYES, INNER
from diptych.vision.eyes import Eyes
from diptych.vision.faster_rcnn import WHOLE_NETWORKS, FasterRCNN, coco_shape
from diptych.vision.grid import Grid
from diptych.vision.ground_truth import GroundTruth
from diptych.vision.load import load_eyes
from diptych.vision.selection import SELECTIONS


def open_eyes(name: str, records: Sequence[Record], weights: Path | None = None, select: str | None = None) -> Eyes:
    """By name: a folder of eyes, of a store, of a model or of the run that made one; or what no folder need hold.

    ground-truth    the things of the records           grid:resnet18    cells of a backbone, torchvision's or timm's
    fasterrcnn_...  a torchvision detector, its weights from `weights` (with torchvision's 91 classes) or the network
    """
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
        f"grid:BACKBONE, or one of torchvision's: {', '.join(WHOLE_NETWORKS)}"
    )


def look(
    records: Sequence[Record],
    eyes: Eyes,
    folder: Path,
    batch_size: int = 16,
    progress: Callable[[int], object] | None = None,
) -> Extraction:
    """Regions for every picture; the eyes are kept beside them, for the models that will be made from them."""
    done = extract(records, eyes, folder, batch_size, progress=progress)
    (folder / EYES).mkdir(exist_ok=True)
    eyes.save(folder / EYES)
    return done
