"""The state that all stages of a run share: folder, settings, lists, and a function that makes shards."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from diptych.runtime.engine.outcome import Counts, Work
from diptych_mine.checking import Object
from diptych_mine.layout import RunLayout
from diptych_mine.lists import Lists
from diptych_mine.settings import MiningSettings
from diptych_mine.tables import holds_json, write_json

LOADED = ("diptych_mine.run",)  # worker processes import these modules at their start; none of them imports torch


@dataclass(frozen=True)
class MiningJob:
    """A mining run in progress. `about`: the content of mine.json. `engine` and `workers` do not change the result."""

    layout: RunLayout
    settings: MiningSettings
    about: Mapping[str, Any]
    lists: Lists
    run: Callable[..., Iterator[Counts]]  # function that processes shards, such as `runtime.engine.run`
    engine: str
    workers: int
    tell: Callable[[str], None]
    progress: Callable[[str, int], Callable[[], None]]

    def make(self, stage: str, folder: str, work: Work, plans: dict[str, Object], model: bool = False) -> list[str]:
        """Make the shards in work/FOLDER that are not complete yet, and return the names of all shards.

        `plans`: name -> the description of a shard, which `work` reads. A plan with a list `shards` describes several
        shards. `model`: True if each process loads a model; then there are at most as many processes as cores.
        """
        for name, plan in plans.items():
            path = self.layout.plan(name)
            if not holds_json(path, plan):  # a changed plan, for example because inputs were moved
                write_json(path, plan)
        shards: dict[str, list[str]] = {name: plan.get("shards", [name]) for name, plan in plans.items()}
        whole = {one for made in shards.values() for one in made if self.layout.counts(folder, one).exists()}
        missing = [name for name, made in shards.items() if not whole.issuperset(made)]
        most = os.cpu_count() if model and self.engine != "ray" else None  # Ray limits its workers to the cores
        step = self.progress(stage, len(missing))
        for _ in self.run(work, missing, self.engine, min(self.workers, most or self.workers), LOADED):
            step()
        return [one for made in shards.values() for one in made]
