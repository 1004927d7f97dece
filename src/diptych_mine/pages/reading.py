"""The first stage: read the pages and lists of any input into rows, one per image on a page."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from diptych.runtime.engine.outcome import Counts
from diptych.runtime.errors import RecipeError
from diptych.runtime.files import bytes_of
from diptych_mine.checking import Object, PageCounts, WarcParts, read_json
from diptych_mine.job import MiningJob
from diptych_mine.layout import RunLayout, damaged
from diptych_mine.pages import addresses, inputs, warc
from diptych_mine.pages.charsets import content_type
from diptych_mine.pages.pages import TOGETHER, Page, Row, read_page, row_of, settle, settle_texts
from diptych_mine.pages.tars import tar_lines
from diptych_mine.pages.texts import LONGEST, Vocabularies, judged
from diptych_mine.settings import MiningSettings
from diptych_mine.tables import digest, read_rows, write_json, write_shard

MOST_WAITING = 16 * 2**20  # when the waiting pages have more bytes, their languages are recognised


@dataclass(frozen=True)
class PagesStage:
    """Read the inputs into the table `pages`. If an input only lists URLs of pages, these are fetched first."""

    job: MiningJob
    fetch: Callable[[Iterable[str]], list[str]]  # URLs -> names of shards of `index`
    words: Path | None
    vocabulary: Path | None

    def run(self, sources: Sequence[inputs.MiningInput]) -> list[str]:
        """Read all inputs, and return the names of the shards of `pages`.

        Raises RecipeError for a list of pages with --offline.
        """
        job = self.job
        same = [digest(job.about[key]) for key in ("pages", "texts", "words", "vocabulary", "rules")]
        plans = {digest("pages", plan["key"], *same): plan for source in sources for plan in self._plans(source)}
        work = ReadPages(job.layout, job.settings, self.words, self.vocabulary)
        names = job.make("pages", "pages", work, dict(sorted(plans.items())))
        for name in names:
            for why, count in read_json(job.layout.counts("pages", name), PageCounts).bad.items():
                job.tell(f"{plans[name]['path'] or 'fetched pages'}: {count} records skipped: {why}")
        return names

    def _plans(self, source: inputs.MiningInput) -> list[dict[str, Any]]:
        if source.kind == "warc":  # split only once; the plan stores the parts
            path = self.job.layout.plan(digest("parts", source.digest))
            if not path.exists():
                write_json(path, {"parts": warc.parts(source.path)})
            return source.shards(read_json(path, WarcParts).parts)
        if source.kind != "visit":
            return source.shards()
        if self.job.settings.offline:
            raise RecipeError(f"{source.path} lists pages that need to be fetched; leave out --offline")
        lines = inputs.lines(source.path, "visit")
        allowed = [line.address for line in lines if not line.bad and not self.job.lists.refuse(line.address)]
        return [{"kind": "fetched", "path": "", "index": one, "key": one} for one in self.fetch(allowed)]


@dataclass(frozen=True)
class ReadPages:
    """Reads a shard of an input: writes its rows, and the URLs of the images that the input itself contains."""

    layout: RunLayout
    settings: MiningSettings
    words: Path | None = None
    vocabulary: Path | None = None

    def __call__(self, name: str) -> Counts:
        shard = _Shard(self.settings, Vocabularies.of(self.words, self.vocabulary), self.layout)
        shard.read(read_json(self.layout.plan(name), Object))
        counts = shard.counts | {"pictures": len(shard.rows), "bad": shard.bad, "held": sorted(shard.held)}
        counts["moves"] = shard.moves
        return write_shard(self.layout, "pages", name, shard.rows, counts)


@dataclass
class _Shard:
    settings: MiningSettings
    vocabularies: Vocabularies
    layout: RunLayout
    rows: list[Row] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    held: set[str] = field(default_factory=set)
    moves: dict[str, str] = field(default_factory=dict)  # URL of a redirect or a revisit -> URL of its content
    waiting: list[Page] = field(default_factory=list)  # pages whose language is not recognised yet
    bytes_waiting: int = 0

    def read(self, spec: dict[str, Any]) -> None:
        path = Path(spec["path"])
        match spec["kind"]:
            case "warc":
                self._warc(path, tuple(spec["part"]))
            case "html":
                self._html(path, spec)
            case "fetched":
                self._fetched(spec)
            case "tar":
                self._lines(tar_lines(path, spec["key"]))
            case kind:
                lines = islice(inputs.lines(path, kind, spec["start"]), spec["count"])
                self._lines(lines, inputs.HERE if kind == "pictures" else "", path.parent)
        self._settle()

    def _settle(self) -> None:
        settle(self.waiting, self.settings, self.vocabularies)
        for page in self.waiting:
            self.counts["pages"] += 1
            self.counts[f"pages {page.verdict or 'read'}"] += 1
            self.counts["pictures beyond the first 1,000 of a page"] += page.more_pictures
            self.rows += page.rows
        self.waiting, self.bytes_waiting = [], 0

    def _refuse(self, why: str) -> None:
        self.counts["records bad"] += 1
        self.bad[why[:80]] += 1

    def _page(self, address: str, body: bytes, charset: str | None, headers: Iterable[tuple[str, str]]) -> None:
        self.waiting.append(read_page(address, body, self.settings, self.vocabularies, charset, headers))
        self.bytes_waiting += len(body)
        if len(self.waiting) == TOGETHER or self.bytes_waiting > MOST_WAITING:
            self._settle()

    def _warc(self, path: Path, part: tuple[int, int]) -> None:
        digests, revisits = dict[str, str](), list[tuple[str, str]]()  # digest of an image -> its URL; (URL, digest)
        for record in warc.read(path, ("page",), part):
            self.counts["records"] += 1
            if record.kind == "bad":
                self._refuse(record.why)
                continue
            self.counts[f"records {record.kind}"] += 1
            if record.kind == "page":
                self._page(record.address, record.body, record.charset, record.headers)
                continue
            where = addresses.absolute(record.address, record.address)
            if record.kind == "picture":
                self.held.add(where)
                digests[record.digest] = where
            elif record.moved:
                self.moves[where] = addresses.absolute(record.address, record.moved)
            elif record.kind == "revisit":
                revisits.append((where, record.digest))
        self.moves |= {where: digests[digest] for where, digest in revisits if digest and digest in digests}

    def _html(self, folder: Path, spec: dict[str, Any]) -> None:
        listed = inputs.page_addresses(folder, spec["base"])
        for path in inputs.html_files(folder)[spec["start"] : spec["start"] + spec["count"]]:
            self.counts["records"] += 1
            address = listed.get(path.relative_to(folder).as_posix())
            if address is None or not addresses.usable(address):
                self._refuse("no URL in addresses.tsv")
            elif path.stat().st_size > warc.MOST_BODY:
                self.counts["records large"] += 1
            else:
                self.counts["records page"] += 1
                self._page(address, bytes_of(path), None, ())

    def _fetched(self, spec: dict[str, Any]) -> None:
        """Read the fetched pages in a shard of `index`."""
        index = spec["index"]
        for row in read_rows(self.layout.table("index", index), "index"):
            self.counts["records"] += 1
            if row["reason"] or row["moved"]:
                self.counts["records other" if row["moved"] else "records not fetched"] += 1
                if row["reason"]:
                    self.bad[row["reason"]] += 1
                continue
            media, charset = content_type(row["media"])
            if media not in ("text/html", "application/xhtml+xml"):
                self.counts["records other"] += 1
            else:
                self.counts["records page"] += 1
                self._page(row["final"] or row["address"], body_of(self.layout, index, row), charset, ())

    def _lines(self, lines: Iterable[inputs.InputLine], prefix: str = "", folder: Path = Path()) -> None:
        for place, line in enumerate(lines):
            self.counts["records"] += 1
            if line.bad:
                self._refuse(line.bad)
                continue
            self.counts["records picture"] += 1
            where = (
                f"{prefix}{folder / line.address}"
                if prefix and not line.address.startswith(inputs.HERE)
                else line.address
            )
            if where.startswith(inputs.HERE):
                self.held.add(where)
            self.rows.append(self._line(where, line, place))
        settle_texts(self.rows, self.settings.texts)

    def _line(self, where: str, line: inputs.InputLine, place: int) -> Row:
        texts = [judged("caption", text[:LONGEST], self.settings.texts, self.vocabularies) for text in line.texts]
        kept = [vars(text) for text in texts if text is not None]
        usable = where.startswith(inputs.HERE) or not self.settings.pages.address or addresses.usable(where)
        fails = [] if usable else ["address"]
        if all(text["fails"] for text in kept):
            fails.append("no_text")
        return row_of(Page(line.page), place, where, fails=fails, texts=kept)


def body_of(layout: RunLayout, index: str, row: Row) -> bytes:
    """Return the bytes of a row's image. Raises DataError if the file of images is shorter than `index` states."""
    path = layout.blob(index)
    try:
        with path.open("rb") as file:
            if 0 <= row["offset"] <= os.fstat(file.fileno()).st_size - row["length"]:
                file.seek(row["offset"])
                return file.read(row["length"])
    except OSError as error:
        raise damaged(path, error.strerror, layout.work()) from error
    why = f"it is cut short or damaged: expected {row['length']} bytes from byte {row['offset']} on"
    raise damaged(path, why, layout.work())
