"""A batch of requests for one model, answered: regions are found for all pictures at once, then each task in a pass."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from diptych.core import Record
from diptych.models.decoding import DecodingOptions
from diptych.runtime.errors import DataError, DiptychError, GalleryError
from diptych.serving.messages import (
    CaptionRequest,
    Hit,
    Hits,
    Message,
    answer_line,
    caption_line,
    choice_line,
    ground_line,
    verify_line,
)
from diptych.serving.predictor import AnyPicture, Predictor
from diptych.serving.service.pictures import Gallery
from diptych.serving.service.problems import Refused
from diptych.serving.service.worker import Job, refuse
from diptych.systems.decoding import chosen_decoding
from diptych.vision.features.files import NoFeatures

log = logging.getLogger("diptych.serve")
Pair = tuple[Job, Record]
KEPT = 20.0  # a folder is looked through for a twentieth of the time at most
OWN = ("model", "explain", "captions", "sample", "seed")  # of a caption's request: the rest is how words are chosen


class Batches:
    """What the worker calls. `models` by name; `gallery` is what a search goes through."""

    def __init__(self, models: Mapping[str, Predictor], gallery: Gallery | None) -> None:
        self.models, self.gallery = models, gallery

    def __call__(self, jobs: Sequence[Job]) -> None:
        predictor = self.models[jobs[0].model]
        for job in jobs:
            if job.task == "search":
                self._together([job], lambda only: [self._search(predictor, only[0])])
        pictured = [job for job in jobs if job.picture is not None]
        seen = self._extracted(predictor, pictured)
        for key, pairs in _grouped(seen).items():
            self._settle(predictor, key[0], pairs)

    def _extracted(self, predictor: Predictor, jobs: Sequence[Job]) -> list[Pair]:
        """The jobs with what was seen in their pictures, without those that were refused for theirs."""
        begun = time.perf_counter()
        seen: list[Pair] = []
        try:
            refused: dict[int, DataError] = {}
            pictures = [_picture(predictor, job) for job in jobs]
            numbers = {id(picture): number for number, picture in enumerate(pictures)}
            records = predictor.extract(pictures, lambda picture, error: refused.update({numbers[id(picture)]: error}))
            there = iter(records)
            for number, job in enumerate(jobs):
                if number in refused:
                    refuse(job, refused[number])
                else:
                    seen.append((job, next(there)))
        except Exception as error:
            if len(jobs) == 1:
                refuse(jobs[0], error)
                return []
            seen = [pair for job in jobs for pair in self._extracted(predictor, [job])]
        took = 1000 * (time.perf_counter() - begun)
        for job in jobs:
            job.timing.extraction = took
        return seen

    def _settle(self, predictor: Predictor, task: str, pairs: Sequence[Pair]) -> None:
        records = {id(job): record for job, record in pairs}

        def answers(jobs: Sequence[Job]) -> list[Message]:
            return ANSWERS[task](predictor, [(job, records[id(job)]) for job in jobs])

        self._together([job for job, _ in pairs], answers)

    def _together(self, jobs: Sequence[Job], answers: Callable[[Sequence[Job]], list[Message]]) -> None:
        """In one pass; where that fails, one by one, so that a request does not fail for another's fault."""
        begun = time.perf_counter()
        try:
            results = answers(jobs)
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._together([job], answers)
            else:
                refuse(jobs[0], error)
            return
        took = 1000 * (time.perf_counter() - begun)
        for job, message in zip(jobs, results, strict=True):
            job.timing.model = took
            job.answered.set_result(message)

    def _search(self, predictor: Predictor, job: Job) -> Hits:
        if self.gallery is None:
            raise Refused(422, "this service has no pictures to search; start it with --pictures FOLDER")
        try:
            found = predictor.search(
                job.asked.query, self.gallery.folder, gallery=self.gallery.address, most=job.asked.most, keep=KEPT
            )
        except GalleryError as error:  # its address is nothing for clients
            log.error(str(error))
            raise Refused(503, "the database of this service's gallery does not answer; its log says why") from error
        named, used = self.gallery.name, predictor.precision
        best = found.hits[: job.asked.most]
        hits = tuple(Hit(picture=named(hit.picture), precision=used, score=hit.score) for hit in best)
        return Hits(query=job.asked.query, hits=hits, searched=found.readable, refused=len(found.refused))


def _picture(predictor: Predictor, job: Job) -> AnyPicture:
    """What the predictor opens; where features were given, they are found by the picture's name."""
    assert job.picture is not None
    if predictor.features is None:
        return job.picture
    return Record(key=job.name, size=(job.picture.shape[2], job.picture.shape[1]))


def _grouped(pairs: Sequence[Pair]) -> dict[tuple[str, object], list[Pair]]:
    """Those that can be answered in one pass. Drawn captions are each by themselves: their seed is theirs."""
    groups: dict[tuple[str, object], list[Pair]] = {}
    for job, record in pairs:
        if isinstance(job.asked, CaptionRequest):
            way: object = id(job) if job.asked.sample else job.asked.model_dump_json(exclude={"explain"})
        else:
            way = id(job) if job.task == "choose" else None
        groups.setdefault((job.task, way), []).append((job, record))
    return groups


def decoding_of(asked: CaptionRequest, predictor: Predictor) -> DecodingOptions:
    given = asked.model_dump(exclude=set(OWN))
    return chosen_decoding(predictor.decoding, asked.captions, asked.sample, **given)


def _captions(predictor: Predictor, pairs: Sequence[Pair]) -> list[Message]:
    asked = pairs[0][0].asked
    torch.manual_seed(asked.seed)
    predictions = predictor.captions(
        [record for _, record in pairs], decoding_of(asked, predictor), batch_size=len(pairs)
    )
    return [
        caption_line(one, job.name, job.asked.captions, job.asked.explain)
        for one, (job, _) in zip(predictions, pairs, strict=True)
    ]


def _answers(predictor: Predictor, pairs: Sequence[Pair]) -> list[Message]:
    predictions = predictor.answers([(record, job.asked.question) for job, record in pairs])
    return [
        answer_line(one, job.name, job.asked.question, job.asked.explain)
        for one, (job, _) in zip(predictions, pairs, strict=True)
    ]


def _grounds(predictor: Predictor, pairs: Sequence[Pair]) -> list[Message]:
    found = predictor.grounds([(record, job.asked.expression) for job, record in pairs])
    return [
        ground_line(one, job.name, job.asked.expression, _size(record))
        for one, (job, record) in zip(found, pairs, strict=True)
    ]


def _choices(predictor: Predictor, pairs: Sequence[Pair]) -> list[Message]:
    return [
        choice_line(
            predictor.choose(record, job.asked.question, job.asked.answers, job.asked.rationales),
            job.name,
            job.asked.question,
            job.asked.answers,
            job.asked.rationales,
        )
        for job, record in pairs
    ]


def _verdicts(predictor: Predictor, pairs: Sequence[Pair]) -> list[Message]:
    verdicts = predictor.verdicts([(record, job.asked.statement) for job, record in pairs])
    return [verify_line(one, job.name, job.asked.statement) for one, (job, _) in zip(verdicts, pairs, strict=True)]


def _size(record: Record) -> tuple[int, int]:
    assert record.size is not None
    return record.size


ANSWERS: dict[str, Callable[[Predictor, Sequence[Pair]], list[Message]]] = {
    "caption": _captions,
    "ask": _answers,
    "ground": _grounds,
    "choose": _choices,
    "verify": _verdicts,
}


def explain_error(error: BaseException, models: Mapping[str, Predictor], gallery: Path | None) -> str:
    """The message without folders of the machine that serves."""
    if isinstance(error, NoFeatures):
        return (
            "the features of this service have none of a picture of this name; send one that they are of, by its name"
        )
    text = str(error)
    for name, predictor in models.items():
        text = text.replace(str(predictor.folder.folder), name)
        if predictor.features is not None:
            text = text.replace(str(predictor.features), "the features")
    if gallery is not None:
        text = text.replace(str(gallery), "the gallery")
    return text if isinstance(error, DiptychError | Refused) else "a fault of the service; its log has it"
