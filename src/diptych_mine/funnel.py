"""Count the inputs, and the images and texts that each rule dropped, from the verdicts on disk."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from diptych_mine.checking import FunnelInputs, PageCounts, read_json
from diptych_mine.layout import RunLayout
from diptych_mine.pages.addresses import host_of
from diptych_mine.rules import ORDER, RULES, TEXT_RULES
from diptych_mine.tables import Row, read_rows

EXAMPLES = 12
PAPER_WORDS = 13.0  # mean number of words of a text in ImageBERT, section 3
BINS = 20


@dataclass
class FunnelLine:
    """Counts of the items (images or texts) for one rule.

    `alone`: items that break the rule. `first`: items that break it and no earlier rule, so this rule dropped them.
    `only`: items that break it and no other rule. `seen`: items that the rule was applied to. For instance, rules about
    sizes are not applied to an image that was not fetched.
    """

    seen: int = 0
    first: int = 0
    alone: int = 0
    only: int = 0
    examples: list[Row] = field(default_factory=list)

    def add(self, first: bool, only: bool, example: Row) -> None:
        """Count an image or text that breaks the rule.

        `first`: it breaks no earlier rule. `only`: it breaks no other rule.
        """
        self.alone, self.only, self.first = self.alone + 1, self.only + only, self.first + first
        if first and len(self.examples) < EXAMPLES:
            self.examples.append(example)

    def as_json(self) -> dict[str, int]:
        return {"seen": self.seen, "dropped": self.first, "alone": self.alone, "only": self.only}


def _lines(*names: str) -> dict[str, FunnelLine]:
    return {name: FunnelLine() for name in names}


@dataclass
class Funnel:
    pictures: int = 0
    kept: int = 0
    rules: dict[str, FunnelLine] = field(default_factory=lambda: _lines(*(rule.name for rule in RULES)))
    texts: dict[str, FunnelLine] = field(
        default_factory=lambda: _lines(*(rule.name for rule in TEXT_RULES), "kinds", "score")
    )
    texts_seen: int = 0
    numbers: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    names: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    examples: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Count a row of the table `decisions`: an image on a page."""
        self.pictures += 1
        fails, dropped_by = set(row["fails"]), row["dropped_by"]
        for name, line in self.rules.items():
            line.seen += dropped_by is None or name in fails or ORDER[name] <= ORDER[dropped_by]
            if name in fails:
                line.add(name == dropped_by, len(fails) == 1, row)
        if "fetch" in fails:
            self.names["failures"][str(row["reason"])] += 1
        if row["width"] and row["height"]:
            self.numbers["shorter_side"][min(row["width"], row["height"]) // 100 * 100] += 1
        for text in row["texts"]:
            self.texts_seen += 1
            if text["score"] is not None:
                self.numbers["scores"][min(BINS - 1, max(0, int(text["score"] * BINS)))] += 1
            for number, name in enumerate(text["fails"]):
                example = {"page": row["page"], "text": text["text"]}
                self.texts[name].add(number == 0, len(text["fails"]) == 1, example)
        if row["kept"] is not None:
            self._add_kept(row, row["texts"][row["kept"]])

    def _add_kept(self, row: Row, text: Row) -> None:
        self.kept += 1
        self.numbers["words"][len(text["text"].split())] += 1
        host = host_of(row["page"] or row["address"])
        for key, name in (("kinds", text["kind"]), ("hosts", host), ("licences", row["licence"])):
            self.names[key][name] += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(row)

    @property
    def mean_words(self) -> float:
        words = self.numbers["words"]
        return sum(number * count for number, count in words.items()) / max(1, words.total())

    def as_json(self, inputs: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
        """Return the funnel as JSON. `kept` plus the sum of `dropped` over all rules equals `pictures`."""

        def ranked(key: str, most: int | None = None) -> dict[str, int]:
            return dict(sorted(self.names[key].items(), key=lambda item: (-item[1], item[0]))[:most])

        words, sides, scores = (sorted(self.numbers[key].items()) for key in ("words", "shorter_side", "scores"))

        return {
            "pictures": self.pictures, "kept": self.kept, "inputs": inputs, "about": about,
            "rules": {name: line.as_json() for name, line in self.rules.items()},
            "texts_seen": self.texts_seen, "texts": {name: line.as_json() for name, line in self.texts.items()},
            "mean_words": round(self.mean_words, 3), "paper_mean_words": PAPER_WORDS,
            "words": {str(number): count for number, count in words},
            "shorter_side": {str(side): count for side, count in sides},
            "scores": {f"{bin / BINS:.2f}": count for bin, count in scores},
            "kinds": ranked("kinds"), "hosts": ranked("hosts", 50), "licences": ranked("licences", 50),
            "failures": ranked("failures"),
        }  # fmt: skip


def of(layout: RunLayout) -> Funnel:
    """Return the funnel of a run, counted from its verdicts on disk."""
    funnel = Funnel()
    for row in decisions(layout):
        funnel.add(row)
    for line in funnel.texts.values():
        line.seen = funnel.texts_seen
    return funnel


def again(layout: RunLayout) -> tuple[Funnel, dict[str, Any]]:
    """Count the funnel of a finished run again. Return it, and the new content of funnel.json."""
    before, funnel = read_json(layout.funnel, FunnelInputs), of(layout)
    return funnel, funnel.as_json(before.inputs, before.about.model_dump())


def decisions(layout: RunLayout) -> Iterator[Row]:
    """Yield the verdict on each image of each page."""
    for path in sorted(layout.decisions.glob("*.parquet")):
        yield from read_rows(path, "decisions")


def inputs_of(layout: RunLayout, names: Iterable[str]) -> dict[str, Any]:
    """Count the records and pages in these shards by outcome, and bad records by reason."""
    total: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    for name in names:
        counts = read_json(layout.counts("pages", name), PageCounts)
        bad.update(counts.bad)
        total.update(counts.model_extra or {}, held=len(counts.held))
    return {**dict(sorted(total.items())), "bad": dict(sorted(bad.items()))}
