"""Write a run's records as WebDataset tars, like img2dataset: 00000.tar with 000000000.jpg, .txt and .json."""

import json
import re
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from diptych.runtime.files import MARKER, bytes_of, parse_json, replacing, sweep, text_of
from diptych.runtime.outputs import claim, note, refuse_file
from diptych_mine.keep.writing import pieces
from diptych_mine.layout import RECORDS, RunLayout
from diptych_mine.tables import Row

IN_A_TAR = 1_000
TAR = re.compile(r"\d{5,}\.tar")
_ABOUT = ("width", "height", "page", "licence", "score", "by")  # fields of a record that are copied to its JSON file


def write_tars(folder: Path, layout: RunLayout) -> None:
    """Write the records and images of a run into tars in `folder`. Remove those of an earlier run with more records.

    Raises OutputError if the folder has tars that Diptych did not write.
    """
    claim(folder, "tars")
    sweep(folder)
    old = {path for path in folder.glob("*.tar") if TAR.fullmatch(path.name)}
    for number, some in enumerate(pieces(_records(layout), IN_A_TAR)):
        path = folder / f"{number:05d}.tar"
        refuse_file(path, noted=folder / MARKER)
        with replacing(path) as partial, tarfile.open(partial, "w", format=tarfile.USTAR_FORMAT) as tar:
            for place, line in enumerate(some):
                key, ending, caption = f"{number:05d}{place:04d}", Path(line["image"]).suffix, line["captions"][0]
                about = {"key": key, "caption": caption, "url": line["address"], "status": "success",
                         "sha256": line["sha256"], **{name: line[name] for name in _ABOUT}}  # fmt: skip
                _member(tar, f"{key}{ending}", bytes_of(layout.picture(line["sha256"], ending.removeprefix("."))))
                _member(tar, f"{key}.txt", caption.encode())
                _member(tar, f"{key}.json", json.dumps(about, ensure_ascii=False).encode())
        note(path, folder / MARKER)
        old.discard(path)
    for path in sorted(old):
        refuse_file(path, noted=folder / MARKER)
        path.unlink()


def _records(layout: RunLayout) -> Iterator[Row]:
    for path in sorted(layout.records.glob("*.jsonl")):
        if RECORDS.fullmatch(path.name):
            yield from map(parse_json, text_of(path).split("\n")[:-1])


def _member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, BytesIO(content))
