"""The feature files at a path: recognise their format, and find the regions of each image."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeVar
from unicodedata import normalize

from diptych.core import Record
from diptych.runtime.errors import DataError
from diptych.runtime.files import files_below
from diptych.vision.features import arrow, lmdb, npy, npz, tsv, vl_bert, vlp
from diptych.vision.features.raw import Folder, Listing, Raw, Unit, again, each_whole, read_as_data
from diptych.vision.upright import ENDINGS

# One function per format. Given the listed files, it returns the units of its format, such as one unit per tsv file.
FORMATS = {"npz": npz.units, "tsv": tsv.units, "h5": vlp.units, "npy": npy.units, "json": vl_bert.units,
           "LMDB": lmdb.units, "Arrow": arrow.units}  # fmt: skip
FORMS = (
    "npz of Diptych, X-modaler, MILVLG or UNITER; BUTD's or LXMERT's tsv; Unified VLP's h5 or npy; VL-BERT's json "
    "or zip; UNITER's or MMF's LMDB; MMF's npy; Hugging Face's Arrow"
)
T = TypeVar("T")
# The number 42 in a name such as COCO_val2014_000000000042.
NUMBER = re.compile(r"(?:coco_[a-z0-9]+_)?0*(\d+)", re.IGNORECASE)
DROPPED = tuple(f".{ending}" for ending in ("npz", "npy", "json")) + ENDINGS


class NoFeatures(DataError):
    """Raised if a file or folder has no features for an image.

    The message lists some names of features that are in it.
    """


@dataclass(frozen=True)
class Place:
    """The location of an image's regions: a unit (such as a file), and a name inside the unit."""

    unit: Unit
    name: str


@dataclass
class FeatureFiles:
    """All regions in the files at a path, by image name."""

    path: Path
    exact: dict[str, Place] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # messages about duplicates and about files that are not read
    _places: dict[str, list[Place]] = field(default_factory=dict)  # name -> all places with this name, in order
    # Truncated lines that are joined with the next line: (file, end of the joined line, with the next line's name).
    _joined: list[tuple[Path, str]] = field(default_factory=list)
    _loose: list[dict[str, Place | None]] = field(default_factory=lambda: [{}, {}, {}])

    def add(self, unit: Unit) -> None:
        """Add the names of a unit. If a name occurs twice, its first location counts.

        A unit is skipped if other units already have all its names.
        """
        names = [(_bare(name), name) for name in unit.names()]
        self.notes += getattr(unit, "problems", ())
        self._joined += [(unit.path, text) for text in getattr(unit, "joined", ())]
        times = Counter[str]()
        for bare, name in names:
            self._places.setdefault(bare, []).append(Place(unit, again(name, times[name])))
            times[name] += 1
        twice = [name for name, count in Counter(bare for bare, _ in names).items() if count > 1]
        new = [(bare, name) for bare, name in names if bare not in self.exact]
        if names and not new:
            taken = self.exact[names[0][0]].unit.path
            self.notes.append(f"{unit.path} has the same names as {taken}, which is read instead")
            return
        both = len(names) - len(new) + len(twice)
        if both:
            example = (twice or [names[0][0]])[0]
            first = "the first entry that is not cut short is read"
            self.notes.append(f"{unit.path}: {both} names occur twice, such as {example}: {first}")
        for bare, name in new:
            self._insert(bare, Place(unit, name))

    def _insert(self, bare: str, place: Place) -> None:
        if self.exact.setdefault(bare, place) is not place:
            return
        for known, form in zip(self._loose, _looser(bare), strict=True):
            if form:
                known[form] = None if form in known else place  # None: ambiguous, because several names have this form

    def of(self, record: Record) -> Place:
        """Return the location of a record's regions.

        These names are tried in order: the record's key, the image's path (then the path without its first folder, and
        so on), the file name, the file name in lower case, and the number in a COCO name. Raises NoFeatures if no name
        is found. Raises DataError if one of the last three names matches several features.
        """
        names = _names_of(record)
        for name in dict.fromkeys(names):
            if name in self.exact:
                return self.exact[name]
        forms = [_looser(name) for name in names]
        for place in (known[of[step]] for step, known in enumerate(self._loose) for of in forms if of[step] in known):
            if place is None:
                raise DataError(
                    f"several features in {self.path} match {record.key!r}; name the "
                    "features like the images, including their folders"
                )
            return place
        for path, joined in self._joined:
            if joined.endswith(tuple(names)):
                raise NoFeatures(
                    f"{path}: the line before {record.key!r} is truncated and joined with it; download the file again"
                )
        raise NoFeatures(
            f"found no features of {record.key!r} in {self.path}; name them like the image (the first names in it are "
            f"{', '.join(list(self.exact)[:3]) or 'none'})"
        )

    def file_of(self, record: Record) -> Path:
        """Return the file with a record's regions, or the newest file of a folder that is read as one.

        Raises DataError like `of`.
        """
        place = self.of(record)
        if isinstance(place.unit, Folder):
            return place.unit.files[place.name]
        path = place.unit.path
        return max(path.iterdir(), key=lambda one: one.stat().st_mtime_ns) if path.is_dir() else path

    def expect(self, record: Record) -> None:
        """Request a record's regions early. If a separate process reads the format, it then reads while this process
        computes."""
        with suppress(DataError):
            place = self.of(record)
            if isinstance(place.unit, vlp.ReleaseFiles):
                place.unit.expect(place.name)

    def read(self, record: Record, use: Callable[[Raw], T]) -> T:
        """Return `use(regions)` for the record's regions.

        If `use` raises DataError, the next regions of the same name are tried. If all fail, the first DataError is
        raised.
        """
        errors = []
        for place in self._places[_bare(self.of(record).name)]:
            try:
                with read_as_data(f"{place.unit.path}, {place.name!r}"):
                    return use(place.unit.read(place.name))
            except DataError as error:
                errors.append(error)
        raise errors[0]

    def some(self, count: int) -> Iterator[Raw]:
        """Yield the regions of up to `count` images, evenly spaced over all names. Unreadable regions are skipped."""
        places = list(self.exact.values())
        for place in places[:: max(1, -(-len(places) // count))]:
            with suppress(DataError), read_as_data(f"{place.unit.path}, {place.name!r}"):
                yield place.unit.read(place.name)

    def matching(self, records: list[Record]) -> Iterator[Record]:
        """Yield the records that have features.

        At the end, add a note with the number of features that match no image.
        """
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
            self.notes.append(f"{unused} of {len(self.exact)} features in {self.path} match none of the images")


def state_of(path: Path) -> str:
    """Return a digest of the names, sizes and modification times of all files at a path."""
    hashed = hashlib.sha256()
    for file in files_below(path) if path.is_dir() else [path]:
        state = file.stat()
        hashed.update(f"{file} {state.st_size} {state.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return hashed.hexdigest()


def open_features(path: Path) -> FeatureFiles:
    """Open the features at a path. If several formats fit, the format with the most images is used.

    Raises DataError if no file has a known format.
    """
    if not path.exists():
        raise DataError(f"found nothing at {path}, expected features: {FORMS}")
    listing = _listed(path)
    by_format = {name: units for name, units_of in FORMATS.items() if (units := units_of(listing))}
    if not by_format:
        has = ", ".join(f"{len(files)} {ending or 'without ending'}" for ending, files in listing.files.items())
        raise DataError(f"found no features in {path} ({has or 'an empty folder'}), expected {FORMS}")
    sets = {name: _opened(path, units) for name, units in by_format.items()}
    best = max(sets.values(), key=lambda one: len(one.exact))
    for name, other in sets.items():
        if other is not best:
            best.notes.append(f"{path} also has {len(other.exact)} files or rows of {name}, which are not read")
    return best


def _opened(path: Path, units: list[Unit]) -> FeatureFiles:
    files = FeatureFiles(path)

    def add(unit: Unit) -> None:
        with read_as_data(str(unit.path)):
            files.add(unit)

    each_whole(units, add, files.notes)
    return files


def _listed(path: Path) -> Listing:
    """List the files at a path.

    An h5 file or a data.mdb belongs to a set of files, so for these the whole folder is listed.
    """
    if path.name == "data.mdb":
        path = path.parent
    root, paths = (path.parent, [path]) if path.is_file() else (path, [])
    if not paths:
        paths = files_below(path)
    elif path.suffix.lower() in vlp.ENDINGS:
        paths = [file for file in files_below(root) if file.suffix.lower() in vlp.ENDINGS]
    files: dict[str, list[Path]] = {}
    for file in filter(Path.is_file, paths):  # only regular files: reading a pipe may never end
        files.setdefault(file.suffix.lower(), []).append(file)
    return Listing(root, {ending: tuple(some) for ending, some in files.items()})


def _bare(name: str) -> str:
    """Return a name in NFC, without the endings of image and feature files, such as .jpg or .npz."""
    name = normalize("NFC", name)
    while name.lower().endswith(DROPPED) and PurePosixPath(name).stem:
        name = name[: name.rindex(".")]
    return name


def _names_of(record: Record) -> list[str]:
    parts = () if record.image is None else record.image.parts
    paths = ("/".join(parts[first:]) for first in range(len(parts)))
    return [_bare(name) for name in (record.key, *paths) if name]


def _looser(name: str) -> tuple[str, str, str]:
    last = name.rpartition("/")[2]
    number = NUMBER.fullmatch(last)
    return last, last.lower(), "" if number is None else number[1]
