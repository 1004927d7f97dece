"""`Predictor`, a model with its detector, and `load`, which opens one. The command line and the service use it too."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from diptych.core import Record, Task
from diptych.data.store.tokens import Tokens
from diptych.models.decoding import DecodingOptions
from diptych.runs.folder import ModelFolder, open_model
from diptych.runs.tasks import pixels_of, task_of
from diptych.runtime.devices import Precision, choose_device, choose_prediction
from diptych.runtime.errors import CheckpointError, DataError, RecipeError, ServingError
from diptych.runtime.plugins import load_plugins
from diptych.tasks import CAPTION, NLVR, REFERRING, VCR, VQA, TaskSpec, find_task
from diptych.tasks.caption import write
from diptych.tasks.interface import Prediction, TaskModel, TaskRequest
from diptych.tasks.nlvr import Verdict
from diptych.tasks.referring import FoundRegion
from diptych.tasks.vcr import ChoiceScores
from diptych.vision.detectors.detector import Detector, Picture
from diptych.vision.detectors.given import WHOLE_BOXES, GivenRegions
from diptych.vision.detectors.load import load_detector
from diptych.vision.pictures import open_picture, to_picture

if TYPE_CHECKING:
    from diptych.serving.search import Progress, ScannedFolder, Searched

# A path, an open Pillow image, an RGB tensor (3, H, W), or a record that may have regions already.
AnyPicture = str | Path | Image.Image | UInt8[Tensor, "3 H W"] | Record


Refused = Callable[[AnyPicture, DataError], object]  # called with each unreadable image and its error


class Predictor:
    """A model with its detector. Thread-safe unless the model is being trained."""

    def __init__(self, model: ModelFolder, features: Path | None = None) -> None:
        self.folder, self.features = model, features
        self.scans: dict[object, ScannedFolder] = {}  # the folder that was searched last

    @property
    def precision(self) -> Precision:
        """Precision of prediction; small batches may use fp32, which each prediction reports."""
        return self.folder.model.precision

    @property
    def tokens(self) -> Tokens:
        return self.folder.tokens

    @cached_property
    def detector(self) -> Detector:
        contract = self.folder.contract
        if self.features is not None:
            whole = contract.selection == WHOLE_BOXES
            given = GivenRegions(contract.feature_size, contract.class_names, self.features, whole)
            self.folder.accept(given.contract, self.features)
            return given
        if contract.is_given:
            raise ServingError(
                f"{self.folder.folder} was trained on given features, which an image alone lacks; give a file or "
                "folder of them: --features PATH, or diptych.load(model, features=PATH)"
            )
        if self.folder.detector is None:
            raise ServingError(
                f"{self.folder.folder} has no detector/ folder, so it reads stored features only; copy the detector "
                f"of its features ({self.folder.contract.extractor}) to {self.folder.folder / 'detector'}"
            )
        detector = load_detector(self.folder.detector)
        if not detector.needs_pictures:
            raise ServingError(
                f"{self.folder.folder} was trained on regions from ground truth, which your images lack; train on "
                "regions of a detector: diptych extract DATA OUT --detector ..."
            )
        self.folder.accept(detector.contract, self.folder.detector)
        device = next(self.folder.model.parameters()).device
        if detector.network is not None and device.type == "cuda":  # other devices lack some of its kernels
            detector.network.to(device)
        return detector

    def caption(self, picture: AnyPicture, decoding: DecodingOptions | None = None) -> str:
        """Return the caption of one image."""
        return next(self.captions([picture], decoding)).text

    def captions(
        self,
        pictures: Iterable[AnyPicture],
        decoding: DecodingOptions | None = None,
        batch_size: int = 16,
        refused: Refused | None = None,
    ) -> Iterator[Prediction]:
        """Yield a prediction for each image, in order; with several beams it lists the other finished captions.

        `decoding` defaults to the model's recipe. An image that cannot be read raises DataError; if `refused` is
        given, it is skipped and `refused(picture, error)` is called.
        """
        pictures = iter(pictures)
        while batch := list(islice(pictures, batch_size)):
            records = self.extract(batch, refused)
            if records:
                yield from write(self.task_model(CAPTION), records, decoding or self.decoding)

    @property
    def decoding(self) -> DecodingOptions:
        """The recipe's decoding options; beam search with 5 beams for a model without a recipe."""
        return self.folder.recipe.decoding if self.folder.recipe is not None else DecodingOptions(beams=5)

    def ask(self, picture: AnyPicture, question: str) -> str:
        """Return the most likely answer to one question."""
        return self.answer(picture, [question])[0].text

    def answer(self, picture: AnyPicture, questions: Sequence[str]) -> list[Prediction]:
        """Return the most likely answer to each question, with the next likeliest."""
        return self._predict(VQA, picture, [{"question": question} for question in questions])

    def ground(self, picture: AnyPicture, expression: str) -> FoundRegion:
        """Return the region that an expression refers to."""
        region: FoundRegion = self._predict(REFERRING, picture, [{"expression": expression}])[0]
        return region

    def choose(
        self, picture: AnyPicture, question: str, answers: Sequence[str], rationales: Sequence[str] = ()
    ) -> ChoiceScores:
        """Score answers to a question, and rationales; `[0]` in texts is the first region, or object of a record."""
        request = {"question": question, "answers": tuple(answers), "rationales": tuple(rationales)}
        chosen: ChoiceScores = self._predict(VCR, picture, [request])[0]
        return chosen

    def verify(self, picture: AnyPicture, statements: Sequence[str]) -> list[Verdict]:
        """Return for each statement whether it is true of the image."""
        return self._predict(NLVR, picture, [{"statement": statement} for statement in statements])

    def predict(self, task: str, picture: AnyPicture, **request: Any) -> Any:
        """Return the answer of any task: `model.predict("vqa", "photo.jpg", question="what is it?").text`."""
        return self._predict(find_task(task), picture, [request])[0]

    def _predict(self, spec: TaskSpec, picture: AnyPicture, requests: Sequence[dict[str, Any]]) -> list[Any]:
        self._task(spec)  # fails before an image is opened if the model lacks the task
        record = self.extract([picture])[0]
        kind = spec.required_interface.request
        return self.answers(spec, [(record, kind.model_construct(**one)) for one in requests])  # without limits

    def answers(self, spec: TaskSpec, requests: Sequence[tuple[Record, TaskRequest]]) -> list[Any]:
        """Return the task's answer to each request about a record with regions, computed in one batch."""
        assert spec.required_interface.answer is not None, f"{spec.name} needs a gallery"
        return list(spec.required_interface.answer(self.task_model(spec), requests))

    def task_model(self, spec: TaskSpec) -> TaskModel:
        """The model as the task asks it."""
        return TaskModel(
            model=self.folder.model,
            system=self.folder.architecture.system,
            tokens=self.tokens,
            decoding=self.decoding,
            class_names=tuple(self.folder.contract.class_names),
            build=partial(self._task, spec),
        )

    def _task(self, spec: TaskSpec) -> Task:
        """Raises ServingError if the model was not trained for the task."""
        try:
            return task_of(self.folder, spec.name)
        except RecipeError as error:
            raise ServingError(str(error)) from error

    def search(
        self,
        query: str,
        pictures: str | Path,
        cache: Path | None = None,
        progress: Progress | None = None,
        shortlist: int | None = None,
        by: Predictor | None = None,
        gallery: str | None = None,
        most: int | None = None,
        keep: float = 0.0,
    ) -> Searched:
        """Rank all images below a folder by how well they match the query; unreadable ones are reported.

        `cache` keeps regions (default: in the user's cache folder). With a `shortlist`, only the N best images of the
        two-tower model `by` are ranked. `gallery` is the address of a database for the vectors (postgresql://...;
        default: in the cache). `most` hits are enough. The folder is rescanned at each call, or with `keep` only after
        at least `keep` times the duration of the last scan.

        Raises ServingError if the model cannot match images and texts, DataError if no image can be read.
        """
        from diptych.serving.search import search

        return search(self, query, Path(pictures), cache, progress, shortlist, by, gallery, most, keep)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the model's architecture and weights, a key for cached results."""
        from diptych.runs.evaluation.retrieve import fingerprint

        return fingerprint(self.folder)

    def extract(self, pictures: Sequence[AnyPicture], refused: Refused | None = None) -> list[Record]:
        """Return the images as records with regions. Images that cannot be read are handled as in `captions`."""
        records: dict[int, Record] = {}
        opened: list[tuple[int, Record, Picture]] = []
        for number, picture in enumerate(pictures):
            record = _record(picture, number)
            try:
                if record.regions is not None:
                    records[number] = record
                elif self.detector.needs_pictures:
                    opened.append((number, record, _open(picture)))
                else:
                    given = self.detector.detect([], [record])[0]
                    records[number] = replace(record, regions=given, size=given.size)
            except DataError as error:
                if refused is None:
                    raise
                refused(picture, error)
        if opened:
            regions = self.detector.detect([picture for _, _, picture in opened], [record for _, record, _ in opened])
            pixels = pixels_of(self.folder.recipe) if self.folder.recipe is not None else None
            for (number, record, picture), detected in zip(opened, regions, strict=True):
                read = detected if pixels is None else replace(detected, pixels=pixels.read(picture))
                records[number] = replace(record, regions=read, size=detected.size)
        most = self.folder.architecture.config.max_regions
        needs = self.folder.architecture.config.needs_regions
        for number in [n for n, one in records.items() if needs and (one.regions is None or not len(one.regions))]:
            unusable = DataError(
                f"no region was detected, and {self.folder.architecture.system} needs one; lower the score threshold "
                "of the detector (diptych extract --region-selection), or give an image that shows more",
                key=records.pop(number).key,
            )
            if refused is None:
                raise unusable
            refused(pictures[number], unusable)
        ordered = (records[number] for number in sorted(records))
        return [replace(record, regions=record.regions.first(most)) for record in ordered if record.regions is not None]


def load(
    source: str | os.PathLike[str],
    features: str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    precision: str = "auto",
) -> Predictor:
    """Open a model folder, a run folder, or a model on the Hugging Face hub (`user/name`).

    `features` is a file or folder of region features, for a model that was trained on given features. `device` is auto
    (a GPU if there is one), cpu, cuda, cuda:N or mps. `precision` is fp32, bf16 or auto (bf16 if it is faster on the
    device; $DIPTYCH_PRECISION overrides it). Raises CheckpointError if there is no such model.
    """
    chosen = choose_device(device, "device")
    load_plugins()
    path = Path(source)
    if not path.exists() and not path.is_absolute() and str(source).count("/") == 1:
        from diptych.serving.hub import fetch

        path = fetch(str(source))
    if not path.exists():
        raise CheckpointError(f"no model at {path}; give a model folder, the folder of a run, or user/name on the hub")
    model = open_model(path)
    model.on(chosen, *choose_prediction(precision, chosen, model.architecture.config.width))
    return Predictor(model, None if features is None else Path(features))


def _record(picture: AnyPicture, number: int) -> Record:
    if isinstance(picture, Record):
        return picture
    path = Path(picture) if isinstance(picture, str | Path) else None
    return Record(key=str(path or number), image=path)


def _open(picture: AnyPicture) -> Picture:
    match picture:
        case Record():
            if picture.image is None:
                raise DataError("the record has neither regions nor an image", key=picture.key)
            return open_picture(picture.image)
        case Image.Image():
            return to_picture(picture)
        case torch.Tensor():
            return picture
        case _:
            return open_picture(Path(picture))
