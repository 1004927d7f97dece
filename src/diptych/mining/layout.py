"""Where a run's files lie. `work` can be made again; all else is what the run is for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from diptych.runtime.errors import DataError
from diptych.runtime.files import refuse_links_out

STAGES = ("pages", "fetch", "decode", "score", "keep")
SHARD, SHA256, ENDING = re.compile(r"[0-9a-f]{16}"), re.compile(r"[0-9a-f]{64}"), re.compile(r"[a-z]{3,4}")


@dataclass(frozen=True)
class RunLayout:
    out: Path

    @classmethod
    def finished(cls, out: Path) -> RunLayout:
        """Of a run that has ended. Raises DataError where there is none, and DiptychError for links out of it."""
        layout = cls(out)
        if not layout.funnel.exists():
            raise DataError(f"no finished run in {out}; `diptych mine run INPUT --out {out}` makes one")
        refuse_links_out(out)
        return layout

    @property
    def settings(self) -> Path:
        return self.out / "mine.json"

    @property
    def records(self) -> Path:
        return self.out / "records"

    @property
    def decisions(self) -> Path:
        return self.out / "decisions"

    @property
    def pictures(self) -> Path:
        return self.out / "pictures"

    @property
    def funnel(self) -> Path:
        return self.out / "funnel.json"

    @property
    def forgotten(self) -> Path:
        return self.out / "forgotten"

    def work(self, *parts: str) -> Path:
        return self.out.joinpath("work", *parts)

    def plan(self, name: str) -> Path:
        return self._shard("plan", name, "json")

    def table(self, stage: str, name: str) -> Path:
        return self._shard(stage, name, "parquet")

    def counts(self, stage: str, name: str) -> Path:
        """The last that a shard writes: where it is there, the shard is whole."""
        return self._shard(stage, name, "json")

    def blob(self, name: str) -> Path:
        """Bodies one after the other; the index says where each begins."""
        return self._shard("index", name, "blob")

    def times(self, name: str) -> Path:
        """When each address of an index was fetched."""
        return self._shard("index", name, "times.json")

    def picture(self, sha256: str, ending: str) -> Path:
        """Raises DataError for what is no name of ours: a table that others wrote may name any place."""
        if not SHA256.fullmatch(sha256) or not ENDING.fullmatch(ending):
            raise DataError(
                f"{self.out} names a picture {sha256[:80]!r} of type {ending[:20]!r}, wanted its sha256 and jpg or the "
                f"like; take {self.work()} away and give the same `diptych mine run` again"
            )
        return self.pictures / sha256[:2] / f"{sha256}.{ending}"

    def _shard(self, folder: str, name: str, ending: str) -> Path:
        if not SHARD.fullmatch(name):
            raise DataError(
                f"{self.work()} names a shard {name[:80]!r}, wanted 16 hex digits; take {self.work()} away and give "
                "the same `diptych mine run` again"
            )
        return self.work(folder, f"{name}.{ending}")
