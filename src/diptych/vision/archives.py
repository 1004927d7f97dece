"""Read an image inside a tar or zip, or two images as one, from paths such as:

cc3m/00000.tar/000000012.jpg                    a member of an archive
dev/dev-850-0-img0.png+dev-850-0-img1.png       two images of a folder as one, for NLVR2's statements
"""

import io
import os
import tarfile
import zipfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from diptych.runtime.errors import DataError, explained
from diptych.runtime.files import bytes_of
from diptych.runtime.zipped import DAMAGED, read_zipped

TAR, ZIP = ".tar", ".zip"
BESIDE = "+"
MOST_BYTES = 256 * 2**20  # maximum number of bytes of an image in an archive
UNCLEAR = -1  # offset for a name that two different members of a zip share
KEPT = 32  # number of archives whose lists of members are cached


def beside(path: Path) -> tuple[Path, Path] | None:
    """Return the two image paths in a path such as A.png+B.png. Return None for a path of one image."""
    left, plus, right = path.name.partition(BESIDE)
    if not plus or {left, right} & {"", ".", ".."} or path.is_file():
        return None
    if (inside := archive_of(path)) is not None and _member(*inside) is not None:
        return None
    return path.with_name(left), path.with_name(right)


def archive_of(path: Path) -> tuple[Path, str] | None:
    """Split a path such as A.tar/7.jpg into the archive and the name inside it. Return None for an ordinary path."""
    text = str(path).lower()
    if TAR not in text and ZIP not in text:  # a quick test first, for data sets with millions of paths
        return None
    for outer in path.parents:
        if outer.suffix.lower() in (TAR, ZIP):
            return (outer, path.relative_to(outer).as_posix()) if outer.is_file() else None
    return None


def is_there(name: Path | str) -> bool:
    """Return True if there is an image at a path: a file, a member of an archive, or both images of a pair."""
    if os.path.isfile(name):
        return True
    text = str(name).lower()
    if not any(sign in text for sign in (TAR, ZIP, BESIDE)):  # a quick test first, for data sets with millions of paths
        return False
    path = Path(name)
    if (two := beside(path)) is not None:
        return all(is_there(one) for one in two)
    inside = archive_of(path)
    return inside is not None and _member(*inside) is not None


def content(path: Path) -> io.BytesIO | io.BufferedReader:
    """Open a file or an archive's member.

    Raises FileNotFoundError if it is missing, and DataError if a member cannot be read.
    """
    inside = archive_of(path)
    return path.open("rb") if inside is None else io.BytesIO(read_member(*inside))


def read_bytes(path: Path) -> bytes:
    """Return the bytes of an image file. For a pair of images, return the bytes of both files, joined."""
    if (two := beside(path)) is not None:
        return b"".join(read_bytes(one) for one in two)
    inside = archive_of(path)
    return bytes_of(path) if inside is None else read_member(*inside)


def members(archive: Path) -> dict[str, tuple[int, int]]:
    """Return the offset and length in bytes of each complete member, by name. For a zip, offsets are 0 or UNCLEAR."""
    status = archive.stat()
    return _members(archive, status.st_mtime_ns, status.st_size)[0]


def _member(archive: Path, name: str) -> tuple[int, int] | None:
    entry = members(archive).get(name)
    if entry is not None and entry[0] == UNCLEAR:
        raise DataError(f"{archive}: found {name} twice with different contents, expected once; make the zip again")
    return entry


def damaged_members(archive: Path) -> list[str]:
    """Return a message for each damaged or truncated member of a tar. All other members can still be read."""
    status = archive.stat()
    return _members(archive, status.st_mtime_ns, status.st_size)[1]


@lru_cache(maxsize=KEPT)
def _members(archive: Path, _changed: int, size: int) -> tuple[dict[str, tuple[int, int]], list[str]]:
    with explained(DataError, f"{archive}: cannot be read as an archive", "download it again", *DAMAGED):
        if archive.suffix.lower() == ZIP:
            with zipfile.ZipFile(archive) as opened:
                listed = [(one.filename, one.CRC, one.file_size) for one in opened.infolist()]
            last = {one[0]: one for one in listed}
            twice = [one[0] for one in listed if last[one[0]] != one]
            return {name: (0, size) for name, _, size in listed} | dict.fromkeys(twice, (UNCLEAR, 0)), []
        entries, damaged, twice = _of_tar(archive, size, pass_over=False)
        if damaged:  # tarfile stops at a damaged header, so search for members after it
            entries, _, twice = _of_tar(archive, size, pass_over=True)
        damaged += [f"{archive}: {name} occurs twice, and the last one is read; remove one" for name in twice]
    return entries, damaged


def _of_tar(archive: Path, size: int, pass_over: bool) -> tuple[dict[str, tuple[int, int]], list[str], list[str]]:
    """Return the complete members of a tar, a message per fault, and names that occur twice.

    `pass_over`: skip damage and search for members after it.
    """
    entries, damaged, twice = dict[str, tuple[int, int]](), list[str](), list[str]()
    with archive.open("rb") as file, tarfile.open(fileobj=file, mode="r:", ignore_zeros=pass_over) as tar:
        try:
            for one in tar:
                if one.offset_data + one.size > size:
                    damaged.append(f"{archive}: {one.name} is cut short; download the archive again")
                elif one.isreg():
                    name = one.name.removeprefix("./")
                    twice += [name] if name in entries else []
                    entries[name] = one.offset_data, one.size
        except tarfile.ReadError as error:
            if not entries:
                raise
            damaged = damaged or [f"{archive}: found no file after byte {tar.offset} ({error}); download it again"]
        file.seek(tar.offset)
        if not damaged and any(file.read(tarfile.BLOCKSIZE)):
            damaged.append(f"{archive}: no file begins at byte {tar.offset}, expected one; download the archive again")
    return entries, damaged, twice


def text_keys(images: Iterable[str], texts: Iterable[str]) -> dict[str, str]:
    """Return {image: key of its text file}. Keys are names without endings, such as `7` for 7.jpg and 7.txt.

    Names with more dots (7.input.jpg, 7.outputs.txt) match if their parts before the first dot are equal, as in
    WebDataset. Only one image and one text may have the same first part.
    """
    images, texts = list(images), set(texts)
    keys = {key: key for key in images if key in texts}
    left: dict[str, tuple[list[str], list[str]]] = {}
    for kind, names in enumerate(([one for one in images if one not in keys], sorted(texts - keys.keys()))):
        for name in names:
            folder, slash, file = name.rpartition("/")
            left.setdefault(f"{folder}{slash}{file.partition('.')[0]}", ([], []))[kind].append(name)
    return keys | {one[0]: other[0] for one, other in left.values() if len(one) == len(other) == 1}


def read_member(archive: Path, name: str) -> bytes:
    """Return the bytes of a member of an archive. Raises FileNotFoundError, or DataError if it cannot be read."""
    if (entry := _member(archive, name)) is None:
        raise FileNotFoundError(f"no {name} in {archive}")
    start, length = entry
    if length > MOST_BYTES:
        raise DataError(f"{archive}: {name} has {length} bytes, expected at most {MOST_BYTES}; remove this file")
    with explained(DataError, f"{archive}: {name} cannot be read", "download the archive again", *DAMAGED):
        if archive.suffix.lower() == ZIP:
            with zipfile.ZipFile(archive) as opened:
                return read_zipped(opened, name)
        with archive.open("rb") as file:
            file.seek(start)
            return file.read(length)
