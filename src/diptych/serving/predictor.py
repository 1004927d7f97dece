"""A picture in, words out: what the command line, a page and three lines of Python share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from diptych.core import Question, Record, Regions, Task
from diptych.decoding import DecodingOptions
from diptych.errors import CheckpointError, DataError, ServingError
from diptych.loading.tokens import Tokens
from diptych.recipes.folder import ModelFolder, open_model
from diptych.tasks.caption import Captioning
from diptych.tasks.run import ask
from diptych.tasks.vqa import QuestionAnswering
from diptych.vision.eyes import Eyes, Picture
from diptych.vision.load import load_eyes
from diptych.vision.pictures import open_picture, to_picture

# A file, an open Pillow picture, RGB as (3, H, W), or a record whose regions are there already.
AnyPicture = str | Path | Image.Image | UInt8[Tensor, "3 H W"] | Record


@dataclass(frozen=True)
class Prediction:
    """`text` is the caption or the answer; `regions` is what it was made from."""

    text: str
    score: float  # a caption's log-probability; an answer's probability
    record: Record

    @property
    def regions(self) -> Regions:
        assert self.record.regions is not None
        return self.record.regions


class Predictor:
    """A model with its eyes open. Thread-safe as long as nobody trains it."""

    def __init__(self, model: ModelFolder) -> None:
        self.folder = model

    @property
    def tokens(self) -> Tokens:
        return self.folder.tokens

    @cached_property
    def eyes(self) -> Eyes:
        if self.folder.eyes is None:
            raise ServingError(
                f"{self.folder.folder} has no eyes/ folder, so it can read stored features alone; copy the detector "
                f"that made its features ({self.folder.contract.extractor}) to {self.folder.folder / 'eyes'}"
            )
        eyes = load_eyes(self.folder.eyes)
        if not eyes.looks:
            raise ServingError(
                f"{self.folder.folder} was trained on regions from ground truth, and a picture of yours has none; "
                f"train on regions of a detector: diptych extract DATA OUT --detector ..."
            )
        self.folder.accept(eyes.contract, self.folder.eyes)
        return eyes

    def caption(self, picture: AnyPicture, decoding: DecodingOptions | None = None) -> str:
        """One sentence about one picture."""
        return next(self.captions([picture], decoding)).text

    def captions(
        self, pictures: Iterable[AnyPicture], decoding: DecodingOptions | None = None, batch_size: int = 16
    ) -> Iterator[Prediction]:
        """One for each picture, in order. `decoding` defaults to the model's recipe."""
        recipe = self.folder.recipe
        chosen = decoding or (recipe.decoding if recipe is not None else DecodingOptions(beams=5))
        task = Captioning(self.tokens, chosen)
        pictures = iter(pictures)
        while batch := list(islice(pictures, batch_size)):
            yield from self._answer(task, self.look(batch), "caption")

    def ask(self, picture: AnyPicture, question: str) -> str:
        """The most likely answer to one question."""
        return self.answer(picture, [question])[0].text

    def answer(self, picture: AnyPicture, questions: Sequence[str]) -> list[Prediction]:
        if self.folder.answers is None:
            raise ServingError(
                f"{self.folder.folder} has learnt no answers; teach it: "
                f"diptych finetune vqa --model {self.folder.folder}"
            )
        if not all(question.strip() for question in questions):
            raise ServingError("a question is empty; ask in words, such as 'what colour is the kite?'")
        record = self.look([picture])[0]
        asked = replace(record, questions=tuple(Question(str(n), text, ()) for n, text in enumerate(questions)))
        return self._answer(QuestionAnswering(self.tokens, self.folder.answers), [asked], "answer")

    def look(self, pictures: Sequence[AnyPicture]) -> list[Record]:
        """The pictures as records with regions."""
        seen: list[Record | None] = [p if isinstance(p, Record) and p.regions is not None else None for p in pictures]
        unseen = [n for n, record in enumerate(seen) if record is None]
        opened = [(_record(pictures[n], n), _open(pictures[n])) for n in unseen]
        if opened:
            regions = self.eyes.see([picture for _, picture in opened], [record for record, _ in opened])
            for n, (record, _), found in zip(unseen, opened, regions, strict=True):
                seen[n] = replace(record, regions=found, size=found.size)
        most = self.folder.architecture.config.max_regions
        return [replace(r, regions=r.regions.first(most)) for r in seen if r is not None and r.regions is not None]

    def _answer(self, task: Task, records: list[Record], name: str) -> list[Prediction]:
        answers = ask(task, self.folder.model, records)
        by_record = [record for record in records for _ in task.questions(record)]
        return [Prediction(a[name], a["score"], record) for a, record in zip(answers, by_record, strict=True)]


def load(source: str | os.PathLike[str]) -> Predictor:
    """Open a model folder, a run folder, or a model on the Hugging Face hub (`user/name`)."""
    path = Path(source)
    if not path.exists() and not path.is_absolute() and str(source).count("/") == 1:
        path = _from_hub(str(source))
    if not path.exists():
        raise CheckpointError(f"no model at {path}; give a model folder, the folder of a run, or user/name on the hub")
    return Predictor(open_model(path))


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.safetensors", "eyes/*"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # the library raises many kinds, and they all mean: it could not be had
        raise CheckpointError(
            f"{name} is no folder here, and could not be fetched from the hub ({type(error).__name__}); without a "
            f"network, copy the model folder here and give its path"
        ) from error


def _record(picture: AnyPicture, number: int) -> Record:
    if isinstance(picture, Record):
        return picture
    path = Path(picture) if isinstance(picture, str | Path) else None
    return Record(key=str(path or number), picture=path)


def _open(picture: AnyPicture) -> Picture:
    match picture:
        case Record():
            if picture.picture is None:
                raise DataError("the record has neither regions nor a picture", key=picture.key)
            return open_picture(picture.picture)
        case Image.Image():
            return to_picture(picture)
        case torch.Tensor():
            return picture
        case _:
            return open_picture(Path(picture))
