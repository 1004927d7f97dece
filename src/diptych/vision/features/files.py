"""Feature files at a path: which format lies there, and where in it the regions of a picture are."""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from diptych.core import Record
from diptych.runtime.errors import DataError
from diptych.vision.features import arrow, lmdb, npy, npz, tsv, vl_bert, vlp
from diptych.vision.features.raw import Listing, Raw, Unit, read_as_data
from diptych.vision.pictures import ENDINGS

FORMATS = (npz.FORMAT, tsv.FORMAT, vlp.FORMAT, npy.FORMAT, vl_bert.FORMAT, lmdb.FORMAT, arrow.FORMAT)
FORMS = (
    "npz of our own, of X-modaler, MILVLG or UNITER; BUTD's or LXMERT's tsv; Unified VLP's h5 or npy; VL-BERT's json "
    "or zip; UNITER's or MMF's LMDB; MMF's npy; Hugging Face's Arrow"
)
NUMBER = re.compile(r"(?:coco_[a-z0-9]+_)?0*(\d+)", re.IGNORECASE)  # of a name such as COCO_val2014_000000000042
DROPPED = tuple(f".{ending}" for ending in ("npz", "npy", "json")) + ENDINGS


class NoFeatures(DataError):
    """A picture of which a file or folder of features has none. The message names some that are there."""


@dataclass(frozen=True)
class Place:
    unit: Unit
    name: str


@dataclass
class FeatureFiles:
    """All regions of a path, by the names of their pictures."""

    path: Path
    exact: dict[str, Place] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what is there twice, or left aside
    _loose: list[dict[str, Place | None]] = field(default_factory=lambda: [{}, {}, {}])

    def add(self, unit: Unit) -> None:
        """A set whose every name is known is there twice: one is taken. A name that comes twice is taken once."""
        names = [(_bare(name), name) for name in unit.names()]
        again = [name for name, count in Counter(bare for bare, _ in names).items() if count > 1]
        new = [(bare, name) for bare, name in names if bare not in self.exact]
        if names and not new:
            taken = self.exact[names[0][0]].unit.path
            self.notes.append(f"{unit.path} has again what {taken} has: the latter is taken")
            return
        both = len(names) - len(new) + sum(1 for _ in again)
        if both:
            self.notes.append(f"{unit.path}: {both} names are there twice, such as {(again or [names[0][0]])[0]}: the "
                              "first is taken")  # fmt: skip
        for bare, name in new:
            self._insert(bare, Place(unit, name))

    def _insert(self, bare: str, place: Place) -> None:
        if self.exact.setdefault(bare, place) is not place:
            return
        for known, form in zip(self._loose, _looser(bare), strict=True):
            if form is not None:
                known[form] = None if form in known else place  # None: more than one may be meant

    def of(self, record: Record) -> Place:
        """By its key, else by its path from any folder on, the longest first, else by its name in lower case or the
        number that ends a COCO name."""
        parts = () if record.image is None else record.image.parts
        names = [
            _bare(name) for name in (record.key, *("/".join(parts[first:]) for first in range(len(parts)))) if name
        ]
        for name in dict.fromkeys(names):
            if name in self.exact:
                return self.exact[name]
        for step, known in enumerate(self._loose):
            for name in names:
                form = _looser(name)[step]
                if form is not None and form in known:
                    place = known[form]
                    if place is None:
                        raise DataError(
                            f"found several features in {self.path} that may be those of {record.key!r}, wanted one; "
                            "name them as the pictures are named, with their folders"
                        )
                    return place
        raise NoFeatures(
            f"found no features of {record.key!r} in {self.path}, wanted them, under its name; such as are there: "
            f"{', '.join(list(self.exact)[:3]) or 'none'}"
        )

    def read(self, record: Record) -> Raw:
        place = self.of(record)
        with read_as_data(f"{place.unit.path}, {place.name!r}"):
            return place.unit.read(place.name)

    def some(self, count: int) -> Iterator[Raw]:
        """Of so many pictures, evenly spaced over all; what cannot be read is left out."""
        places = list(self.exact.values())
        for place in places[:: max(1, -(-len(places) // count))]:
            with suppress(DataError), read_as_data(f"{place.unit.path}, {place.name!r}"):
                yield place.unit.read(place.name)

    def fitting(self, records: list[Record]) -> Iterator[Record]:
        """The records that have features; and a note of features that fit no picture."""
        used = set()
        for record in records:
            try:
                place = self.of(record)
            except DataError:
                continue
            used.add((id(place.unit), place.name))
            yield record
        unused = len(self.exact) - len(used)
        if unused and records:
            self.notes.append(f"{unused} of {len(self.exact)} features in {self.path} fit none of the pictures")


def state_of(path: Path) -> str:
    """A digest of the names, sizes and times of all files there."""
    hashed = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        state = file.stat()
        hashed.update(f"{file} {state.st_size} {state.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return hashed.hexdigest()


def open_features(path: Path) -> FeatureFiles:
    """Raises DataError where nothing is there that a reader knows."""
    if not path.exists():
        raise DataError(f"found nothing at {path}, wanted features: {FORMS}")
    listing = _listed(path)
    found = {one.name: units for one in FORMATS if (units := one.units(listing))}
    if not found:
        has = ", ".join(f"{len(files)} {ending or 'without ending'}" for ending, files in listing.files.items())
        raise DataError(f"found no features in {path} ({has or 'an empty folder'}), wanted {FORMS}")
    sets = {name: _opened(path, units) for name, units in found.items()}
    best = max(sets.values(), key=lambda one: len(one.exact))
    for name, other in sets.items():
        if other is not best:
            best.notes.append(f"{path} has {len(other.exact)} files or rows of {name} too, which are not read")
    return best


def _opened(path: Path, units: list[Unit]) -> FeatureFiles:
    files = FeatureFiles(path)
    for unit in units:
        with read_as_data(str(unit.path)):
            files.add(unit)
    return files


def _listed(path: Path) -> Listing:
    """A file stands for itself, but one that is a part of more for its folder."""
    if path.name == "data.mdb":
        path = path.parent
    alone = path.is_file() and path.suffix.lower() not in vlp.ENDINGS
    if path.is_file():
        root, found = path.parent, [path]
        if not alone:  # of VLP's files, one tells nothing without the others
            found = sorted(one for one in root.rglob("*") if one.suffix.lower() in vlp.ENDINGS)
    else:
        root = path
        found = sorted(Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    files: dict[str, list[Path]] = {}
    for one in found:
        files.setdefault(one.suffix.lower(), []).append(one)
    return Listing(root, {ending: tuple(paths) for ending, paths in files.items()})


def _bare(name: str) -> str:
    """Without the ending of a picture or of a file of features."""
    while name.lower().endswith(DROPPED) and PurePosixPath(name).stem:
        name = name[: name.rindex(".")]
    return name


def _looser(name: str) -> tuple[str, str, str | None]:
    last = name.rpartition("/")[2]
    number = NUMBER.fullmatch(last)
    return last, last.lower(), None if number is None else number[1]
