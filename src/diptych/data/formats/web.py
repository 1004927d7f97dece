"""Pictures of the web with their captions as img2dataset leaves them: tars (WebDataset), or folders of files.

Of each picture KEY.jpg and KEY.txt, in 00000.tar or 00000/; Conceptual Captions, SBU and LAION are fetched so.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from diptych.core import Record
from diptych.data.formats.parsing import Skips
from diptych.runtime.errors import DataError
from diptych.runtime.files import bytes_of
from diptych.vision.archives import members, read_member
from diptych.vision.pictures import ENDINGS

CAPTION = ".txt"


def fits(folder: Path) -> bool:
    """Whether there are tars, or folders of pictures with captions."""
    if not folder.is_dir():
        return False
    if any(folder.glob("*.tar")):
        return True
    first = next((inner for inner in sorted(folder.iterdir()) if inner.is_dir()), None)
    return first is not None and any(file.with_suffix(CAPTION).is_file() for file in _few(first))


def _few(folder: Path) -> list[Path]:
    return [file for file, _ in zip(folder.iterdir(), range(50), strict=False) if file.suffix.lower() in ENDINGS]


def read(folder: Path, split: str = "train", skips: Skips | None = None) -> list[Record]:
    """One record a picture that has a caption, in the order of the tars, or folders, and of the keys in them."""
    skips = Skips() if skips is None else skips
    records = []
    shards = sorted(folder.glob("*.tar")) or sorted(inner for inner in folder.iterdir() if inner.is_dir())
    for shard in shards:
        pictures, captions = _sorted(members(shard) if shard.suffix == ".tar" else _files(shard))
        for key, name in pictures.items():
            where = f"{shard / name}"
            if key not in captions:
                skips.add("pictures without a caption", where)
                continue
            words = _words(shard, captions[key])
            if words:
                records.append(Record(f"{shard.stem}/{key}", split, shard / name, captions=(words,)))
            else:
                skips.add("empty captions", where)
        for key in captions.keys() - pictures.keys():
            skips.add("captions without a picture", f"{shard / captions[key]}")
    if not records:
        raise DataError(f"{folder}: found no picture with a caption, wanted KEY.jpg with KEY.txt in tars or folders")
    return records


def _files(folder: Path) -> Iterator[str]:
    return (file.name for file in sorted(folder.iterdir()))


def _sorted(names: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The names of pictures and of captions by key."""
    pictures, captions = dict[str, str](), dict[str, str]()
    for name in names:
        key, dot, ending = name.rpartition(".")
        if f".{ending}" == CAPTION:
            captions[key] = name
        elif dot and f".{ending.lower()}" in ENDINGS:
            pictures[key] = name
    return pictures, captions


def _words(shard: Path, name: str) -> str:
    content = read_member(shard, name) if shard.suffix == ".tar" else bytes_of(shard / name)
    try:
        return content.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise DataError(f"{shard / name}: found bytes that are not UTF-8 (at byte {error.start}); remove it") from None
