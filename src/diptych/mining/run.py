"""One run of `diptych mine`: all stages in order. Whole shards of an interrupted run are used again."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from diptych.mining import funnel
from diptych.mining.checking import Object, PageCounts, Retries, WarcParts, read_json
from diptych.mining.fetch.fetching import PASSING, WantedAddress, check_contact
from diptych.mining.fetch.gathering import FetchBucket, TakeImages, buckets
from diptych.mining.fetch.gathering import fetched_at as times_of
from diptych.mining.judge.decode import Decode
from diptych.mining.judge.scoring import Scorer
from diptych.mining.keep import keep, writing
from diptych.mining.keep.joining import Join, gather
from diptych.mining.layout import STAGES, RunLayout
from diptych.mining.lists import Lists, lists_of
from diptych.mining.pages import inputs, warc
from diptych.mining.pages.addresses import host_of
from diptych.mining.pages.reading import ReadPages
from diptych.mining.pages.tars import HERE
from diptych.mining.rules import VERSION
from diptych.mining.settings import MiningSettings
from diptych.mining.tables import digest, holds_json, read_rows, write_json
from diptych.runtime.claims import differences, refuse_other
from diptych.runtime.engine import run as run_shards
from diptych.runtime.engine.outcome import Work
from diptych.runtime.engine.stopping import stoppable
from diptych.runtime.errors import DataError, DiptychError, RecipeError
from diptych.runtime.files import refuse_links_out, text_of
from diptych.runtime.outputs import claim

EARLY = ("inputs", "pages", "texts", "words", "vocabulary", "rules", "seed")  # what belongs to a folder for good
LOADED = ("diptych.mining.run",)  # by its processes: no torch, which only judges and scorers bring
_ANSWER = ("address", "reason", "moved", "hops")


@dataclass
class Mine:
    """One mining job. `engine` and `workers` do not change the result."""

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
    exclude: Sequence[tuple[str, int | None]] = ()
    tars: Path | None = None
    tell: Callable[[str], None] = print
    write_page: Callable[[RunLayout, funnel.Funnel, dict[str, Any]], object] | None = None
    progress: Callable[[str, int], Callable[[], None]] = lambda _stage, _shards: lambda: None

    def run(self) -> dict[str, Any] | None:
        """Carry out all stages up to `until`. Returns the funnel, or None if `until` ends before it.

        Raises Stopped on a signal; whole shards are kept.
        """
        if self.until not in STAGES:
            raise RecipeError(f"no stage {self.until!r}; wanted one of {', '.join(STAGES)}")
        self.layout = RunLayout(self.out)
        with stoppable():
            sources = inputs.recognise(self.given, self.base)
            self._claim(sources)
            return next(islice(self._stages(sources), STAGES.index(self.until), None))

    def _stages(self, sources: Sequence[inputs.MiningInput]) -> Iterator[dict[str, Any] | None]:
        """Yields after each of STAGES; the last one yields the funnel."""
        pages = self._pages(sources)
        yield None
        indexes = self._gather(pages)
        yield None
        measured = self._decode(indexes)
        yield None
        joined = self._join(pages, measured)
        yield None
        yield self._keep(pages, joined, indexes)

    def _claim(self, sources: Sequence[inputs.MiningInput]) -> None:
        """Raise RecipeError if the folder was begun with other settings, with the difference; else write mine.json."""
        from diptych.mining.judge.judges import identity

        settings = self.settings.model_dump(mode="json")
        del settings["fetch"]  # does not change the result
        now = {
            "inputs": [{"kind": one.kind, "digest": one.digest, "base": one.base} for one in sources],
            "words": _digest_of_words(self.words), "vocabulary": _digest_of_words(self.vocabulary), "rules": VERSION,
            "judges": {place: identity(name) for place, name in self.judges.items()}, "scorer": self.scorer_version,
            "versions": {name: version(name) for name in ("diptych", "py3langid", "selectolax", "fastwarc", "pillow")},
            **settings,
        }  # fmt: skip
        if self.layout.settings.exists():
            refuse_links_out(self.out)
            before = read_json(self.layout.settings, Object)
            different = differences({k: now[k] for k in EARLY}, {k: before.get(k) for k in EARLY})
            refuse_other(self.out, "a run with other settings", different)
        claim(self.out, "mined")
        write_json(self.layout.settings, now)
        self.about = now

    def _make(self, stage: str, work: Work, names: Iterable[str], folder: str) -> None:
        """Make the shards that do not exist yet."""
        self._run(stage, work, [name for name in names if not self.layout.counts(folder, name).exists()])

    def _run(self, stage: str, work: Work, names: Sequence[str]) -> None:
        workers, step = self.workers, self.progress(stage, len(names))
        if stage == "score" and self.scorer is not None and self.engine != "ray":  # a cluster counts its own cores
            workers = min(workers, os.cpu_count() or 1)  # each loads the model
        for _ in run_shards(work, names, self.engine, workers, LOADED):
            step()

    def _plan(self, name: str, spec: Mapping[str, Any]) -> str:
        path = self.layout.plan(name)
        if not holds_json(path, spec):  # the inputs may have moved
            write_json(path, spec)
        return name

    def _pages(self, sources: Sequence[inputs.MiningInput]) -> list[str]:
        same = [digest(self.about[key]) for key in ("pages", "texts", "words", "vocabulary", "rules")]
        specs: list[dict[str, Any]] = []
        for source in sources:
            if source.kind == "visit":
                if self.settings.offline:
                    raise RecipeError(f"{source.path} lists pages that have to be fetched; leave out --offline")
                lists, lines = self._lists(), inputs.lines(source.path, "visit")
                allowed = [line.address for line in lines if not line.bad and not lists.refuse(line.address)]
                specs += [{"kind": "fetched", "path": "", "index": one, "key": one} for one in self._rounds(allowed)]
            else:
                specs += source.shards(self._parts(source))
        names = sorted({self._plan(digest("pages", spec["key"], *same), spec) for spec in specs})
        self._make("pages", ReadPages(self.out, self.settings, self.words, self.vocabulary), names, "pages")
        for name in names:
            spec = read_json(self.layout.plan(name), Object)
            for why, count in read_json(self.layout.counts("pages", name), PageCounts).bad.items():
                self.tell(f"{spec['path'] or 'pages fetched'}: {count} records skipped: {why}")
        return names

    def _parts(self, source: inputs.MiningInput) -> list[list[int]]:
        """First and last byte of each shard of a WARC, found once per file."""
        if source.kind != "warc":
            return []
        name = digest("parts", source.digest)
        if not self.layout.plan(name).exists():
            self._plan(name, {"parts": warc.parts(source.path)})
        return [[*part] for part in read_json(self.layout.plan(name), WarcParts).parts]

    def _lists(self) -> Lists:
        forgotten = sorted(self.layout.forgotten.glob("*.txt")) if self.layout.forgotten.is_dir() else []
        return lists_of([*self.refuse, *forgotten], self.settings.keep.near_bits, self.exclude)

    def _gather(self, pages: Sequence[str]) -> list[str]:
        """Names of the indexes of images; where two have an address, the later one counts."""
        lists = self._lists()
        wanted = {
            row["address"]
            for name in pages
            for row in read_rows(self.layout.table("pages", name), "pages", ["address", "page", "fails"])
            if not row["fails"] and not lists.refuse(row["address"], row["page"])
        }
        takes: list[str] = []
        for name in pages:
            here = sorted(wanted.intersection(read_json(self.layout.counts("pages", name), PageCounts).held))
            wanted.difference_update(here)
            if here:
                spec = read_json(self.layout.plan(name), Object) | {"wanted": here}
                takes.append(self._plan(digest("take", spec["key"], here), spec))
        self._make("take", TakeImages(self.out), takes, "index")
        return takes if self.settings.offline else takes + self._rounds(a for a in wanted if not a.startswith(HERE))

    def _rounds(self, wanted: Iterable[str]) -> list[str]:
        """Fetch addresses and where they redirect to; then passing failures again, once per --retry-failed so far."""
        attempts, lists = self._attempts(), self._lists()
        names: list[str] = []
        hops = dict.fromkeys(wanted, 0)  # redirects so far, by address
        if hops and not self.settings.offline:
            check_contact(self.settings.fetch, sorted({host_of(one) for one in hops}))
        for attempt in range(attempts + 1 if hops else 0):
            done: dict[str, bool] = {}
            while hops:
                made = self._fetch({WantedAddress(*one) for one in hops.items()}, attempt)
                names += made
                rows = [row for name in made for row in read_rows(self.layout.table("index", name), "index", _ANSWER)]
                done |= {row["address"]: row["reason"] in PASSING for row in rows}
                hops = {}
                for row in rows:
                    if row["moved"] and row["moved"] not in done and not lists.refuse(row["moved"]):
                        hops[row["moved"]] = min(row["hops"], hops.get(row["moved"], row["hops"]))
            hops = {address: 0 for address, passing in done.items() if passing}
        return names

    def _attempts(self) -> int:
        path = self.layout.work("retries.json")
        before = read_json(path, Retries).retries if path.exists() else 0
        if not self.retry_failed or not self.layout.funnel.exists():
            return before
        self.retry_failed = False
        write_json(path, {"retries": before + 1})
        return before + 1

    def _fetch(self, wanted: set[WantedAddress], attempt: int) -> list[str]:
        plans = buckets(wanted, attempt)
        for plan in plans:
            self._plan(plan["key"], plan)
        shards = [name for plan in plans for name in plan["shards"]]
        whole = {name for name in shards if self.layout.counts("index", name).exists()}
        missing = [plan["key"] for plan in plans if not whole.issuperset(plan["shards"])]
        self._run("fetch", FetchBucket(self.out, self.settings.fetch), missing)
        return shards

    def _decode(self, indexes: Sequence[str]) -> list[tuple[str, str]]:
        same = [digest(self.about["pictures"]), self.about["judges"], VERSION]
        pairs = [(one, self._plan(digest("measured", one, *same), {"index": one})) for one in indexes]
        work = Decode(self.out, self.settings.pictures, dict(self.judges))
        self._make("decode", work, [measured for _, measured in pairs], "measured")
        return pairs

    def _join(self, pages: Sequence[str], measured: Sequence[tuple[str, str]]) -> list[str]:
        answers, lists, rules = gather(self.layout, measured), self._lists(), self.settings.keep
        same = [answers, self.scorer_version, rules.score, rules.kinds, rules.licence, digest(repr(lists)),
                self.settings.offline]  # fmt: skip
        names = [self._plan(digest("joined", page, *same), {"pages": page}) for page in pages]
        work = Join(self.out, self.settings, answers, lists, self.scorer, self.load_scorer)
        self._make("score", work, names, "joined")
        return names

    def _keep(self, pages: Sequence[str], joined: Sequence[str], indexes: Sequence[str]) -> dict[str, Any]:
        layout, rules = self.layout, self.settings.keep
        pairs, places = writing.pairs_of(layout, joined)
        verdict = keep.choose(pairs, rules.common_text, rules.near_bits, rules.host_pairs)
        by = writing.made_by(self.scorer_version)
        kept = writing.write_verdicts(layout, places, verdict, pages)
        writing.write_records(layout, kept, by)
        writing.write_times(layout, times_of(layout, indexes), kept)
        if self.tars is not None:
            writing.write_tars(self.tars, layout, kept, by)
        counted = funnel.of(layout)
        about = {
            "scorer": self.scorer_version or "none: every pair that passes the rules is kept",
            "judges": {place: self.about["judges"].get(place, "not judged") for place in ("realism", "nsfw")},
            "vocabulary": "by a vocabulary" if self.vocabulary is not None else "not judged: no --vocab was given",
            "rules": VERSION,
        }
        numbers = counted.as_json(funnel.inputs_of(layout, pages), about)
        write_json(layout.funnel, numbers)
        if self.write_page is not None:
            self.write_page(layout, counted, numbers)
        return numbers


def _digest_of_words(path: Path | None) -> str | None:
    try:
        return digest(text_of(path)) if path is not None else None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}; wanted one word per line, in UTF-8") from error


def refuse_unjudged(skip_nsfw_check: bool, judges: Mapping[str, str]) -> None:
    """Raise DiptychError (exit code 1) if there is no NSFW judge, and --skip-nsfw-check was not given."""
    if "nsfw" not in judges and not skip_nsfw_check:
        way_out = "give one with --nsfw FOLDER, or give --skip-nsfw-check, and the report calls all images «not judged»"
        raise DiptychError(f"no NSFW judge, and none comes with Diptych: {way_out}")
