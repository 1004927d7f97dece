"""The fourth stage: join the images on pages with the responses for their URLs, and score pairs of image and text.

One Arrow file has the last response for each URL. Workers memory-map the file, and find a URL by its hash.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.runtime.engine.outcome import Counts
from diptych.runtime.errors import DataError, DiptychError, explained
from diptych.runtime.files import replacing, sha256_of
from diptych_mine.checking import Object, read_json
from diptych_mine.job import MiningJob
from diptych_mine.judge.decode import MEASURED
from diptych_mine.judge.scoring import Pair, Scorer
from diptych_mine.layout import RunLayout
from diptych_mine.lists import Lists
from diptych_mine.pages import licences
from diptych_mine.pages.reading import body_of
from diptych_mine.settings import MiningSettings
from diptych_mine.tables import Row, check_same_rows, digest, read_rows, read_table, schema, write_shard

NAME = "found.arrow"
ROWS_AT_ONCE = 65_536
_OF_ANSWERS = ("reason", "status", "date", "final", "blob", "offset", "length")
AT_ONCE = 256  # number of pairs per call of a scorer


@dataclass(frozen=True)
class ScoreStage:
    """Join the tables `pages`, `index` and `measured` into `joined`, with a row per image on a page."""

    job: MiningJob
    scorer: str | None
    load: Callable[[str], Scorer] | None

    def run(self, pages: Sequence[str], indexes: Sequence[str], measured: Sequence[str]) -> list[str]:
        """Return the names of the shards of `joined`, one for each shard of `pages`."""
        job, rules = self.job, self.job.settings.keep
        answers = gather(job.layout, list(zip(indexes, measured, strict=True)))
        same = [answers, job.about["scorer"], rules.score, rules.kinds, rules.licence, digest(repr(job.lists)),
                job.settings.offline]  # fmt: skip
        plans = {digest("joined", page, *same): {"pages": page} for page in pages}
        work = Join(job.layout, job.settings, answers, job.lists, self.scorer, self.load)
        return job.make("score", "joined", work, plans, model=self.scorer is not None)


def key_of(text: str) -> int:
    """Return a 64-bit hash of a text, such as a URL or a host."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())


def gather(layout: RunLayout, shards: Sequence[tuple[str, str]]) -> str:
    """Write the file of responses, and return its digest.

    `shards`: pairs of names (a shard of `index`, its shard of `measured`). Later responses replace earlier ones.
    """
    import pyarrow as pa

    parts = []
    for index, measured in shards:
        path = layout.table("measured", measured)
        answers, measures = read_table(layout.table("index", index), "index"), read_table(path, "measured")
        check_same_rows(answers, measures, path)
        parts.append(_merged(answers, measures, index))
    table = pa.concat_tables([_empty(), *parts])
    keys = np.fromiter((key_of(one) for one in table["address"].to_pylist()), np.uint64, table.num_rows)
    order = np.argsort(keys, kind="stable")
    last = np.append(keys[order][1:] != keys[order][:-1], True) if len(order) else np.zeros(0, bool)
    order = order[last]
    table = table.take(pa.array(order)).append_column("key", pa.array(keys[order])).combine_chunks()
    path = layout.work(NAME)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        replacing(path) as partial,
        pa.OSFile(str(partial), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table, max_chunksize=ROWS_AT_ONCE)
    return sha256_of(path)[:16]


def _empty() -> Any:
    """Return an empty table with the columns of the file of responses, except `key`."""
    return _merged(schema("index").empty_table(), schema("measured").empty_table(), "")


def _merged(answers: Any, measures: Any, index: str) -> Any:
    """Return a table with the columns of `answers` and `measures`, whose rows are in the same order."""
    import pyarrow as pa

    answers = answers.append_column("blob", pa.array([index] * answers.num_rows, pa.string()))
    for column in schema("measured"):
        if column.name != "address":
            answers = answers.append_column(column, measures[column.name])
    return answers


@dataclass(frozen=True)
class AddressTable:
    """The opened file of responses. It maps a URL to its last response, and follows redirects to other hosts."""

    keys: NDArray[np.uint64]
    table: Any

    @classmethod
    @cache
    def open(cls, path: Path, digest: str, check: bool = False) -> AddressTable:
        """Open the file at `path`, once per process.

        The cache distinguishes files of the same name by their `digest`. `check`: validate a file that this command did
        not write. Raises DataError if the file is damaged.
        """
        assert digest
        import pyarrow as pa

        with explained(DataError, f"{path} cannot be read", "repeat `diptych mine run`", pa.ArrowException):
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
            if check:
                table.validate(full=True)
                if not table.schema.remove(table.schema.get_field_index("key")).equals(_empty().schema):
                    raise ValueError("it does not have the expected columns")
            keys = table["key"].to_numpy() if table.num_rows else np.zeros(0, np.uint64)
        return cls(np.asarray(keys, np.uint64), table)

    @classmethod
    def body_of(cls, layout: RunLayout, address: str) -> bytes:
        """Return the bytes of the image that was fetched for a URL.

        Raises DataError if the folder `work` lacks the image.
        """
        path = layout.work(NAME)
        row = cls.open(path, sha256_of(path)[:16], True).rows([address], 5)[0] if path.is_file() else None
        if row is None or not row["length"] or row["blob"] is None:
            raise DataError(f"{layout.work()} has no image of {address[:200]}; repeat `diptych mine run` to fetch it")
        return body_of(layout, row["blob"], row)

    def rows(self, wanted: Sequence[str], most_moves: int) -> list[Row | None]:
        """Return the last response for each URL; None for a URL without a response.

        More than `most_moves` redirects in a row count as a failed fetch.
        """
        numbers = [self._number(one) for one in wanted]
        present = sorted({number for number in numbers if number is not None})
        read = dict(zip(present, self.table.take(present).to_pylist(), strict=True)) if present else {}
        return [self._followed(read[number], most_moves) if number is not None else None for number in numbers]

    def _number(self, address: str) -> int | None:
        key = np.uint64(key_of(address))
        at = int(np.searchsorted(self.keys, key))
        return at if at < len(self.keys) and self.keys[at] == key else None

    def _followed(self, row: Row, most: int) -> Row:
        seen = {row["address"]}
        while row["moved"]:
            if row["moved"] in seen:
                return row | {"moved": "", "reason": "redirects in a circle"}
            number = self._number(row["moved"])
            if number is None or len(seen) > most:
                reason = "too many redirects" if len(seen) > most else "redirect not followed"
                return row | {"moved": "", "final": row["moved"], "reason": reason}
            seen.add(row["moved"])
            row = self.table.slice(number, 1).to_pylist()[0]
        return row


@dataclass(frozen=True)
class Join:
    """Joins a shard of `pages`.

    `answers`: digest of the file of responses. `load`: loads the scorer, once per process.
    """

    layout: RunLayout
    settings: MiningSettings
    answers: str
    lists: Lists = field(default_factory=Lists)
    scorer: str | None = None
    load: Callable[[str], Scorer] | None = None

    def __call__(self, name: str) -> Counts:
        rows = read_rows(self.layout.table("pages", read_json(self.layout.plan(name), Object)["pages"]), "pages")
        table = AddressTable.open(self.layout.work(NAME), self.answers)
        open_rows = [row for row in rows if not row["fails"]]
        answers = table.rows([row["address"] for row in open_rows], self.settings.fetch.redirects)
        held = zip(self.lists.refused.hold(answers), self.lists.excluded.hold(answers), strict=True)
        for row, answer, (refused, excluded) in zip(open_rows, answers, held, strict=True):
            row["fails"] += self._fails(row, answer, refused, excluded)
        self._choose([row for row in open_rows if not row["fails"]])
        if self.scorer is not None and self.load is not None:
            self._score(self.layout, self.load(self.scorer), [row for row in open_rows if not row["fails"]])
        counts = {"pictures": len(rows), "left": sum(1 for row in rows if not row["fails"])}
        return write_shard(self.layout, "joined", name, rows, counts)

    def _fails(self, row: Row, answer: Row | None, refused: bool, excluded: bool) -> list[str]:
        """Add the image's measures to its row, and return the names of the rules that it breaks.

        `refused`, `excluded`: True if the lists have the image's hash.
        """
        if self.lists.refuse(row["address"], row["page"], answer["final"] if answer else None):
            return ["refused"]
        if answer is None:
            row["reason"] = "offline" if self.settings.offline else "not requested"
            return ["fetch"]
        row |= {key: answer[key] for key in (*_OF_ANSWERS, *MEASURED)}
        if answer["reason"] or not answer["length"]:
            row["reason"] = answer["reason"] or "empty"
            return ["fetch"]
        fails = list(answer["fails"] or [])
        if refused:
            fails.append("refused")
        if row["licence"] == licences.UNKNOWN and row["file_licence"]:
            row["licence"] = row["file_licence"]
        wanted = self.settings.keep.licence
        if wanted is not None and not licences.is_free(row["licence"], wanted):
            fails.append("licence")
        if excluded:
            fails.append("exclude")
        return fails

    def _choose(self, rows: list[Row]) -> None:
        """Mark texts of unwanted kinds.

        Without the option --texts, nearby sentences (kind `near`) are unwanted if there is no scorer.
        """
        wanted = self.settings.keep.kinds
        for row in rows:
            for text in row["texts"]:
                if text["kind"] not in wanted if wanted else text["kind"] == "near" and self.scorer is None:
                    text["fails"] = [*text["fails"], "kinds"]
            if all(text["fails"] for text in row["texts"]):
                row["fails"].append("kinds")

    def _score(self, layout: RunLayout, scorer: Scorer, rows: list[Row]) -> None:
        least = scorer.least if self.settings.keep.score is None else self.settings.keep.score
        waiting: list[tuple[Row, Pair]] = []
        for row in rows:
            picture, texts = body_of(layout, row["blob"], row), [text for text in row["texts"] if not text["fails"]]
            waiting += [(text, Pair(text["text"], text["kind"], picture, row)) for text in texts]
            if len(waiting) >= AT_ONCE:
                _score_texts(scorer, waiting, least)
                waiting = []
        _score_texts(scorer, waiting, least)
        for row in rows:
            if all(text["fails"] for text in row["texts"]):
                row["fails"].append("score")


def _score_texts(scorer: Scorer, waiting: list[tuple[Row, Pair]], least: float) -> None:
    """Store the score of each pair in its text. Texts with a score below `least` break the rule `score`."""
    scores: list[Any] = scorer.score([pair for _, pair in waiting]) if waiting else []
    if len(scores) != len(waiting) or not all(map(math.isfinite, scores)):
        gave = f"returned {scores[:3]}... for {len(waiting)} pairs"
        raise DiptychError(f"the scorer {scorer.version} {gave}; expected a finite number for each; correct its code")
    for (text, _), score in zip(waiting, scores, strict=True):
        text["score"] = round(float(score), 6)
        if text["score"] < least:
            text["fails"] = [*text["fails"], "score"]
