"""The paths of a run's files. The folder `work` is a cache; all other files are the result of the run."""

from __future__ import annotations

import re
from pathlib import Path

from diptych.runtime.errors import DataError
from diptych.runtime.files import refuse_links_out

STAGES = ("pages", "fetch", "decode", "score", "keep")
RECORDS = re.compile(r"[0-9a-f]{5,}\.(jsonl|parquet)")  # names of files in `records`, and of tables
SHARD, SHA256, ENDING = re.compile(r"[0-9a-f]{16}"), re.compile(r"[0-9a-f]{64}"), re.compile(r"[a-z]{3,4}")


def damaged(path: Path, why: object, remove: Path | str = "it") -> DataError:
    """Return the error for a damaged file, to be raised by the caller. `remove`: what the user should delete."""
    return DataError(f"cannot read {path}: {why}; remove {remove} and repeat the command")


class RunLayout:
    """The folder of a run, and the path of each file in it."""

    def __init__(self, out: Path) -> None:
        self.out, self.settings, self.funnel = out, out / "mine.json", out / "funnel.json"
        self.records, self.decisions = out / "records", out / "decisions"
        self.pictures, self.forgotten, self.fetched = out / "pictures", out / "forgotten", out / "fetched.json"
        self.card, self.report = out / "card.md", out / "report.html"

    @classmethod
    def finished(cls, out: Path) -> RunLayout:
        """Return the layout of a finished run.

        Raises DataError if there is no finished run, and DiptychError if a link leads out of the folder.
        """
        layout = cls(out)
        if not layout.funnel.exists():
            raise DataError(f"no finished run in {out}; `diptych mine run INPUT --out {out}` makes one")
        refuse_links_out(out)
        return layout

    @property
    def written(self) -> list[Path]:
        """The files that a repeated run writes or removes, and that a user may have changed."""
        records = [path for path in sorted(self.records.glob("*")) if RECORDS.fullmatch(path.name)]
        return [*records, self.card, self.report]

    def work(self, *parts: str) -> Path:
        return self.out.joinpath("work", *parts)

    def plan(self, name: str) -> Path:
        return self._shard("plan", name, "json")

    def table(self, stage: str, name: str) -> Path:
        return self._shard(stage, name, "parquet")

    def counts(self, stage: str, name: str) -> Path:
        """Return the path of a shard's counts.

        This file is written last, so it exists only if the shard is complete.
        """
        return self._shard(stage, name, "json")

    def blob(self, name: str) -> Path:
        """Return the path of the file that holds all images of a shard. The shard's `index` table has their offsets."""
        return self._shard("index", name, "blob")

    def times(self, name: str) -> Path:
        """Return the path of the file with the fetch times of a shard of `index`."""
        return self._shard("index", name, "times.json")

    def picture(self, sha256: str, ending: str) -> Path:
        """Return the path of a kept image.

        Raises DataError for an invalid name, because a table of unknown origin could contain any path.
        """
        if not SHA256.fullmatch(sha256) or not ENDING.fullmatch(ending):
            why = f"found the image name {sha256[:80]!r} and ending {ending[:20]!r}, expected a SHA-256 and e.g. jpg"
            raise damaged(self.out, why, self.work())
        return self.pictures / sha256[:2] / f"{sha256}.{ending}"

    def _shard(self, folder: str, name: str, ending: str) -> Path:
        if not SHARD.fullmatch(name):
            raise damaged(self.work(), f"found the shard name {name[:80]!r}, expected 16 hex digits", self.work())
        return self.work(folder, f"{name}.{ending}")
