"""A batch of requests for one model, answered: regions are found for all pictures at once, then each task in a pass."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from diptych.core import Record
from diptych.runtime.errors import DataError, DiptychError, GalleryError
from diptych.serving.predictor import AnyPicture, Predictor
from diptych.serving.service.pictures import PictureGallery
from diptych.serving.service.problems import RequestRefused
from diptych.serving.service.worker import Job, refuse
from diptych.tasks import TaskSpec, interfaces, tasks_by_verb
from diptych.tasks.interface import Message, seed_sampling
from diptych.tasks.retrieval import SearchHit, SearchHits
from diptych.vision.features.files import NoFeatures

log = logging.getLogger("diptych.serve")
Pair = tuple[Job, Record]
KEPT = 20.0  # a folder is looked through for a twentieth of the time at most


class RequestBatches:
    """What the worker calls. `models` by name; `gallery` is what a search goes through."""

    def __init__(self, models: Mapping[str, Predictor], gallery: PictureGallery | None) -> None:
        self.models, self.gallery = models, gallery

    def __call__(self, jobs: Sequence[Job]) -> None:
        predictor = self.models[jobs[0].model]
        for job in jobs:
            if job.picture is None:
                self._together([job], lambda only: [self._search(predictor, only[0])])
        pictured = [job for job in jobs if job.picture is not None]
        seen = self._extracted(predictor, pictured)
        for (task, _), pairs in _grouped(seen).items():
            self._settle(predictor, tasks_by_verb()[task], pairs)

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

    def _settle(self, predictor: Predictor, spec: TaskSpec, pairs: Sequence[Pair]) -> None:
        records = {id(job): record for job, record in pairs}

        def answers(jobs: Sequence[Job]) -> list[Message]:
            seed_sampling(jobs[0].asked)
            found = predictor.answers(spec, [(records[id(job)], job.asked) for job in jobs])
            return [
                spec.required_interface.build_message(one, job.asked, job.name)
                for one, job in zip(found, jobs, strict=True)
            ]

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

    def _search(self, predictor: Predictor, job: Job) -> SearchHits:
        if self.gallery is None:
            raise RequestRefused(422, "this service has no pictures to search; start it with --pictures FOLDER")
        try:
            found = predictor.search(
                job.asked.query, self.gallery.folder, gallery=self.gallery.address, most=job.asked.most, keep=KEPT
            )
        except GalleryError as error:  # its address is nothing for clients
            log.error(str(error))
            raise RequestRefused(
                503, "the database of this service's gallery does not answer; its log says why"
            ) from error
        named, used = self.gallery.name, predictor.precision
        best = found.hits[: job.asked.most]
        hits = tuple(SearchHit(picture=named(hit.picture), precision=used, score=hit.score) for hit in best)
        return SearchHits(query=job.asked.query, hits=hits, searched=found.readable, refused=len(found.refused))


def _picture(predictor: Predictor, job: Job) -> AnyPicture:
    """What the predictor opens; where features were given, they are found by the picture's name."""
    assert job.picture is not None
    if predictor.features is None:
        return job.picture
    return Record(key=job.name, size=(job.picture.shape[2], job.picture.shape[1]))


def _grouped(pairs: Sequence[Pair]) -> dict[tuple[str, object], list[Pair]]:
    """Those that can be answered in one pass."""
    groups: dict[tuple[str, object], list[Pair]] = {}
    for job, record in pairs:
        way = interfaces()[job.task].alike(job.asked)
        groups.setdefault((job.task, way), []).append((job, record))
    return groups


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
    return text if isinstance(error, DiptychError | RequestRefused) else "a fault of the service; its log has it"
