"""The fourth stage: rows of pages meet what is known of their pictures, and pairs are scored."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diptych.mining.checking import Object, read_json
from diptych.mining.judge.decode import MEASURED
from diptych.mining.judge.scoring import Pair, Scorer
from diptych.mining.keep.address_table import NAME, AddressTable
from diptych.mining.layout import RunLayout
from diptych.mining.lists import Lists
from diptych.mining.pages import licences
from diptych.mining.pages.reading import body_of
from diptych.mining.settings import MiningSettings
from diptych.mining.tables import Row, read_rows, write_json, write_rows
from diptych.runtime.engine.outcome import Counts
from diptych.runtime.errors import DiptychError

AT_ONCE = 256  # pairs that a scorer sees at once


@dataclass(frozen=True)
class Join:
    """Work of the engine. `scorer` makes one by name (a folder), once in a process; `lists` are what is not wanted."""

    out: Path
    settings: MiningSettings
    found: str
    lists: Lists = field(default_factory=Lists)
    scorer: str | None = None
    load: Callable[[str], Scorer] | None = None

    def __call__(self, name: str) -> Counts:
        layout = RunLayout(self.out)
        rows = read_rows(layout.table("pages", read_json(layout.plan(name), Object)["pages"]), "pages")
        known = AddressTable.open(layout.work(NAME), self.found)
        open_rows = [row for row in rows if not row["fails"]]
        answers = known.rows([row["address"] for row in open_rows], self.settings.fetch.redirects)
        for row, about in zip(open_rows, answers, strict=True):
            self._join(row, about)
        if self.scorer is not None and self.load is not None:
            self._score(layout, self.load(self.scorer), [row for row in open_rows if not row["fails"]])
        write_rows(layout.table("joined", name), rows, "joined")
        counts = {"pictures": len(rows), "left": sum(1 for row in rows if not row["fails"])}
        write_json(layout.counts("joined", name), counts)
        return counts

    def _join(self, row: Row, about: Row | None) -> None:
        if self.lists.refuse_any(row["address"], row["page"], about["final"] if about else None):
            row["fails"].append("refused")
            return
        if about is None:
            row["reason"] = "offline" if self.settings.offline else "not asked for"
            row["fails"].append("fetch")
            return
        for key in ("reason", "status", "date", "final", "blob", "offset", "length", *MEASURED):
            row[key] = about[key]
        if about["reason"]:
            row["fails"].append("fetch")
            return
        if not about["length"]:
            row["reason"] = "empty"
            row["fails"].append("fetch")
            return
        row["fails"] += about["fails"] or []
        if self.lists.refuse_picture(row["sha256"], row["dhash"]):
            row["fails"].append("refused")
        if row["licence"] == licences.UNKNOWN and row["file_licence"]:
            row["licence"] = row["file_licence"]
        wanted = self.settings.keep.licence
        if wanted is not None and not licences.is_free(row["licence"], wanted):
            row["fails"].append("licence")
        if self.lists.exclude_picture(row["sha256"], row["dhash"]):
            row["fails"].append("exclude")

    def _score(self, layout: RunLayout, scorer: Scorer, rows: list[Row]) -> None:
        least = scorer.least if self.settings.keep.score is None else self.settings.keep.score
        waiting: list[tuple[Row, dict[str, Any], Pair]] = []
        for row in rows:
            picture = body_of(layout, row["blob"], row)
            for text in row["texts"]:
                if not text["fails"]:
                    waiting.append((row, text, Pair(text["text"], text["kind"], picture, row)))
            if len(waiting) >= AT_ONCE:
                _scored(scorer, waiting, least)
        _scored(scorer, waiting, least)
        for row in rows:
            if all(text["fails"] for text in row["texts"]):
                row["fails"].append("score")


def _scored(scorer: Scorer, waiting: list[tuple[Row, dict[str, Any], Pair]], least: float) -> None:
    if not waiting:
        return
    scores = scorer.score([pair for _, _, pair in waiting])
    if len(scores) != len(waiting) or not all(map(math.isfinite, scores)):
        raise DiptychError(
            f"the scorer {scorer.version} gave {scores[:3]} for {len(waiting)} pairs; wanted a finite number each"
        )
    for (_, text, _), score in zip(waiting, scores, strict=True):
        text["score"] = round(float(score), 6)
        if text["score"] < least:
            text["fails"] = [*text["fails"], "score"]
    waiting.clear()
