"""A picture in, words out: what the command line, a page and three lines of Python share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from diptych.core import Question, Record, Regions, Sample, Writer, collate
from diptych.data.store.tokens import Tokens
from diptych.models.decoding import DecodingOptions, decode
from diptych.runs.folder import ModelFolder, open_model
from diptych.runs.tasks import pixels_of
from diptych.runtime.devices import Precision, choose_device, choose_prediction, precision_of, predicting
from diptych.runtime.errors import CheckpointError, DataError, ServingError
from diptych.runtime.plugins import load_plugins
from diptych.serving.deciding import Chosen, Found, Verdict, choose, ground, learnt_task, verify
from diptych.serving.messages import LIKELIEST
from diptych.tasks import VQA
from diptych.tasks.caption import Captioning
from diptych.tasks.influence import weigh_answer, weigh_words
from diptych.tasks.vqa import Vqa
from diptych.vision.detectors.detector import Detector, Picture
from diptych.vision.detectors.given import WHOLE_BOXES, Given
from diptych.vision.detectors.load import load_detector
from diptych.vision.pictures import open_picture, to_picture

if TYPE_CHECKING:
    from diptych.serving.search import Looked, Progress, Searched

# A file, an open Pillow picture, RGB as (3, H, W), or a record whose regions are there already.
AnyPicture = str | Path | Image.Image | UInt8[Tensor, "3 H W"] | Record


Refused = Callable[[AnyPicture, DataError], object]  # told of each picture that cannot be read, and why


@dataclass(frozen=True)
class Prediction:
    """`text` is the caption or the answer; `regions` is what it was made from."""

    text: str
    score: float  # a caption's log-probability; an answer's probability
    precision: Precision  # in which it was computed
    record: Record
    words: tuple[str, ...]  # of a caption; an answer counts as one
    weigh: Callable[[], Tensor] = field(repr=False, compare=False)
    others: tuple[tuple[str, float], ...] = ()  # further captions or answers with their scores, less likely ones
    class_names: tuple[str, ...] = ()  # what the detector can take a region for

    @property
    def regions(self) -> Regions:
        assert self.record.regions is not None
        return self.record.regions

    @cached_property
    def weights(self) -> Float[Tensor, "W R"]:
        """What each region weighed on each word: the log-probability (in nats) that the word loses without it and the
        regions that cover it, which have the same weight."""
        return self.weigh()


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
            given = Given(contract.feature_size, contract.class_names, self.features, whole)
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
        where somebody is told: `refused(picture, error)`.
        """
        pictures = iter(pictures)
        while batch := list(islice(pictures, batch_size)):
            records = self.extract(batch, refused)
            if records:
                yield from self._captions(records, decoding or self.decoding)

    @property
    def decoding(self) -> DecodingOptions:
        """How the model's recipe writes captions."""
        return self.folder.recipe.decoding if self.folder.recipe is not None else DecodingOptions(beams=5)

    def ask(self, picture: AnyPicture, question: str) -> str:
        """The most likely answer to one question."""
        return self.answer(picture, [question])[0].text

    def answer(self, picture: AnyPicture, questions: Sequence[str]) -> list[Prediction]:
        self._question_answering()  # whether it can, before a picture is opened
        record = self.extract([picture])[0]
        return self.answers([(record, question) for question in questions])

    def answers(self, asked: Sequence[tuple[Record, str]]) -> list[Prediction]:
        """An answer to a question about each of these records, all in one pass, with the next likeliest beside it."""
        task = self._question_answering()
        if not all(question.strip() for _, question in asked):
            raise ServingError("a question is empty; ask in words, such as 'what colour is the kite?'")
        samples = [
            sample
            for number, (record, text) in enumerate(asked)
            for sample in task.queries(replace(record, questions=(Question(str(number), text, ()),)))
        ]
        with predicting(self.folder.model, len(samples)):
            batch = collate(samples).to(next(self.folder.model.parameters()).device)
            likeliest = task.likeliest(self.folder.model, batch, LIKELIEST)
        return [
            Prediction(
                text=text,
                score=score,
                precision=precision_of(self.folder.model, len(samples)),
                record=record,
                words=(text,),
                weigh=partial(self._weigh_answer, task, record, sample, text),
                others=tuple(others),
                class_names=tuple(self.folder.contract.class_names),
            )
            for (record, _), sample, ((text, score), *others) in zip(asked, samples, likeliest, strict=True)
        ]

    def _question_answering(self) -> Vqa:
        task = learnt_task(self.folder, VQA.name)
        assert isinstance(task, Vqa)
        return task

    def _weigh_answer(self, task: Vqa, record: Record, asked: Sample, answer: str) -> Float[Tensor, "1 R"]:
        assert record.regions is not None
        number = task.answers.names.index(answer)
        return weigh_answer(self.folder.model, record.regions, asked.text, number, task.log_probabilities)

    def ground(self, picture: AnyPicture, expression: str) -> Found:
        """The region that the words mean."""
        return self.grounds([(self.extract([picture])[0], expression)])[0]

    def grounds(self, asked: Sequence[tuple[Record, str]]) -> list[Found]:
        """The region that each expression means in its record, all in one pass."""
        return ground(self.folder, asked)

    def choose(
        self, picture: AnyPicture, question: str, answers: Sequence[str], rationales: Sequence[str] = ()
    ) -> Chosen:
        """The best of some answers, and the best reason for it; `[0]` is the first region, or thing of a record."""
        return choose(self.folder, self.extract([picture])[0], question, answers, rationales)

    def verify(self, picture: AnyPicture, statements: Sequence[str]) -> list[Verdict]:
        """Whether each statement is true of the picture."""
        record = self.extract([picture])[0]
        return self.verdicts([(record, statement) for statement in statements])

    def verdicts(self, asked: Sequence[tuple[Record, str]]) -> list[Verdict]:
        """Whether each statement is true of its record, all in one pass."""
        return verify(self.folder, asked)

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
        """All pictures below a folder, those that fit the query best first; what cannot be read is named beside.

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

    def _captions(self, records: list[Record], decoding: DecodingOptions) -> Iterator[Prediction]:
        writer = self.folder.model
        if not isinstance(writer, Writer):
            raise ServingError(
                f"{self.folder.architecture.system} reads and does not write captions; choose another model"
            )
        with predicting(self.folder.model, len(records)):
            device = next(self.folder.model.parameters()).device
            task = Captioning(self.tokens, decoding)
            asked = collate([sample for record in records for sample in task.queries(record)]).to(device)
            written = decode(writer, asked, decoding)
        for record, (best, *others) in zip(records, written, strict=True):
            text = self.tokens.decode(best.tokens)
            words = self.tokens.words(text)
            yield Prediction(
                text=text,
                score=best.score,
                precision=precision_of(self.folder.model, len(records)),
                record=record,
                words=tuple(word for word, _ in words),
                weigh=partial(self._weigh, record, [pieces for _, pieces in words]),
                others=tuple((self.tokens.decode(other.tokens), other.score) for other in others),
                class_names=tuple(self.folder.contract.class_names),
            )

    def _weigh(self, record: Record, words: list[list[int]]) -> Float[Tensor, "W R"]:
        """A word's pieces follow from each other, so their log-probabilities add up."""
        assert record.regions is not None
        pieces = torch.tensor([piece for word in words for piece in word], dtype=torch.long)
        weights = weigh_words(self.folder.model, record.regions, pieces)
        of_word = torch.tensor([number for number, word in enumerate(words) for _ in word], dtype=torch.long)
        return torch.zeros(len(words), weights.shape[1]).index_add_(0, of_word, weights)


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
