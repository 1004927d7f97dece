"""Paths of images inside a tar or a zip, or of two images side by side.

cc3m/00000.tar/000000012.jpg                    a member of an archive
dev/dev-850-0-img0.png+dev-850-0-img1.png       two images of a folder as one, for NLVR2's statements
"""

import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from diptych.runtime.errors import DataError
from diptych.runtime.files import bytes_of

TAR, ZIP = ".tar", ".zip"
BESIDE = "+"
MOST_BYTES = 256 * 2**20  # limit of one member
KEPT = 32  # archives whose tables of contents are cached


def beside(path: Path) -> tuple[Path, Path] | None:
    """Return the two images of a path that names two, else None."""
    left, plus, right = path.name.partition(BESIDE)
    if not plus or not left or not right or path.is_file():
        return None
    return path.with_name(left), path.with_name(right)


def archive_of(path: Path) -> tuple[Path, str] | None:
    """Return the archive that a path leads into, and the name inside; None for an ordinary path."""
    text = str(path).lower()
    if TAR not in text and ZIP not in text:  # the quick exit of most paths: sets have millions
        return None
    for outer in path.parents:
        if outer.suffix.lower() in (TAR, ZIP):
            return (outer, path.relative_to(outer).as_posix()) if outer.is_file() else None
    return None


def is_there(name: Path | str) -> bool:
    """True if there is an image at a path of any of these kinds."""
    if os.path.isfile(name):
        return True
    text = str(name).lower()
    if not any(sign in text for sign in (TAR, ZIP, BESIDE)):  # the quick exit of most paths: sets have millions
        return False
    path = Path(name)
    if (two := beside(path)) is not None:
        return all(is_there(one) for one in two)
    inside = archive_of(path)
    return inside is not None and inside[1] in members(inside[0])


def content(path: Path) -> Path | io.BytesIO:
    """Return a source for Pillow: the path, or an archive's member in memory. Raises FileNotFoundError, DataError."""
    inside = archive_of(path)
    return path if inside is None else io.BytesIO(read_member(*inside))


def read_bytes(path: Path) -> bytes:
    """Return the bytes of an image file, or of both files of a pair."""
    if (two := beside(path)) is not None:
        return b"".join(read_bytes(one) for one in two)
    source = content(path)
    return bytes_of(source) if isinstance(source, Path) else source.read()


def members(archive: Path) -> dict[str, tuple[int, int]]:
    """Return the offset and length in bytes of each complete member, by name. In a zip, offsets are 0."""
    status = archive.stat()
    return _members(archive, status.st_mtime_ns, status.st_size)[0]


def damaged_members(archive: Path) -> list[str]:
    """Return a line for each part of a tar that is damaged or cut short. The other members can be read."""
    status = archive.stat()
    return _members(archive, status.st_mtime_ns, status.st_size)[1]


@lru_cache(maxsize=KEPT)
def _members(archive: Path, _changed: int, size: int) -> tuple[dict[str, tuple[int, int]], list[str]]:
    try:
        if archive.suffix.lower() == ZIP:
            with zipfile.ZipFile(archive) as opened:
                return {one.filename: (0, one.file_size) for one in opened.infolist()}, []
        entries, damaged = _of_tar(archive, size, pass_over=False)
        if damaged:  # a damaged header hides all members after it
            entries, _ = _of_tar(archive, size, pass_over=True)
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError) as error:
        raise DataError(f"{archive}: cannot be read as an archive ({error}); download it again") from None
    return entries, damaged


def _of_tar(archive: Path, size: int, pass_over: bool) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """Return the complete members of a tar, and its faults. `pass_over`: search for members after damage."""
    entries, damaged = dict[str, tuple[int, int]](), list[str]()
    with archive.open("rb") as file, tarfile.open(fileobj=file, mode="r:", ignore_zeros=pass_over) as tar:
        try:
            for one in tar:
                if one.offset_data + one.size > size:
                    damaged.append(f"{archive}: found {one.name} cut short, expected all of it; download it again")
                elif one.isreg():
                    entries[one.name.removeprefix("./")] = one.offset_data, one.size
        except tarfile.ReadError as error:
            if not entries:
                raise
            damaged = damaged or [f"{archive}: no more members after {tar.offset} bytes ({error}); download it again"]
        file.seek(tar.offset)
        if not damaged and any(file.read(tarfile.BLOCKSIZE)):
            damaged.append(f"{archive}: found no member at {tar.offset} bytes, expected one; download it again")
    return entries, damaged


def text_keys(images: Iterable[str], texts: Iterable[str]) -> dict[str, str]:
    """Return the key of each image's text: names without their endings, such as `7` of 7.jpg and 7.txt.

    Names with more dots (7.input.jpg, 7.outputs.txt) belong together if their parts before the first dot are equal
    (WebDataset's rule), and if this leaves one image and one text.
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
    """Return the bytes of a member. Raises FileNotFoundError, DataError."""
    entries = members(archive)
    if name not in entries:
        raise FileNotFoundError(f"no {name} in {archive}")
    start, length = entries[name]
    if length > MOST_BYTES:
        raise DataError(f"{archive}: found {name} of {length} bytes, expected at most {MOST_BYTES}; leave it out")
    try:
        if archive.suffix.lower() == ZIP:
            with zipfile.ZipFile(archive) as opened:
                if opened.getinfo(name).compress_type == zipfile.ZIP_LZMA:  # its header may ask for 4 GiB of memory
                    raise DataError(f"{archive}: found {name} packed with LZMA, expected deflate; pack the images anew")
                return opened.read(name)
        with archive.open("rb") as file:
            file.seek(start)
            return file.read(length)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, KeyError) as error:
        raise DataError(f"{archive}: {name} cannot be read ({error}); download the archive again") from None
