"""`Predictor`: a model with its detector, which converts images to records with regions, and records to answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from diptych.core import Record, Task
from diptych.core.contract import PARTS
from diptych.data.store.store import INDEX, Store
from diptych.data.store.tokens import Tokens
from diptych.inference.stored import StoredRegions
from diptych.models.decoding import DecodingOptions
from diptych.runs.folder import ModelFolder
from diptych.runtime.configs import derive
from diptych.runtime.devices import Precision
from diptych.runtime.errors import DataError, RecipeError, ServingError, UnsupportedError
from diptych.tasks import TaskSpec, run
from diptych.tasks.interface import TaskAnswer, TaskModel, TaskRequest
from diptych.vision.detectors.detector import Detector, Picture
from diptych.vision.detectors.given import WHOLE_BOXES, GivenRegions
from diptych.vision.detectors.load import load_detector
from diptych.vision.pictures import open_picture

if TYPE_CHECKING:
    from diptych.inference.search import Progress, ScannedFolder, Searched

# An image as a path, as an RGB uint8 tensor (3, H, W), or as a record, which may have regions.
AnyPicture = str | Path | UInt8[Tensor, "3 H W"] | Record


Refused = Callable[[AnyPicture, DataError], object]  # called as refused(image, error) for unreadable images


class Predictor:
    """A model with its detector. Thread-safe, unless the model is being trained."""

    def __init__(self, model: ModelFolder, features: Path | None = None) -> None:
        self.folder = model
        self.stored = features if features is not None and (features / INDEX).is_file() else None  # a store
        self.features = None if self.stored else features
        self.scans: dict[object, ScannedFolder] = {}  # the state of the folder that was searched last

    @property
    def precision(self) -> Precision:
        """The precision of predictions. Small batches may use fp32; each prediction reports its precision."""
        return self.folder.model.precision

    @property
    def tokens(self) -> Tokens:
        return self.folder.tokens

    @cached_property
    def detector(self) -> Detector:
        if self.stored is None:
            return self._detector()
        store = Store(self.stored)
        self.folder.accept(store.contract, self.stored, PARTS)  # mixed with new regions; classes are shown
        return StoredRegions(store, self._detector)

    def _detector(self) -> Detector:
        contract = self.folder.contract
        if self.features is not None:
            whole = contract.selection == WHOLE_BOXES
            given = GivenRegions(contract.feature_size, contract.class_names, self.features, whole)
            self.folder.accept(given.contract, self.features)
            return given
        if contract.is_given:
            raise ServingError(
                f"{self.folder.folder} was trained on precomputed features, and has no detector to compute them; pass "
                "the features of your images: --features PATH, or diptych.load(model, features=PATH)"
            )
        if self.folder.detector is None:
            raise ServingError(
                f"{self.folder.folder} has no detector/ folder, so it reads stored features only; copy the detector "
                f"of its features ({self.folder.contract.extractor}) to {self.folder.folder / 'detector'}"
            )
        detector = load_detector(self.folder.detector)
        if not detector.needs_pictures:
            raise ServingError(
                f"{self.folder.folder} was trained on ground-truth regions, which your images lack; train on "
                "the regions of a detector: diptych extract DATA --out OUT --detector ..."
            )
        self.folder.accept(detector.contract, self.folder.detector)
        device = next(self.folder.model.parameters()).device
        if detector.network is not None and device.type == "cuda":  # other devices lack some of the network's kernels
            detector.network.to(device)
        return detector

    @property
    def decoding(self) -> DecodingOptions:
        """The decoding options of the recipe. For a model without a recipe: beam search with 5 beams."""
        return self.folder.recipe.decoding if self.folder.recipe is not None else DecodingOptions(beams=5)

    def answers(self, spec: TaskSpec, requests: Sequence[tuple[Record, TaskRequest]]) -> list[Any]:
        """Return the answer to each (record, request), computed in one batch. The records have regions."""
        assert spec.required_interface.answer is not None, f"{spec.name} needs a gallery"
        trained_for = None if self.folder.recipe is None else self.folder.recipe.task
        spec.check_offered(self.folder.model, trained_for, self.folder.folder)
        return list(spec.required_interface.answer(self.task_model(spec), requests))

    def check(self, spec: TaskSpec, request: TaskRequest | None = None) -> None:
        """Raise UnsupportedError for a task that the model was not trained for, RecipeError for an invalid request."""
        model = self.task_model(spec)
        model.build()
        if request is not None and spec.required_interface.check is not None:
            spec.required_interface.check(model, request)

    def is_familiar(self, record: Record) -> bool | None:
        """Return True if a record's image is similar to the training images, False if not, None if this is unknown."""
        known = self.folder.familiarity
        return None if known is None or record.regions is None else known.knows(record.regions)

    def message(self, spec: TaskSpec, answer: Any, request: TaskRequest, record: Record, picture: str) -> TaskAnswer:
        """Convert an answer about a record to the message that is sent or printed. `picture`: the image's name."""
        interface = spec.required_interface
        made, familiar = interface.build_message(answer, request, picture), self.is_familiar(record)
        unread = self.unread(spec, interface.texts(request))
        notes = {name: one for name, one in (("familiar", familiar), ("unread", unread)) if one is not None}
        return derive(made, **notes) if notes else made

    def unread(self, spec: TaskSpec, texts: Iterable[str]) -> str | None:
        """Return a warning about words that the model does not know, and texts that it cuts, or None."""
        recipe = self.folder.recipe
        return run.unread(self.tokens, texts, recipe.data.max_words if recipe and spec.training.cuts_texts else None)

    def task_model(self, spec: TaskSpec) -> TaskModel:
        """Return the model with everything that a task needs, such as decoding options."""
        return TaskModel(
            model=self.folder.model,
            system=self.folder.architecture.system,
            tokens=self.tokens,
            decoding=self.decoding,
            class_names=tuple(self.folder.contract.class_names),
            build=partial(self._task, spec),
        )

    def _task(self, spec: TaskSpec) -> Task:
        """Return the task. Raises UnsupportedError if the model was not trained for it."""
        try:
            return self.folder.task(spec.name)
        except RecipeError as error:
            raise UnsupportedError(str(error)) from error

    def search(
        self, query: str, pictures: str | Path, cache: Path | None = None, progress: Progress | None = None,
        shortlist: int | None = None, by: Predictor | None = None, gallery: str | None = None, most: int | None = None,
        keep: float = 0.0,
    ) -> Searched:  # fmt: skip
        """Rank all images below a folder by how well they match the query. Unreadable images are reported.

        `cache`: the folder where regions are stored (default: in the user's cache folder). `shortlist`: the number of
        images that this model ranks; the two-tower model `by` selects them. `gallery`: URL of a database for the
        vectors (postgresql://...); by default they are in `cache`. `most`: maximum number of hits. `keep`: the folder
        is scanned again only after `keep` times the duration of the last scan; by default at each call.

        Raises ServingError if the model cannot match images and texts, and DataError if no image can be read.
        """
        from diptych.inference.search import search

        return search(self, query, Path(pictures), cache, progress, shortlist, by, gallery, most, keep)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model's architecture and weights, for the keys of cached results."""
        from diptych.runs.evaluation.retrieve import model_fingerprint

        return model_fingerprint(self.folder)

    def extract(self, pictures: Sequence[AnyPicture], refused: Refused | None = None) -> list[Record]:
        """Detect the regions of images, and return the images as records.

        Raises DataError for an image that cannot be read. If `refused` is given, unreadable images are skipped, and
        `refused(picture, error)` is called for each of them.
        """
        refuse, architecture = refused or _raise, self.folder.architecture
        seen: list[Record] = []
        blank = self.folder.recipe is not None and not self.folder.recipe.data.images  # True for blind baselines
        for number, record in sorted(self._detected(pictures, refuse).items()):
            regions = record.regions
            assert regions is not None
            if architecture.config.needs_regions and not len(regions):
                unusable = DataError(
                    f"no region was detected, and {architecture.system} needs one; lower the score threshold of the "
                    "detector (diptych extract --region-selection), or pass an image that shows more",
                    key=record.key,
                )
                refuse(pictures[number], unusable)
                continue
            first = regions.first(architecture.config.max_regions)
            seen.append(replace(record, regions=first.blank() if blank else first))
        return seen

    def _detected(self, pictures: Sequence[AnyPicture], refuse: Refused) -> dict[int, Record]:
        """Return {index: record with all its regions} of the images that can be read."""
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
                refuse(picture, error)
        if opened:
            regions = self.detector.detect([picture for _, _, picture in opened], [record for _, record, _ in opened])
            pixels = self.folder.recipe.pixels if self.folder.recipe is not None else None
            for (number, record, picture), detected in zip(opened, regions, strict=True):
                read = detected if pixels is None else replace(detected, pixels=pixels.read(picture))
                records[number] = replace(record, regions=read, size=detected.size)
        return records


def _raise(_: object, error: DataError) -> None:
    raise error


def _record(picture: AnyPicture, number: int) -> Record:
    if isinstance(picture, Record):
        return picture
    path = Path(picture) if isinstance(picture, str | Path) else None
    return Record(key=str(path or number), image=path)


def _open(picture: AnyPicture) -> Picture:
    match picture:
        case Record():
            if picture.image is None:
                raise DataError("this record has neither regions nor an image; add its image", key=picture.key)
            return open_picture(picture.image)
        case torch.Tensor():
            return picture
        case _:
            return open_picture(Path(picture))
