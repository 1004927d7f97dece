"""Image captioning: write a sentence about a picture. Also the samples that pre-training reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from diptych.core import Batch, Record, Sample, Task, Vocabulary
from diptych.core.shares import PartialShare
from diptych.data.store.tokens import Tokens
from diptych.metrics.bleu import bleu_scores
from diptych.metrics.bootstrap import Interval, bootstrap_interval, paired_interval, rows_by_picture
from diptych.metrics.captions import CaptionItems, caption_items, caption_scores, java_scores
from diptych.models.decoding import DecodingOptions, decode
from diptych.objectives import GenerateText, Schedule, together
from diptych.objectives.settings import Objectives
from diptych.runtime.configs import derive
from diptych.runtime.errors import DataError
from diptych.tasks.baselines import best_blind_caption, caption_ceiling, most_frequent_caption
from diptych.tasks.scores import Baselines, Score, Scores, score_of
from diptych.tasks.self_critical import SelfCriticalObjectives
from diptych.tasks.spec import LIKELIHOOD, Small, TaskSpec


@dataclass(frozen=True)
class Captioning:
    """One training sample a caption; one question a picture."""

    tokens: Tokens
    decoding: DecodingOptions
    max_words: int = 20  # longer captions are cut, as the papers do
    # Captions that were left out, by key: the vocabulary knows none of their words, so they teach to write [UNK].
    unknown: dict[str, str] = field(default_factory=dict, compare=False)

    name = "caption"

    def samples(self, record: Record) -> list[Sample]:
        return [
            sample
            for position, caption in enumerate(record.captions)
            for sample in self._sample(record, position, caption)
        ]

    def _sample(self, record: Record, position: int, caption: str) -> list[Sample]:
        words = self.tokens.encode(caption)[: self.max_words]
        if not words:  # empty captions are reported by `diptych check`
            return []
        if not self.tokens.knows(words):
            self.unknown[f"{record.key}#{position}"] = caption
            return []
        text = torch.tensor([*words, self.tokens.vocabulary.sep])
        return [Sample(key=f"{record.key}#{position}", picture=record.key, regions=None, text=text)]

    def queries(self, record: Record) -> list[Sample]:
        return [
            Sample(key=record.key, picture=record.key, regions=record.regions, text=torch.zeros(0, dtype=torch.long))
        ]

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        best = [hypotheses[0] for hypotheses in decode(model, batch, self.decoding)]
        return [
            {"key": key, "caption": self.tokens.decode(written.tokens), "score": written.score}
            for key, written in zip(batch.keys, best, strict=True)
        ]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """BLEU-1..4, ROUGE-L and CIDEr, all times 100, over the records that have captions."""
        references = references_of(records)
        if not references:
            raise DataError("no record has captions to score against; choose another split with --split")
        written = {p["key"]: p["caption"] for p in predictions}
        scores = caption_scores({key: written[key] for key in references}, references)
        return {name: 100 * score for name, score in scores.items()}


def caption_baselines(references: Mapping[str, Sequence[str]], training: Sequence[Sequence[str]] = ()) -> Baselines:
    """`training`: the captions of each training picture; without them there is no blind baseline."""
    blind, ceiling, notes = {}, caption_ceiling(references) or {}, []
    if training:
        best, frequent = best_blind_caption(training), most_frequent_caption(training)
        blind = caption_items(dict.fromkeys(references, best), references).scores()
        cider = caption_items(dict.fromkeys(references, frequent), references).scores()["CIDEr"]
        notes.append(f"blind: the training caption with the best CIDEr on training, given to every picture: “{best}”")
        notes.append(
            f"learnt on {len(training)} pictures; the most frequent training caption, “{frequent}”, gets "
            f"CIDEr {100 * cider:.1f}"
        )
    if ceiling:
        notes.append(
            "ceiling: one reference caption against the other ones of its picture, mean over which one; document "
            "frequencies as for the model, one reference fewer to match"
        )
    return Baselines(blind, ceiling, tuple(notes))


def score_captions(
    predictions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    baselines: Baselines | None = None,
    coverage: float = 1.0,
) -> Scores:
    """BLEU-1..4, ROUGE-L and CIDEr, beside the baselines."""
    baselines = baselines or Baselines()
    items = caption_items({key: predictions[key] for key in references}, references)
    scores = [
        score_of(n, _interval(n, items), baselines.blind.get(n), baselines.ceiling.get(n)) for n in items.scores()
    ]
    first = "intervals: 95%, 1,000 bootstrap draws of pictures; document frequencies of CIDEr are those of all pictures"
    return Scores("caption", tuple(scores), len(references), len(references), coverage, (first, *baselines.notes))


def _interval(name: str, items: CaptionItems) -> Interval:
    if name.startswith("BLEU-"):
        order = int(name[-1]) - 1
        return bootstrap_interval(items.bleu, lambda counts: bleu_scores(counts)[..., order])
    return bootstrap_interval(rows_by_picture(items.rouge if name == "ROUGE-L" else items.cider))


def extra_caption_scores(
    predictions: Mapping[str, str], references: Mapping[str, Sequence[str]], names: Sequence[str]
) -> list[Score]:
    """METEOR and SPICE, which need Java."""
    found = java_scores({key: predictions[key] for key in references}, references, names)
    return [Score(name, 100 * value) for name, value in found.items()]


def caption_gain(first: Mapping[str, str], second: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> Score:
    """CIDEr of the second minus the first. Each bootstrap draw takes both on the same pictures."""
    ours, theirs = (
        rows_by_picture(caption_items({key: captions[key] for key in references}, references).cider)
        for captions in (second, first)
    )
    return score_of("CIDEr", paired_interval(ours, theirs))


def references_of(records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """The captions of each record that has any."""
    return {record.key: record.captions for record in records if record.captions}


def greedily(task: Task, records: list[Record]) -> tuple[Task, list[Record]]:
    """Beams are for tests: all the papers choose their weights by greedy captions."""
    assert isinstance(task, Captioning)
    options = task.decoding
    greedy = derive(options, beams=1, captions=options.captions if options.sample else None)
    return replace(task, decoding=greedy), records


class CaptionObjectives(Objectives):
    """Fine-tuning of an encoder-decoder for captions: the next word, by cross-entropy."""

    kind: Literal["caption"] = "caption"
    """Kind of objectives."""
    label_smoothing: PartialShare = 0.0
    """Label smoothing of the words."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return together(GenerateText(vocabulary, reads="nothing", label_smoothing=self.label_smoothing))


CAPTION = TaskSpec(
    name="caption",
    title="Captions",
    learns="write",
    noun="captions",
    field="captions",
    key="caption",
    head="word",
    watched="CIDEr",
    shown=("CIDEr", "BLEU-4"),
    build=lambda given: Captioning(given.tokens, given.decoding, given.max_words),
    score=lambda written, records, baselines: score_captions(written, references_of(records), baselines),
    baselines=lambda records, training: caption_baselines(
        references_of(records), [record.captions for record in training if record.captions]
    ),
    gain=lambda first, second, records: caption_gain(first, second, references_of(records)),
    extra_scores=lambda written, records, names: extra_caption_scores(written, references_of(records), names),
    learnt=lambda model: "decode" in model.provides and "word" in model.heads,
    validation=greedily,
    objectives=(CaptionObjectives, SelfCriticalObjectives),
    small=Small(CaptionObjectives()),
)

PRETRAIN = replace(CAPTION, name="pretrain", title="Pre-training", watched=LIKELIHOOD, objectives=(), small=None)
