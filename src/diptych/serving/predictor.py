"""A picture in, words out: what the command line, a page and three lines of Python share."""

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
    from diptych.serving.search import Looked, Progress, Searched

# A file, an open Pillow picture, RGB as (3, H, W), or a record whose regions are there already.
AnyPicture = str | Path | Image.Image | UInt8[Tensor, "3 H W"] | Record


Refused = Callable[[AnyPicture, DataError], object]  # gets each picture that cannot be read, and why


class Predictor:
    """A model with its detector open. Thread-safe as long as nobody trains it."""

    def __init__(self, model: ModelFolder, features: Path | None = None) -> None:
        self.folder, self.features = model, features
        self.looked: dict[object, Looked] = {}  # the folder that was searched last

    @property
    def precision(self) -> Precision:
        """In which the model predicts; small batches may be in fp32, as each prediction says."""
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
                f"{self.folder.folder} was trained on features that were given, and a picture alone has none; give a "
                "file or folder of them: --features PATH, or diptych.load(model, features=PATH)"
            )
        if self.folder.detector is None:
            raise ServingError(
                f"{self.folder.folder} has no detector/ folder, so it reads stored features alone; copy the detector "
                f"that made its features ({self.folder.contract.extractor}) to {self.folder.folder / 'detector'}"
            )
        detector = load_detector(self.folder.detector)
        if not detector.needs_pictures:
            raise ServingError(
                f"{self.folder.folder} was trained on regions from ground truth, and a picture of yours has none; "
                f"train on regions of a detector: diptych extract DATA OUT --detector ..."
            )
        self.folder.accept(detector.contract, self.folder.detector)
        device = next(self.folder.model.parameters()).device
        if detector.network is not None and device.type == "cuda":  # what else torch runs on lacks some of its kernels
            detector.network.to(device)
        return detector

    def caption(self, picture: AnyPicture, decoding: DecodingOptions | None = None) -> str:
        """One sentence about one picture."""
        return next(self.captions([picture], decoding)).text

    def captions(
        self,
        pictures: Iterable[AnyPicture],
        decoding: DecodingOptions | None = None,
        batch_size: int = 16,
        refused: Refused | None = None,
    ) -> Iterator[Prediction]:
        """One for each picture, in order; with several beams also the others that were finished.

        `decoding` defaults to the model's recipe. A picture that cannot be read raises DataError, or is passed over
        where `refused(picture, error)` is given.
        """
        pictures = iter(pictures)
        while batch := list(islice(pictures, batch_size)):
            records = self.extract(batch, refused)
            if records:
                yield from write(self.task_model(CAPTION), records, decoding or self.decoding)

    @property
    def decoding(self) -> DecodingOptions:
        """How the model's recipe writes captions."""
        return self.folder.recipe.decoding if self.folder.recipe is not None else DecodingOptions(beams=5)

    def ask(self, picture: AnyPicture, question: str) -> str:
        """The most likely answer to one question."""
        return self.answer(picture, [question])[0].text

    def answer(self, picture: AnyPicture, questions: Sequence[str]) -> list[Prediction]:
        """The most likely answer to each question, with the next likeliest."""
        return self._predict(VQA, picture, [{"question": question} for question in questions])

    def ground(self, picture: AnyPicture, expression: str) -> FoundRegion:
        """The region that the words mean."""
        found: FoundRegion = self._predict(REFERRING, picture, [{"expression": expression}])[0]
        return found

    def choose(
        self, picture: AnyPicture, question: str, answers: Sequence[str], rationales: Sequence[str] = ()
    ) -> ChoiceScores:
        """The best of some answers, and the best reason for it; `[0]` is the first region, or thing of a record."""
        asked = {"question": question, "answers": tuple(answers), "rationales": tuple(rationales)}
        chosen: ChoiceScores = self._predict(VCR, picture, [asked])[0]
        return chosen

    def verify(self, picture: AnyPicture, statements: Sequence[str]) -> list[Verdict]:
        """Whether each statement is true of the picture."""
        return self._predict(NLVR, picture, [{"statement": statement} for statement in statements])

    def predict(self, task: str, picture: AnyPicture, **asked: Any) -> Any:
        """What the task of this name answers: `model.predict("vqa", "photo.jpg", question="what is it?").text`."""
        return self._predict(find_task(task), picture, [asked])[0]

    def _predict(self, spec: TaskSpec, picture: AnyPicture, asked: Sequence[dict[str, Any]]) -> list[Any]:
        self._task(spec)  # whether it can, before a picture is opened
        record = self.extract([picture])[0]
        kind = spec.required_interface.request
        return self.answers(spec, [(record, kind.model_construct(**one)) for one in asked])  # limits are a service's

    def answers(self, spec: TaskSpec, asked: Sequence[tuple[Record, TaskRequest]]) -> list[Any]:
        """A task's answer to each request about these records, all in one pass."""
        assert spec.required_interface.answer is not None, f"{spec.name} is asked of a gallery"
        return list(spec.required_interface.answer(self.task_model(spec), asked))

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
        """Raises ServingError where the model has not learnt it."""
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
        """All pictures below a folder, those that fit the query best first; what cannot be read is named, too.

        With a `shortlist`, only so many: those that `by`, a model with two towers, finds best. `gallery` is the address
        of a database that keeps the vectors (postgresql://...; default: in the cache); `most`: so many hits will do.
        The folder is looked through anew; with `keep`, only after so many times as long as that took.
        """
        from diptych.serving.search import search

        return search(
            self,
            query,
            Path(pictures),
            cache,
            progress=progress,
            shortlist=shortlist,
            by=by,
            gallery=gallery,
            most=most,
            keep=keep,
        )

    @cached_property
    def fingerprint(self) -> str:
        """Of the model's shape and weights: what it computed is kept under it."""
        from diptych.runs.evaluation.retrieve import fingerprint

        return fingerprint(self.folder)

    def extract(self, pictures: Sequence[AnyPicture], refused: Refused | None = None) -> list[Record]:
        """The pictures as records with regions."""
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
            for (number, record, picture), found in zip(opened, regions, strict=True):
                seen = found if pixels is None else replace(found, pixels=pixels.read(picture))
                records[number] = replace(record, regions=seen, size=found.size)
        most = self.folder.architecture.config.max_regions
        for number in self._unseen(records):
            unseen = DataError(
                f"no region was found in it, and {self.folder.architecture.system} sees nothing else; lower the score "
                "threshold of the detector (diptych extract --region-selection), or give a picture that shows more",
                key=records.pop(number).key,
            )
            if refused is None:
                raise unseen
            refused(pictures[number], unseen)
        shown = (records[number] for number in sorted(records))
        return [replace(record, regions=record.regions.first(most)) for record in shown if record.regions is not None]

    def _unseen(self, records: dict[int, Record]) -> list[int]:
        """Those in which there is nothing that the model could see."""
        if not self.folder.architecture.config.needs_regions:
            return []
        return [number for number, record in records.items() if record.regions is None or not len(record.regions)]


def load(
    source: str | os.PathLike[str],
    features: str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    precision: str = "auto",
) -> Predictor:
    """Open a model folder, a run folder, or a model on the Hugging Face hub (`user/name`).

    `features` is a file or folder of region features, for a model that was trained on features given so. `device` is
    auto (a GPU where there is one), cpu, cuda, cuda:N or mps; `precision` fp32, bf16 or auto (bf16 where the device
    gains by it for a batch; $DIPTYCH_PRECISION says otherwise).
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
                raise DataError("the record has neither regions nor a picture", key=picture.key)
            return open_picture(picture.image)
        case Image.Image():
            return to_picture(picture)
        case torch.Tensor():
            return picture
        case _:
            return open_picture(Path(picture))
