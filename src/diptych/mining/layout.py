"""Where a run's files lie. `work` can be made again; all else is what the run is for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STAGES = ("pages", "fetch", "decode", "score", "keep")


@dataclass(frozen=True)
class Layout:
    out: Path

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
        return self.work("plan", f"{name}.json")

    def table(self, stage: str, name: str) -> Path:
        return self.work(stage, f"{name}.parquet")

    def counts(self, stage: str, name: str) -> Path:
        """The last that a shard writes: where it is there, the shard is whole."""
        return self.work(stage, f"{name}.json")

    def blob(self, name: str) -> Path:
        """Bodies one after the other; the index says where each begins."""
        return self.work("index", f"{name}.blob")

    def picture(self, sha256: str, ending: str) -> Path:
        return self.pictures / sha256[:2] / f"{sha256}.{ending}"
