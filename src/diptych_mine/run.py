"""Run all stages of `diptych mine` in order. Complete shards of an interrupted run are used again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from diptych.runtime.claims import claim_settings
from diptych.runtime.engine import run as run_shards
from diptych.runtime.engine.stopping import stoppable
from diptych.runtime.errors import DataError, RecipeError, explained
from diptych.runtime.extras import requires_extra
from diptych.runtime.files import refuse_links_out, text_of
from diptych.runtime.outputs import claim, refuse_edited
from diptych_mine import funnel
from diptych_mine.fetch.gathering import FetchStage
from diptych_mine.forgetting import erase
from diptych_mine.job import MiningJob
from diptych_mine.judge.decode import DecodeStage
from diptych_mine.judge.scoring import Scorer
from diptych_mine.keep.joining import ScoreStage
from diptych_mine.keep.tars import write_tars
from diptych_mine.keep.writing import KeepStage
from diptych_mine.layout import STAGES, RunLayout
from diptych_mine.lists import lists_of
from diptych_mine.pages import inputs
from diptych_mine.pages.reading import PagesStage
from diptych_mine.rules import VERSION
from diptych_mine.settings import MiningSettings
from diptych_mine.tables import digest

# Settings in mine.json that must not change when a run is resumed.
EARLY = ("inputs", "pages", "texts", "words", "vocabulary", "rules", "seed")


@dataclass
class Mine:
    """A run of `diptych mine`. `engine` and `workers` do not change the result."""

    out: Path
    given: Sequence[Path]
    settings: MiningSettings = field(default_factory=MiningSettings)
    base: str | None = None
    engine: str = "local"
    workers: int = 1
    until: str = "keep"
    retry_failed: bool = False
    words: Path | None = None
    vocabulary: Path | None = None
    judges: Mapping[str, str] = field(default_factory=dict)
    scorer: str | None = None
    scorer_version: str | None = None
    load_scorer: Callable[[str], Scorer] | None = None
    refuse: Sequence[Path] = ()
    exclude: Sequence[tuple[str, bytes | None]] = ()
    tars: Path | None = None
    tell: Callable[[str], None] = print
    write_page: Callable[[RunLayout, funnel.Funnel, dict[str, Any]], object] | None = None
    progress: Callable[[str, int], Callable[[], None]] = lambda _stage, _shards: lambda: None

    def run(self) -> dict[str, Any] | None:
        """Run all stages up to `until`.

        Returns the content of funnel.json, or None if the last stage is not run. Raises Stopped on a signal; complete
        shards are kept.
        """
        if self.until not in STAGES:
            raise RecipeError(f"no stage {self.until!r}; expected one of {', '.join(STAGES)}")
        if self.scorer is None and (self.settings.keep.top, self.settings.keep.score) != (None, None):
            raise RecipeError("rules.top and rules.score compare scores of pairs; pass --scorer, or leave them out")
        with stoppable():
            sources = inputs.recognise(self.given, self.base)
            job = self._begin(sources)
            fetching = FetchStage(job, self.retry_failed)
            pages = PagesStage(job, fetching.fetch, self.words, self.vocabulary).run(sources)
            if self.until == "pages":
                return None
            indexes = fetching.run(pages)
            if self.until == "fetch":
                return None
            measured = DecodeStage(job, self.judges).run(indexes)
            if self.until == "decode":
                return None
            joined = ScoreStage(job, self.scorer, self.load_scorer).run(pages, indexes, measured)
            if self.until == "score":
                return None
            numbers = KeepStage(job, self.write_page).run(pages, indexes, joined)
            if forgotten := sorted(job.layout.forgotten.glob("*.txt")):
                erase(job.layout, lists_of(forgotten, self.settings.keep.near_bits).refused)
            if self.tars is not None:
                write_tars(self.tars, job.layout)
            return numbers

    def _begin(self, sources: Sequence[inputs.MiningInput]) -> MiningJob:
        """Write mine.json, and return the state of the run.

        Raises RecipeError if the folder has a run with other settings, and lists the differences.
        """
        from diptych_mine.judge.judges import identity

        layout = RunLayout(self.out)
        with requires_extra("mining", "mine"):
            versions = {name: version(name) for name in ("diptych", "py3langid", "selectolax", "fastwarc", "pillow")}
        now = {
            "inputs": [{"kind": one.kind, "digest": one.digest, "base": one.base} for one in sources],
            "words": _digest_of_words(self.words), "vocabulary": _digest_of_words(self.vocabulary), "rules": VERSION,
            "judges": {place: identity(name) for place, name in self.judges.items()}, "scorer": self.scorer_version,
            "versions": versions,
            **self.settings.model_dump(mode="json", exclude={"fetch"}),  # these do not change the result
        }  # fmt: skip
        refuse_links_out(self.out)
        claim(self.out, "mined")
        refuse_edited(self.out, layout.written)
        claim_settings(self.out, layout.settings.name, "mined", now, "a run with other settings", EARLY)
        unwanted = [*self.refuse, *sorted(layout.forgotten.glob("*.txt"))]
        lists = lists_of(unwanted, self.settings.keep.near_bits, self.exclude)
        return MiningJob(
            layout, self.settings, now, lists, run_shards, self.engine, self.workers, self.tell, self.progress
        )


def _digest_of_words(path: Path | None) -> str | None:
    with explained(DataError, f"cannot read {path}", "expected one word per line, in UTF-8"):
        return digest(text_of(path)) if path is not None else None
