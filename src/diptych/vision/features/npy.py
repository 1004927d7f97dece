"""Formats with two npy files per image: MMF (NAME.npy, NAME_info.npy) and older VLP (ID.npy, ID_cls_prob.npy).

`_info.npy` is a pickled dictionary (bbox, image_width, image_height, cls_prob, ...), read without running code. VLP
stores the boxes of all images in one h5 file in the same folder.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from diptych.runtime.files import bytes_of
from diptych.vision.features.raw import Array, Folder, Listing, Raw, Unit, check_size, read_npy, refuse
from diptych.vision.features.vlp import Boxes, boxes_below

INFO, CLASSES = "_info.npy", "_cls_prob.npy"


def units(listing: Listing) -> list[Unit]:
    files = {name: path for name, path in listing.named(".npy").items() if not path.name.endswith((INFO, CLASSES))}
    return [Folder(listing.root, files, partial(_read, boxes_below(listing)))] if files else []


def _read(boxes: Boxes | None, path: Path) -> Raw:
    features = _load(path, "features")
    info, classes = (path.with_name(path.name.removesuffix(".npy") + more) for more in (INFO, CLASSES))
    if info.is_file():
        return of_info(_load(info, "info", objects=True), features, str(path))
    rows = boxes.of(path.stem, str(path)) if boxes is not None else None
    probabilities = _load(classes, "cls_prob") if classes.is_file() else None
    if rows is None:
        return Raw(str(path), features, classes=probabilities)
    return Raw(str(path), features, rows[:, :4], classes=probabilities, scores=rows[:, 5])


def _load(path: Path, name: str, objects: bool = False) -> Any:
    check_size(path.stat().st_size, str(path), name)
    return read_npy(bytes_of(path), str(path), name, objects)


def of_info(info: Any, features: Any, where: str) -> Raw:
    """Convert MMF's dictionary `info`. If `features` is None, the dictionary also contains the features."""
    if isinstance(info, np.ndarray) and info.dtype.hasobject and info.ndim == 0:
        info = info[()]
    if not isinstance(info, Mapping):
        refuse(where, f"{type(info).__name__} instead of the regions' data", "a dictionary with `bbox` and `features`")
    features = info.get("features") if features is None else features
    if not isinstance(features, np.ndarray):
        refuse(where, "no array `features`", "an array of features")
    boxes, width, height = (info.get(name) for name in ("bbox", "image_width", "image_height"))
    rows = info.get("num_boxes")
    if rows is not None and rows != len(features):
        refuse(where, f"{len(features)} rows of features and `num_boxes` {rows}", "equal numbers")
    classes = _array(info.get("cls_prob"))  # all probabilities per region; in some releases only the maximum
    return Raw(
        where, features, _array(boxes), None if width is None or height is None else (width, height),
        classes=classes if classes is not None and classes.ndim > 1 else None,
        scores=classes if classes is not None and classes.ndim == 1 else None, one_side=True,
    )  # fmt: skip


def _array(value: Any) -> Array | None:
    return value if isinstance(value, np.ndarray) else None
