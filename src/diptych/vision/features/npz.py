"""Formats with one npz file per image: Diptych, X-modaler (TDEN), MILVLG and UNITER.

They are recognised by array names.

- Diptych: features boxes width height, optionally classes scores; rows are sorted by score if there are scores
- X-modaler: features boxes cls_prob image_w image_h num_boxes; rows stay in file order, and TDEN uses the first rows
- X-modaler without boxes: one array of any name
- MILVLG: x bbox image_w image_h num_bbox; the pickle `info` is not read
- UNITER: norm_bb (fractions, 7 per row) features conf soft_labels
"""

import io
import zipfile
from pathlib import Path
from typing import Any

from diptych.runtime.errors import DataError, explained
from diptych.runtime.zipped import read_zipped
from diptych.vision.features.raw import Array, Folder, Listing, Raw, Unit, check_size, read_npy, refuse

FIELDS = {
    "features": ("features", "x"),
    "boxes": ("boxes", "bbox", "norm_bb"),
    "width": ("width", "image_w"),
    "height": ("height", "image_h"),
    "classes": ("classes", "cls_prob", "soft_labels"),
    "scores": ("scores", "conf"),
    "count": ("num_boxes", "num_bbox"),
}
NORM_BB = 7  # numbers per region in norm_bb
# Arrays that are ignored: metadata, or arguments that extraction scripts passed to `savez` by mistake.
ASIDE = ("info", "image_id", "allow_pickle", "allow_pickle_")


def units(listing: Listing) -> list[Unit]:
    files = listing.named(".npz")
    return [Folder(listing.root, files, read_npz)] if files else []


def read_npz(file: Path | io.BytesIO, where: str = "") -> Raw:
    """Read an npz without running code. Raises DataError if it cannot be read or an array is larger than MOST_BYTES."""
    where = where or str(file)
    problem, remedy = f"{where}: not a readable npz file", "write the file again"
    # zipfile and numpy raise LZMAError, TokenError, SyntaxError and more
    with explained(DataError, problem, remedy, Exception), zipfile.ZipFile(file) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        fields = [name for name in names if any(name in known for known in FIELDS.values())]
        data = [name for name in names if name not in ASIDE]
        if not fields and len(data) == 1:
            fields = data
        arrays = {name: _array(archive, where, name) for name in fields}
    if len(fields) == 1 and fields == data:
        return Raw(where, arrays[fields[0]], named=fields[0])
    return _raw(where, arrays, names)


def _array(archive: zipfile.ZipFile, where: str, name: str) -> Any:
    check_size(archive.getinfo(f"{name}.npy").file_size, where, name)
    return read_npy(read_zipped(archive, f"{name}.npy"), where, name)


def _raw(where: str, arrays: dict[str, Array], all_names: list[str]) -> Raw:
    name_of = {field: next((name for name in names if name in arrays), "") for field, names in FIELDS.items()}
    fractions = name_of["boxes"] == "norm_bb"
    wanted = ("features", "boxes") if fractions else ("features", "boxes", "width", "height")
    if missing := [field for field in wanted if not name_of[field]]:
        refuse(where, ", ".join(sorted(all_names)[:8]) or "nothing", f"also {', '.join(missing)}")
    features, boxes = arrays[name_of["features"]], arrays[name_of["boxes"]]
    width, height, rows, classes, scores = (
        arrays.get(name_of[field]) for field in ("width", "height", "count", "classes", "scores")
    )
    if rows is not None and (rows.size != 1 or not features.ndim or rows.reshape(-1)[0] != len(features)):
        shapes = f"`{name_of['features']}` {features.shape} and `{name_of['count']}` {rows.tolist()}"
        refuse(where, shapes, "the same number of boxes and features")
    if fractions:
        if boxes.ndim != 2 or boxes.shape[1] != NORM_BB:
            refuse(where, f"`norm_bb` of shape {boxes.shape}", "seven numbers per region: x1 y1 x2 y2 w h area")
        boxes = boxes[:, :4]
    size = None if width is None else (width, height)
    best_first = name_of["scores"] != "scores"
    return Raw(where, features, boxes, size, fractions, classes, scores, best_first, name_of["features"])
