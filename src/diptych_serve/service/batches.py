"""Answer a batch of requests for one model: extract the regions of all images, then answer each task in one batch."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from diptych.core import Record
from diptych.inference.predictor import AnyPicture, Predictor
from diptych.runtime.errors import DataError, DiptychError, GalleryError
from diptych.tasks import TaskSpec, interfaces, tasks_by_verb
from diptych.tasks.interface import Message, seed_sampling
from diptych.tasks.retrieval import SearchHit, SearchHits
from diptych.vision.features.files import NoFeatures
from diptych_serve.service.pictures import PictureGallery
from diptych_serve.service.problems import INTERNAL, RequestRefused
from diptych_serve.service.worker import Job, refuse

log = logging.getLogger("diptych.serve")
Pair = tuple[Job, Record]
KEPT = 20.0  # a scan is repeated after 20 times its duration, so scans take at most 5% of the time


class RequestBatches:
    """The function that the worker calls with each batch. `models`: name -> model. `gallery`: the images to search."""

    def __init__(self, models: Mapping[str, Predictor], gallery: PictureGallery | None) -> None:
        self.models, self.gallery = models, gallery

    def __call__(self, jobs: Sequence[Job]) -> None:
        predictor = self.models[jobs[0].model]
        for job in jobs:
            if job.picture is None:
                self._together([job], lambda only: [self._search(predictor, only[0])])
        groups: dict[tuple[str, object], list[Pair]] = {}  # (task, options) -> requests that one batch can answer
        for job, record in self._extracted(predictor, [job for job in jobs if job.picture is not None]):
            groups.setdefault((job.task, interfaces()[job.task].alike(job.request)), []).append((job, record))
        for (task, _), pairs in groups.items():
            self._answer(predictor, tasks_by_verb()[task], pairs)

    def _extracted(self, predictor: Predictor, jobs: Sequence[Job]) -> list[Pair]:
        """Return each job with the record of its image.

        Jobs with an unreadable image are answered with an error and left out.
        """
        begun = time.perf_counter()
        pairs: list[Pair] = []
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
                    pairs.append((job, next(there)))
        except Exception as error:
            if len(jobs) == 1:
                refuse(jobs[0], error)
                return []
            pairs = [pair for job in jobs for pair in self._extracted(predictor, [job])]
        took = 1000 * (time.perf_counter() - begun)
        for job in jobs:
            job.timing.extraction = took
        return pairs

    def _answer(self, predictor: Predictor, spec: TaskSpec, pairs: Sequence[Pair]) -> None:
        records = {id(job): record for job, record in pairs}

        def answers(jobs: Sequence[Job]) -> list[Message]:
            seed_sampling(jobs[0].request)
            made = predictor.answers(spec, [(records[id(job)], job.request) for job in jobs])
            return [
                predictor.message(spec, one, job.request, records[id(job)], job.name)
                for one, job in zip(made, jobs, strict=True)
            ]

        self._together([job for job, _ in pairs], answers)

    def _together(self, jobs: Sequence[Job], answers: Callable[[Sequence[Job]], list[Message]]) -> None:
        """Answer jobs in one batch.

        If the batch fails, answer its jobs one by one, so that a bad request affects no other job.
        """
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
            raise RequestRefused(422, "this service has no images to search; start it with --images FOLDER")
        try:
            where: Any = {"pictures": self.gallery.folder, "gallery": self.gallery.address}
            searched = predictor.search(job.request.query, **where, most=job.request.top_k, keep=KEPT)
        except GalleryError as error:  # the error's text contains the database's address, which clients must not see
            log.error(str(error))
            reason = "the database of this service's gallery does not answer; the service's log has the reason"
            raise RequestRefused(503, reason) from error
        named, used = self.gallery.name, predictor.precision
        best = searched.hits[: job.request.top_k]
        title = self.gallery.title
        hits = tuple(
            SearchHit(picture=named(hit.picture), name=title(hit.picture), precision=used, score=hit.score)
            for hit in best
        )
        return SearchHits(query=job.request.query, hits=hits, searched=searched.readable, refused=len(searched.refused))


def _picture(predictor: Predictor, job: Job) -> AnyPicture:
    """Return the image in the form that the predictor reads.

    For precomputed features, this is a record with the image's name.
    """
    assert job.picture is not None
    if predictor.features is None:
        return job.picture
    return Record(key=job.name, size=(job.picture.shape[2], job.picture.shape[1]))


def explain_error(error: BaseException, models: Mapping[str, Predictor], gallery: Path | None) -> str:
    """Return the message of an error, without paths of the machine that runs the service."""
    if isinstance(error, NoFeatures):
        return "the service has no features of an image of this name; send an image that has features, under its name"
    text = str(error)
    for name, predictor in models.items():
        text = text.replace(str(predictor.folder.folder), name)
        if predictor.features is not None:
            text = text.replace(str(predictor.features), "the features")
    if gallery is not None:
        text = text.replace(str(gallery), "the gallery")
    return text if isinstance(error, DiptychError | RequestRefused) else INTERNAL
