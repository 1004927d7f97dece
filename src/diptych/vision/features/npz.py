"""One npz a picture: our own, and those of X-modaler (TDEN), MILVLG and UNITER, told apart by the names of arrays.

ours                       features boxes width height, perhaps classes scores; with scores, best first
X-modaler                  features boxes cls_prob image_w image_h num_boxes; rows as they lie (TDEN takes the first)
X-modaler, features alone  one array of any name
MILVLG                     x bbox image_w image_h num_bbox; `info` is a pickle, and is not read
UNITER                     norm_bb (fractions, 7 a row) features conf soft_labels
"""

import io
import zipfile
from pathlib import Path
from typing import Any

from diptych.runtime.errors import DataError
from diptych.vision.features.raw import (
    Array,
    FeatureFormat,
    Folder,
    Listing,
    Raw,
    Unit,
    not_too_large,
    read_npy,
    refuse,
)

FIELDS = {
    "features": ("features", "x"),
    "boxes": ("boxes", "bbox", "norm_bb"),
    "width": ("width", "image_w"),
    "height": ("height", "image_h"),
    "classes": ("classes", "cls_prob", "soft_labels"),
    "scores": ("scores", "conf"),
    "count": ("num_boxes", "num_bbox"),
}
NORM_BB = 7  # numbers a region
ASIDE = ("info", "image_id", "allow_pickle", "allow_pickle_")  # said of the file, or a slip of numpy's `savez`


def units(listing: Listing) -> list[Unit]:
    files = listing.named(".npz")
    return [Folder(listing.root, files, read_npz)] if files else []


FORMAT = FeatureFormat("npz", units)


def read_npz(file: Path | io.BytesIO, where: str = "") -> Raw:
    """Nothing in the file is run, and nothing larger than MOST_BYTES is unpacked."""
    where = where or str(file)
    try:
        with zipfile.ZipFile(file) as archive:
            there = [name.removesuffix(".npy") for name in archive.namelist()]
            kept = [name for name in there if any(name in names for names in FIELDS.values())]
            named = [name for name in there if name not in ASIDE]
            if not kept and len(named) == 1:
                kept = named
            arrays = {name: _array(archive, where, name) for name in kept}
    except DataError:
        raise
    except Exception as error:  # zip's and numpy's readers raise LZMAError, TokenError, SyntaxError and more
        raise DataError(f"{where}: found no npz that can be read ({error}), wanted one; write the file anew") from error
    if len(kept) == 1 and kept == named:
        return Raw(where, arrays[kept[0]], named=kept[0])
    return _raw(where, arrays, there)


def _array(archive: zipfile.ZipFile, where: str, name: str) -> Any:
    not_too_large(archive.getinfo(f"{name}.npy").file_size, where, name)
    return read_npy(archive.read(f"{name}.npy"), where, name)


def _raw(where: str, arrays: dict[str, Array], there: list[str]) -> Raw:
    found = {field: next((name for name in names if name in arrays), None) for field, names in FIELDS.items()}
    wanted = ("features", "boxes") if found["boxes"] == "norm_bb" else ("features", "boxes", "width", "height")
    if missing := [field for field in wanted if found[field] is None]:
        refuse(where, ", ".join(sorted(there)[:8]) or "nothing", f"also {', '.join(missing)}")
    of = {field: None if name is None else arrays[name] for field, name in found.items()}
    features, boxes, rows = of["features"], of["boxes"], of["count"]
    assert features is not None
    assert boxes is not None
    if rows is not None and (rows.size != 1 or not features.ndim or rows.reshape(-1)[0] != len(features)):
        refuse(where, f"`{found['features']}` {features.shape} and {found['count']} {rows.tolist()}", "as many of both")
    if fractions := found["boxes"] == "norm_bb":
        if boxes.ndim != 2 or boxes.shape[1] != NORM_BB:
            refuse(where, f"`norm_bb` {boxes.shape}", "seven numbers a region: x1 y1 x2 y2 w h area")
        boxes = boxes[:, :4]
    size = None if of["width"] is None else (of["width"], of["height"])
    return Raw(where, features, boxes, size, fractions, of["classes"], of["scores"],
               best_first=found["scores"] != "scores", named=found["features"] or "features")  # fmt: skip
