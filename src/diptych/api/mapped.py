"""Compute the results of `Model` for images in any form, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from diptych.api import results
from diptych.api.arguments import texts_of
from diptych.api.images import Readable, batches, is_one, numbered, paired, readable
from diptych.core import Record
from diptych.inference.open import HasFolder
from diptych.inference.predictor import Predictor
from diptych.runs.folder import ModelFolder
from diptych.runtime.arguments import check_type
from diptych.runtime.errors import DataError, RecipeError
from diptych.tasks import TaskSpec
from diptych.tasks.interface import TaskRequest, require_text
from diptych.tasks.run import unread

T = TypeVar("T")
Predict = Callable[[Sequence[Record], Sequence[Any]], Sequence[Any]]  # (records, their texts) -> the model's answers
Made = Callable[[Any, Any, dict[str, Any]], T]  # (answer, record, fields such as labels) -> result


class Mapped(HasFolder):
    """Base class of `Model`, with the code that the methods of `Model` share."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    def model_folder(self) -> ModelFolder:
        return self.predictor.folder

    def queries(self, texts: str | Iterable[str]) -> list[str]:
        """Return texts to match with images as a list. Warn of their parts that the model does not read.

        Raises ServingError for an empty text.
        """
        from diptych.inference.search import query_words

        listed = texts_of("texts", texts)
        for text in listed:
            require_text("a text", text, "a red kite")
        results.warn_unread(unread(self.predictor.tokens, listed, query_words(self.predictor)))
        return listed

    def _asked(self, spec: TaskSpec, images: Any, texts: Any, made: Made[T]) -> Any:
        """Answer a request for each pair of image and text. `made(answer, request, fields)` makes the result."""
        kind = spec.required_interface.request
        field = next(name for name, form in spec.required_interface.forms.items() if form.argument)
        check_type(f"{field}s", texts, (str, Iterable), "a text or a list of texts", RecipeError)

        def answer(items: Sequence[Record], words: Sequence[Any]) -> Sequence[Any]:
            requests = [kind.model_construct(None, **{field: text}) for text in texts_of(f"{field}s", words)]
            return self.predictor.answers(spec, list(zip(items, requests, strict=True)))

        return self._mapped(spec, images, texts, answer, made)

    def _requested(self, spec: TaskSpec, images: Any, request: TaskRequest, made: Made[T]) -> Any:
        """Answer the same request for each image."""

        def answer(items: Sequence[Record], _: object) -> Sequence[Any]:
            return self.predictor.answers(spec, [(item, request) for item in items])

        return self._mapped(spec, images, None, answer, made)

    def _mapped(self, spec: TaskSpec | None, images: Any, texts: Any, answer: Predict, made: Made[T]) -> Any:
        """Compute results in batches.

        A single image and text give one result. Lists give a list, and iterators give an iterator.
        """
        if spec is not None:
            self.predictor.check(spec)  # an invalid request must raise its error before images are opened
        computed = self._computed(spec, images, texts, answer, made)
        if isinstance(texts, Iterator) or (isinstance(images, Iterator) and not is_one(images)):
            return computed  # an open file is an iterator too, but one image
        return next(computed) if is_one(images) and _is_single(texts) else list(computed)

    def _computed(self, spec: TaskSpec | None, images: Any, texts: Any, answer: Predict, made: Made[T]) -> Iterator[T]:
        seen, warned = self._seen([(None, images)]) if is_one(images) else [], False
        for batch in batches(enumerate(_pairs(images, texts))):
            words = [text for _, (_, text) in batch]
            looked = seen * len(batch) or self._seen([(number, image) for number, (image, _) in batch])
            warned = warned or results.warn_unfamiliar(looked)
            if spec is not None:
                results.warn_unread(self.predictor.unread(spec, [text for text in words if isinstance(text, str)]))
            answers = answer([record for record, _ in looked], words)
            yield from (made(result, *about) for result, about in zip(answers, looked, strict=True))

    def _seen(self, images: Sequence[tuple[int | None, Any]]) -> list[tuple[Record, dict[str, Any]]]:
        """Return for each (index, image) the record with regions, and fields of its result, such as labels."""
        opened: list[Readable] = []
        for number, image in images:
            try:
                opened.append(readable(image))
            except DataError as error:
                raise numbered(number, error) from error

        def refuse(picture: object, error: DataError) -> None:
            raise numbered(
                next(n for (n, _), one in zip(images, opened, strict=True) if one is picture), error
            ) from error

        records = self.predictor.extract(opened, refuse)
        return [(record, self._details(record, one)) for record, one in zip(records, opened, strict=True)]

    def _details(self, record: Record, opened: Readable) -> dict[str, Any]:
        regions, names = record.regions, self.predictor.folder.contract.class_names
        assert regions is not None
        scale = torch.tensor(regions.size * 2)
        return {
            "boxes": tuple(map(tuple, (regions.boxes.cpu().clamp(0, 1) * scale).round().int().tolist())),
            "labels": () if regions.classes is None else tuple(names[n] for n in regions.classes.argmax(1) if names),
            "familiar": self.predictor.is_familiar(record),
            "size": tuple(regions.size),
            "image": results.thumbnail(opened) if isinstance(opened, Tensor) else record.image and str(record.image),
        }


def _is_single(texts: object) -> bool:
    return texts is None or isinstance(texts, str)


def _pairs(images: Any, texts: Any) -> Iterable[tuple[Any, Any]]:
    """Return (image, text) for each result. A single image goes with each text, and a single text with each image."""
    one, single = is_one(images), _is_single(texts)
    if one and single:
        return [(images, texts)]
    if one:
        return ((images, text) for text in texts)
    return ((image, texts) for image in images) if single else paired(images, texts)
