"""Files of features as others publish them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from diptych.core import Record, Regions
from diptych.vision.detectors.given import GivenRegions

FILES = Path(__file__).parent.parent / "data" / "region_features"


TRUTH = dict(np.load(FILES / "truth.npz"))


IDS = ("COCO_val2014_000000000042", "COCO_val2014_000000000139")


BUTD, VLP, UNITER = "butd_tsv", "vlp_h5", "uniter/coco_val2014"


PREFIX = "coco_detection_vg_100dets_vlp_checkpoint_trainval"


def size_of(name: str) -> tuple[int, int]:
    width, height = TRUTH[f"{name}.size"].tolist()
    return width, height


def read(path: Path, key: str, size: tuple[int, int] | None = None, **more: Any) -> Regions:
    record = Record(key, size=size)
    return GivenRegions.of(path, [record], **more).detect([], [record])[0]


def features_of(regions: Regions) -> np.ndarray[Any, np.dtype[np.float32]]:
    assert regions.features is not None
    return regions.features.numpy()


def copied(path: str, folder: Path) -> Path:
    """A writable copy, its pictures of the name 42 and 139."""
    target = folder / Path(path).name
    shutil.copytree(FILES / path, target)
    return target


JSON = "vl_bert_json/val2014_resnet101_faster_rcnn_genome"
