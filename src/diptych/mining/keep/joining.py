"""The fourth stage: rows of pages are joined with the answers for their images, and pairs are scored."""

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
from diptych.mining.tables import Row, read_rows, write_shard
from diptych.runtime.engine.outcome import Counts
from diptych.runtime.errors import DiptychError

_OF_ANSWERS = ("reason", "status", "date", "final", "blob", "offset", "length")
AT_ONCE = 256  # pairs in one call of a scorer


@dataclass(frozen=True)
class Join:
    """The work on a shard. `answers`: digest of the address table; `load` makes the scorer, once per process."""

    out: Path
    settings: MiningSettings
    answers: str
    lists: Lists = field(default_factory=Lists)
    scorer: str | None = None
    load: Callable[[str], Scorer] | None = None

    def __call__(self, name: str) -> Counts:
        layout = RunLayout(self.out)
        rows = read_rows(layout.table("pages", read_json(layout.plan(name), Object)["pages"]), "pages")
        table = AddressTable.open(layout.work(NAME), self.answers)
        open_rows = [row for row in rows if not row["fails"]]
        answers = table.rows([row["address"] for row in open_rows], self.settings.fetch.redirects)
        for row, answer in zip(open_rows, answers, strict=True):
            row["fails"] += self._fails(row, answer)
        if self.scorer is not None and self.load is not None:
            self._score(layout, self.load(self.scorer), [row for row in open_rows if not row["fails"]])
        counts = {"pictures": len(rows), "left": sum(1 for row in rows if not row["fails"])}
        return write_shard(layout, "joined", name, rows, counts)

    def _fails(self, row: Row, answer: Row | None) -> list[str]:
        """The rules that the image breaks; what is known of it is added to the row."""
        if self.lists.refuse(row["address"], row["page"], answer["final"] if answer else None):
            return ["refused"]
        if answer is None:
            row["reason"] = "offline" if self.settings.offline else "not asked for"
            return ["fetch"]
        row |= {key: answer[key] for key in (*_OF_ANSWERS, *MEASURED)}
        if answer["reason"] or not answer["length"]:
            row["reason"] = answer["reason"] or "empty"
            return ["fetch"]
        fails = list(answer["fails"] or [])
        if self.lists.refused.hold(row["sha256"], row["dhash"]):
            fails.append("refused")
        if row["licence"] == licences.UNKNOWN and row["file_licence"]:
            row["licence"] = row["file_licence"]
        wanted = self.settings.keep.licence
        if wanted is not None and not licences.is_free(row["licence"], wanted):
            fails.append("licence")
        if self.lists.excluded.hold(row["sha256"], row["dhash"]):
            fails.append("exclude")
        return fails

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
    """Write the score of each pair into its text."""
    scores: list[Any] = scorer.score([pair for _, pair in waiting]) if waiting else []
    if len(scores) != len(waiting) or not all(map(math.isfinite, scores)):
        gave = f"gave {scores[:3]} for {len(waiting)} pairs"
        raise DiptychError(f"the scorer {scorer.version} {gave}; wanted a finite number each")
    for (text, _), score in zip(waiting, scores, strict=True):
        text["score"] = round(float(score), 6)
        if text["score"] < least:
            text["fails"] = [*text["fails"], "score"]
