"""The inputs of a run: recognise their kinds by name and content, and divide them into shards."""

import hashlib
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import accumulate, count, islice
from pathlib import Path
from typing import Any, Literal

from diptych.data.formats.columns import ADDRESS as ALONE
from diptych.data.formats.columns import CAPTIONS, SPLIT, columns_of, with_caption
from diptych.data.formats.splits import SCORED, usual_split
from diptych.data.formats.values import listed_texts
from diptych.runtime.errors import DataError, RecipeError, explained
from diptych.runtime.files import as_text, files_below, opened_text, parse_json, sha256_of, text_of
from diptych_mine.pages import addresses
from diptych_mine.tables import digest

InputKind = Literal["warc", "html", "visit", "pairs", "tar", "pictures"]
WANTED = (
    "WARC or WAT files (unpack a .wacz; convert .arc by `uvx warcio recompress`), a folder of .html (with --base or an "
    "addresses.tsv), a list of page URLs, image URLs with texts (.tsv, .parquet, .jsonl), img2dataset's .tar, or a "
    ".jsonl of images with captions"
)
WARCS, CONVERTED = (".warc", ".warc.gz", ".wat", ".wat.gz"), (".wacz", ".arc", ".arc.gz")
IN_A_SHARD = 1_000
ADDRESS = re.compile(r"^https?://", re.I)
ADDRESS_KEYS = ("url", "address", "image_url", "URL")
TEXT_KEYS = ("caption", "text", "alt", "TEXT", "captions")
COLUMNS = {  # content of a column -> usual names of the column, in lower case; names of the first group are preferred
    "url": (("url", "address", "image_url"), ("imageurl", "image_link", "link")),
    "caption": (("caption", "text", "alt"), CAPTIONS),
    "split": ((SPLIT,),),
}
HERE = "file:"  # prefix of the URLs of images on this disk or in a tar
OF_SPLIT = "of a val or test split"


@dataclass(frozen=True)
class MiningInput:
    """An input of a run: a file or a folder."""

    kind: InputKind
    path: Path
    digest: str
    base: str = ""

    def shards(self, parts: Sequence[Sequence[int]] = ()) -> list[dict[str, Any]]:
        """Return the plan of each shard.

        A plan's `key` does not depend on the path. `parts`: (start, end) of the parts of a WARC.
        """
        spec = {"kind": self.kind, "path": str(self.path), "base": self.base, "start": 0, "count": -1}
        if self.kind == "tar":
            return [spec | {"key": digest(self.kind, self.digest)}]
        if self.kind == "warc":
            return [spec | {"part": [*part], "key": digest(self.kind, self.digest, *part)} for part in parts]
        html = self.kind == "html"
        begins = range(0, len(html_files(self.path)), IN_A_SHARD) if html else _places(self.path) or [0]
        return [
            spec | {"start": start, "count": IN_A_SHARD, "key": digest(self.kind, self.digest, self.base, number)}
            for number, start in zip(count(0, IN_A_SHARD), begins, strict=False)
        ]


def recognise(given: Sequence[Path], base: str | None) -> list[MiningInput]:
    """Return the inputs at these paths, sorted, so that the order of the paths does not matter.

    Raises RecipeError for unknown files.
    """
    inputs: dict[str, MiningInput] = {}
    for path in given:
        for source in _sources(path, base):
            inputs.setdefault(digest(source.kind, source.digest, source.base), source)
    if not inputs:
        raise RecipeError(f"no inputs; expected {WANTED}")
    return [inputs[key] for key in sorted(inputs)]


def _sources(path: Path, base: str | None) -> Iterator[MiningInput]:
    if not path.exists():
        raise RecipeError(f"{path} does not exist; expected {WANTED}")
    if path.is_file():
        kind = _kind(path)
        yield MiningInput(kind, path, _digest_of_list(path) if kind == "pictures" else sha256_of(path))
        return
    files = [p for p in files_below(path) if p.is_file() and p.name.lower().endswith((*WARCS, *CONVERTED, ".tar"))]
    for one in files:
        yield MiningInput(_kind(one), one, sha256_of(one))
    if not files:
        pages = html_files(path)
        if not pages:
            raise RecipeError(f"{path} holds no .warc, .wat, .tar or .html; expected {WANTED}")
        if base is None and not (path / "addresses.tsv").is_file():
            table = path / "addresses.tsv"
            raise RecipeError(f"the URLs of the pages in {path} are unknown; pass --base URL, or write {table}")
        digest = hashlib.sha256()
        for one in (*pages, *([path / "addresses.tsv"] if base is None else [])):
            digest.update(f"{one.relative_to(path)}\0{sha256_of(one)}\0".encode())
        yield MiningInput("html", path, digest.hexdigest(), base or "")


def _digest_of_list(path: Path) -> str:
    """Return a digest of a list of image files and of these files."""
    hashed = hashlib.sha256(sha256_of(path).encode())
    for line in lines(path, "pictures"):
        with suppress(OSError, ValueError):  # missing files are counted later
            hashed.update(f"{line.address}\0{sha256_of(path.parent / line.address.removeprefix(HERE))}\0".encode())
    return hashed.hexdigest()


def _kind(path: Path) -> InputKind:
    with path.open("rb") as file:
        start = file.read(4096)
    name = path.name.lower()
    if name.endswith(WARCS) or _inside(start).startswith(b"WARC/"):
        return "warc"
    if name.endswith(".tar") or start[257:262] == b"ustar":
        return "tar"
    if start[:4] == b"PAR1" or name.endswith((".tsv", ".parquet")):
        return "pairs"
    first = as_text(start, "replace").lstrip().splitlines()[:1]
    if name.endswith((".jsonl", ".ndjson")) or (first and first[0].startswith("{")):
        return _kind_of_line(path, first[0] if first else "")
    if first and ADDRESS.match(first[0]):
        return "visit"
    raise RecipeError(f"{path} cannot be mined; expected {WANTED}")


def _kind_of_line(path: Path, line: str) -> InputKind:
    problem = f"{path}: its first line is not JSON"
    with explained(RecipeError, problem, f"expected {WANTED}"), opened_text(path, "replace") as file:
        entry = parse_json(file.readline() or line)
    if isinstance(entry, dict) and not {"image", *ADDRESS_KEYS}.isdisjoint(entry):
        return "pictures" if "image" in entry else "pairs"
    raise RecipeError(f"{path}: its first line has neither `url` nor `image`; expected {WANTED}")


def _inside(start: bytes) -> bytes:
    if start[:2] != b"\x1f\x8b":
        return start
    with suppress(zlib.error):
        return zlib.decompressobj(31).decompress(start, 64)
    return b""


def html_files(folder: Path) -> list[Path]:
    return [p for p in files_below(folder) if p.suffix.lower() in (".html", ".htm", ".xhtml") and p.is_file()]


def page_addresses(folder: Path, base: str) -> dict[str, str]:
    """Return path in the folder -> URL of the page.

    URLs come from addresses.tsv (`file TAB address`). Without this file, a URL is `base` followed by the path.
    """
    if base:
        names = [one.relative_to(folder).as_posix() for one in html_files(folder)]
        return {name: addresses.absolute(f"{base.removesuffix('/')}/", name) for name in names}
    listed = {}
    for line in text_of(folder / "addresses.tsv", "replace").splitlines():
        name, tab, address = line.partition("\t")
        if tab:
            listed[name.strip()] = address.strip()
    return listed


@dataclass(frozen=True)
class InputLine:
    """An entry of an input list: an image with texts, or a page.

    `bad`: why the entry cannot be used; empty for a good entry.
    """

    address: str = ""
    texts: tuple[str, ...] = ()
    page: str = ""
    bad: str = ""


def lines(path: Path, kind: str, place: int = 0) -> Iterator[InputLine]:
    """Yield the entries of a list, from a place on.

    `kind`: `pairs` (image URLs with texts), `visit` (page URLs) or `pictures` (image files on this disk). `place`: one
    of `_places`.
    """
    if _is_parquet(path):
        yield from _parquet(path, place)
        return
    with _opened(path) as (file, header):
        if place:
            file.seek(place)
        for text in filter(str.strip, file):
            if kind == "visit":
                yield _line({"url": text.strip()})
            else:
                yield _tabbed(text, header) if _is_tabbed(path) else _json(text, kind)


def _places(path: Path) -> Sequence[int]:
    """Return where each IN_A_SHARD-th entry of a list begins: rows of a Parquet file, or positions in a text."""
    if _is_parquet(path):
        with _parquet_file(path) as file:
            return range(0, file.metadata.num_rows, IN_A_SHARD)
    places = []
    with _opened(path) as (file, _):
        rows = filter(str.strip, iter(file.readline, ""))  # a loop over the file itself gives no position
        place = file.tell()
        while sum(1 for _ in islice(rows, IN_A_SHARD)):
            places.append(place)
            place = file.tell()
    return places


@contextmanager
def _opened(path: Path) -> Iterator[tuple[TextIOWrapper, dict[str, int] | None]]:
    """Open the text of a list at its first entry; with the columns that the header of a TSV names, if it has one."""
    with opened_text(path, "replace") as file:
        first = next(filter(str.strip, iter(file.readline, "")), "")
        header = _header(first) if _is_tabbed(path) else None
        if header is None:
            file.seek(0)
        yield file, header


def _is_tabbed(path: Path) -> bool:
    return path.suffix.lower() == ".tsv"


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as start:
        return start.read(4) == b"PAR1"


def _line(entry: Mapping[str, object], kind: str = "pairs") -> InputLine:
    if held_out(entry):
        return InputLine(bad=OF_SPLIT)
    keys = ("image",) if kind == "pictures" else ADDRESS_KEYS
    where = next((one for key in keys if isinstance(one := entry.get(key), str)), "")
    captions = next((one for key in TEXT_KEYS if isinstance(one := entry.get(key), str | list) and one), ())
    page = entry.get("page")
    if not where or (kind != "pictures" and not ADDRESS.match(where)):  # `pairs` must not read files on this disk
        return InputLine(bad="no address")
    return InputLine(where, texts_of(captions), page if isinstance(page, str) else "")


def held_out(entry: Mapping[str, object]) -> bool:
    """Return True if an entry is of a val or test split, such as `dev` or `testA`. Only training data is mined."""
    splits = [str(value) for name, value in entry.items() if name.lower() == SPLIT]
    return any(usual_split(one).lower().startswith(SCORED) for one in splits)


def texts_of(captions: object) -> tuple[str, ...]:
    """Return a text, or each text of a list. The list may also be written as a string. Empty texts are left out."""
    listed = listed_texts(captions) if isinstance(captions, str) else captions
    texts = listed if isinstance(listed, list) else [listed]
    return tuple(one for one in texts if isinstance(one, str) and one.strip())


def _parquet(path: Path, start: int) -> Iterator[InputLine]:
    with _parquet_file(path) as file:
        names = file.schema_arrow.names
        roles = columns_of(names, COLUMNS)
        if not {"url", "caption"} <= roles.keys():
            raise DataError(f"{path} has the columns {', '.join(names)}; expected `url` with `caption` or `text`")
        ends = [*accumulate(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))]
        groups = range(bisect_right(ends, start), file.num_row_groups)  # groups before the first row are not read
        skipped = start - (ends[groups.start - 1] if groups.start else 0)
        columns = [names[at] for at in roles.values()]
        for batch in file.iter_batches(IN_A_SHARD, groups, columns):
            kept, skipped = batch[skipped:], max(0, skipped - len(batch))
            for row in zip(*(map(_cell, kept[name].to_pylist()) for name in columns), strict=True):
                yield _line(dict(zip(roles, row, strict=True)))


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    damage, remedy = f"{path} is not a complete Parquet file", "copy the file again"
    with explained(DataError, damage, remedy, pa.ArrowException), pq.ParquetFile(path) as file:
        yield file


def _cell(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value) if isinstance(value, int | float) else value


def _header(line: str) -> dict[str, int] | None:
    """Return the columns that a header names; None if the line is not a header.

    If a header names the URL and only one other column, this is the caption.
    """
    names = line.rstrip("\r\n").split("\t")
    if any(map(ADDRESS.match, names)):
        return None
    roles = with_caption(columns_of(names, COLUMNS), len(names))
    return roles | {"": len(names)} if "caption" in roles else None


def _tabbed(text: str, header: dict[str, int] | None) -> InputLine:
    """Read a line of a TSV by its header. Without one, the caption is the column before the URL.

    If the URL is first, the caption is the next column. Other columns, such as labels, are left out.
    """
    fields = [one.strip() for one in text.rstrip("\r\n").split("\t")]
    sure = (*filter(ALONE.match, fields), *filter(ADDRESS.match, fields), "")
    if header is not None:
        if len(fields) != header[""]:
            return InputLine(bad="other columns than the header")
        return _line({"url": sure[0]} | {role: fields[at] for role, at in header.items() if role})
    at = fields.index(sure[0]) if sure[0] else 0
    others = reversed(fields[:at]) if at else fields[1:]
    return _line({"url": sure[0], "caption": next((one for one in others if not ALONE.match(one)), "")})


def _json(text: str, kind: str) -> InputLine:
    try:
        entry = parse_json(text)
    except ValueError:
        return InputLine(bad="no JSON")
    return _line(entry, kind) if isinstance(entry, dict) else InputLine(bad="no object")
