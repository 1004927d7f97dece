"""The paths of a run's files. `work` can be made again; all other files are the result of the run."""

from __future__ import annotations

import re
from pathlib import Path

from diptych.runtime.errors import DataError
from diptych.runtime.files import refuse_links_out

STAGES = ("pages", "fetch", "decode", "score", "keep")
SHARD, SHA256, ENDING = re.compile(r"[0-9a-f]{16}"), re.compile(r"[0-9a-f]{64}"), re.compile(r"[a-z]{3,4}")


def damaged(path: Path, why: object, remove: Path | str = "it") -> DataError:
    """Return the error for a file that differs from what its stage writes; the caller raises it."""
    return DataError(f"cannot read {path}: {why}; remove {remove} and repeat the command")


class RunLayout:
    """The folder of a run, and where each of its files is."""

    def __init__(self, out: Path) -> None:
        self.out, self.settings, self.funnel = out, out / "mine.json", out / "funnel.json"
        self.records, self.decisions = out / "records", out / "decisions"
        self.pictures, self.forgotten = out / "pictures", out / "forgotten"

    @classmethod
    def finished(cls, out: Path) -> RunLayout:
        """Return the layout of a finished run.

        Raises DataError if there is none, and DiptychError for links out of it.
        """
        layout = cls(out)
        if not layout.funnel.exists():
            raise DataError(f"no finished run in {out}; `diptych mine run INPUT --out {out}` makes one")
        refuse_links_out(out)
        return layout

    def work(self, *parts: str) -> Path:
        return self.out.joinpath("work", *parts)

    def plan(self, name: str) -> Path:
        return self._shard("plan", name, "json")

    def table(self, stage: str, name: str) -> Path:
        return self._shard(stage, name, "parquet")

    def counts(self, stage: str, name: str) -> Path:
        """The file that is written last: if it exists, the shard is complete."""
        return self._shard(stage, name, "json")

    def blob(self, name: str) -> Path:
        """The concatenated image files; the index has the offset of each."""
        return self._shard("index", name, "blob")

    def times(self, name: str) -> Path:
        """The time at which each URL of an index was fetched."""
        return self._shard("index", name, "times.json")

    def picture(self, sha256: str, ending: str) -> Path:
        """Return the path of a kept image.

        Raises DataError for other names, as a table from elsewhere may name any path.
        """
        if not SHA256.fullmatch(sha256) or not ENDING.fullmatch(ending):
            why = f"it names a picture {sha256[:80]!r} of type {ending[:20]!r}, expected a sha256 and jpg or the like"
            raise damaged(self.out, why, self.work())
        return self.pictures / sha256[:2] / f"{sha256}.{ending}"

    def _shard(self, folder: str, name: str, ending: str) -> Path:
        if not SHARD.fullmatch(name):
            raise damaged(self.work(), f"it names a shard {name[:80]!r}, expected 16 hex digits", self.work())
        return self.work(folder, f"{name}.{ending}")
