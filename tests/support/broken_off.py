"""A toy task as somebody adds it, in one file: whether a caption is whole, or broken off after two words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch

from diptych.plugin import (
    OBJECTIVES,
    Baselines,
    Batch,
    Form,
    InterfaceWords,
    Record,
    Sample,
    Scores,
    Small,
    TaskAnswer,
    TaskInterface,
    TaskModel,
    TaskRequest,
    TaskScoring,
    TaskSpec,
    TaskTraining,
    Text,
    Tokens,
    share_scores,
)


@dataclass(frozen=True)
class BrokenOff:
    """Each caption twice, whole and broken off."""

    tokens: Tokens
    max_words: int = 20

    name = "broken-off"

    def samples(self, record: Record) -> list[Sample]:
        return self.queries(record)

    def queries(self, record: Record) -> list[Sample]:
        made = []
        for number, caption in enumerate(record.captions):
            words = self.tokens.encode(caption)[: self.max_words]
            for whole, ids in ((True, words), (False, words[:2])):
                key, text = f"{record.key}#{number}/{whole}", torch.tensor([*ids, self.tokens.vocabulary.sep])
                made.append(Sample(key, record.key, record.regions, text, truth={"class": int(whole)}))
        return made

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        whole = model.heads["nlvr"](model(batch)).argmax(-1).tolist()
        return [{"key": key, "whole": bool(one)} for key, one in zip(batch.keys, whole, strict=True)]

    def score(self, predictions: Sequence[Mapping[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        scores = score_broken_off({p["key"]: p["whole"] for p in predictions}, records)
        return {score.name: score.value for score in scores.scores}


def score_broken_off(
    predicted: Mapping[str, bool], records: Sequence[Record], baselines: Baselines | None = None
) -> Scores:
    right, pictures = [], []
    for record in records:
        for number in range(len(record.captions)):
            for whole in (True, False):
                right.append(float(predicted[f"{record.key}#{number}/{whole}"] == whole))
                pictures.append(record.key)
    return share_scores("broken-off", {"accuracy": (right, pictures)}, "sentences", baselines)


class BrokenOffRequest(TaskRequest):
    sentence: Annotated[
        Text,
        Form("Sentence", "a red dog", argument="sentences", each=True, help="Sentences that may be broken off."),
    ]


class BrokenOffAnswer(TaskAnswer):
    sentence: str
    whole: bool


def ask_broken_off(model: TaskModel, asked: Sequence[tuple[Record, BrokenOffRequest]]) -> list[BrokenOffAnswer]:
    predicted = model.ask([replace(record, captions=(request.sentence,)) for record, request in asked])
    return [
        BrokenOffAnswer(picture=record.key, sentence=request.sentence, whole=one["whole"])
        for (record, request), one in zip(asked, predicted[::2], strict=True)
    ]


BROKEN_OFF = TaskSpec(
    name="broken-off",
    title="Broken off",
    learns="tell whole sentences",
    field="captions",
    head="nlvr",
    build=lambda given: BrokenOff(given.tokens, given.max_words),
    training=TaskTraining(watched="accuracy", small=Small(OBJECTIVES["nlvr"](), max_words=24)),
    scoring=TaskScoring(
        noun="sentences",
        key="whole",
        shown=("accuracy",),
        score=score_broken_off,
        baselines=lambda records, training: Baselines({"accuracy": 0.5}, {}, ("blind: at random",)),
    ),
    interface=TaskInterface(
        verb="break",
        help="Decide whether a sentence is whole or broken off.",
        words=InterfaceWords(
            does="decides whether a sentence is whole",
            example='print(model.predict("broken-off", "photo.jpg", sentence="a red dog").whole)',
            tab="Whole",
        ),
        request=BrokenOffRequest,
        response=BrokenOffAnswer,
        answer=ask_broken_off,
        lines=lambda told, alone: [("whole" if told.whole else "broken off") + ("" if alone else f": {told.sentence}")],
    ),
)
