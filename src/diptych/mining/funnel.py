"""What came in and what dropped it: counts of every rule, from the verdicts on disk."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from diptych.mining.checking import PageCounts, read_json
from diptych.mining.layout import RunLayout
from diptych.mining.pages.addresses import host_of
from diptych.mining.rules import RULES, TEXT_RULES
from diptych.mining.tables import Row, read_rows

EXAMPLES = 12
PAPER_WORDS = 13.0  # mean words of a description, ImageBERT section 3
BINS = 20
_SCORE = tuple(rule for rule in RULES if rule.name == "score")
_ORDER = {rule.name: number for number, rule in enumerate(RULES)}


@dataclass
class FunnelLine:
    """One rule. `first`: dropped by it before any other; `alone`: it drops by itself; `only`: nothing else drops.

    A rule is measured where those before it left something to measure: what was never fetched has no sides.
    """

    seen: int = 0
    first: int = 0
    alone: int = 0
    only: int = 0
    examples: list[Row] = field(default_factory=list)


@dataclass
class Funnel:
    pictures: int = 0
    kept: int = 0
    rules: dict[str, FunnelLine] = field(default_factory=lambda: {rule.name: FunnelLine() for rule in RULES})
    texts: dict[str, FunnelLine] = field(
        default_factory=lambda: {rule.name: FunnelLine() for rule in (*TEXT_RULES, *_SCORE)}
    )
    texts_seen: int = 0
    words: Counter[int] = field(default_factory=Counter)
    sides: Counter[int] = field(default_factory=Counter)
    scores: Counter[int] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    hosts: Counter[str] = field(default_factory=Counter)
    licences: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    examples: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        self.pictures += 1
        fails = set(row["fails"])
        dropped_by = row["dropped_by"]
        for name, line in self.rules.items():
            if dropped_by is None or name == dropped_by or name in fails or _ORDER[name] < _ORDER[dropped_by]:
                line.seen += 1
        for name in fails:
            line = self.rules[name]
            line.alone += 1
            line.only += len(fails) == 1
        if dropped_by is not None:
            line = self.rules[dropped_by]
            line.first += 1
            if len(line.examples) < EXAMPLES:
                line.examples.append(row)
        if "fetch" in fails:
            self.failures[str(row["reason"])] += 1
        if row["width"] and row["height"]:
            self.sides[min(row["width"], row["height"]) // 100 * 100] += 1
        self._texts(row)
        if row["kept"] is not None:
            self._kept(row)

    def _texts(self, row: Row) -> None:
        for text in row["texts"]:
            self.texts_seen += 1
            if text["score"] is not None:
                self.scores[min(BINS - 1, max(0, int(text["score"] * BINS)))] += 1
            for number, name in enumerate(text["fails"]):
                line = self.texts[name]
                line.alone += 1
                line.first += number == 0
                line.only += len(text["fails"]) == 1
                if number == 0 and len(line.examples) < EXAMPLES:
                    line.examples.append({"page": row["page"], "text": text["text"]})

    def _kept(self, row: Row) -> None:
        self.kept += 1
        text = row["texts"][row["kept"]]
        self.words[len(text["text"].split())] += 1
        self.kinds[text["kind"]] += 1
        self.hosts[host_of(row["page"] or row["address"])] += 1
        self.licences[row["licence"]] += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(row)

    @property
    def mean_words(self) -> float:
        total = sum(self.words.values())
        return sum(words * count for words, count in self.words.items()) / total if total else 0.0

    def as_json(self, inputs: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
        """`rules` add up: the sum of `first` and `kept` is `pictures`."""

        def line(one: FunnelLine) -> dict[str, int]:
            return {"seen": one.seen, "dropped": one.first, "alone": one.alone, "only": one.only}

        def counted(counter: Counter[Any], most: int | None = None) -> dict[str, int]:
            ranked = sorted(counter.items(), key=lambda item: (-item[1], str(item[0])))[:most]
            return {str(key): count for key, count in ranked}

        return {
            "pictures": self.pictures, "kept": self.kept, "inputs": inputs, "about": about,
            "rules": {name: line(one) for name, one in self.rules.items()},
            "texts_seen": self.texts_seen, "texts": {name: line(one) for name, one in self.texts.items()},
            "mean_words": round(self.mean_words, 3), "paper_mean_words": PAPER_WORDS,
            "words": {str(words): self.words[words] for words in sorted(self.words)},
            "shorter_side": {str(side): self.sides[side] for side in sorted(self.sides)},
            "scores": {f"{bin / BINS:.2f}": self.scores[bin] for bin in sorted(self.scores)},
            "kinds": counted(self.kinds), "hosts": counted(self.hosts, 50), "licences": counted(self.licences, 50),
            "failures": counted(self.failures),
        }  # fmt: skip


def of(layout: RunLayout) -> Funnel:
    """From the verdicts on disk, in the order of their shards."""
    funnel = Funnel()
    for row in decisions(layout):
        funnel.add(row)
    for line in funnel.texts.values():
        line.seen = funnel.texts_seen
    return funnel


def decisions(layout: RunLayout) -> Iterator[Row]:
    for path in sorted(layout.decisions.glob("*.parquet")):
        yield from read_rows(path, "decisions")


def inputs_of(layout: RunLayout, names: Iterable[str]) -> dict[str, Any]:
    """Records and pages of all shards, by what became of them; the reasons of bad ones."""
    total: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    for name in names:
        counts = read_json(layout.counts("pages", name), PageCounts)
        bad.update(counts.bad)
        total.update(counts.model_extra or {}, held=len(counts.held))
    return {**dict(sorted(total.items())), "bad": dict(sorted(bad.items()))}
