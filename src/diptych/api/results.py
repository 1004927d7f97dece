"""Results of a `Model`: strings, numbers and tuples with fields. They contain no tensors and can be pickled."""

from __future__ import annotations

import inspect
import warnings
from base64 import b64encode
from collections.abc import Iterable
from html import escape
from itertools import takewhile
from pathlib import Path
from traceback import walk_stack
from typing import TYPE_CHECKING, TypeVar

import torch
from pydantic import PrivateAttr

from diptych.core import Record, Regions
from diptych.runtime.errors import INNER_FRAME, DataError, UnfamiliarWarning, UnreadWarning, counted
from diptych.tasks.interface import Explanation
from diptych.vision.detectors.detector import Picture
from diptych.vision.image_files import as_jpeg, read_header
from diptych.vision.pictures import open_picture

if TYPE_CHECKING:  # not at run time, because the import is slow
    from diptych.inference.search import Hit

Corners = tuple[int, int, int, int]  # a box (x1, y1, x2, y2) in pixels, as for Pillow's `Image.crop`
# An image is drawn with sides of at most 320 pixels and with at most 8 boxes. A repr has at most 200 characters.
DRAWN_SIDE, DRAWN_BOXES, LONGEST = 320, 8, 200
R = TypeVar("R", bound="ImageResult")


class ImageResult:
    """The fields of every result about an image."""

    score: float = float("nan")  # for a caption, its log-probability; for other results, their probability
    others: tuple[tuple[str, float], ...] = ()  # (text, score) of the next most probable results
    boxes: tuple[Corners, ...] = ()  # boxes of the detected regions, most confident first
    labels: tuple[str, ...] = ()  # class name of each box
    familiar: bool | None = None  # True if the image is like the training images; None if unknown
    size: tuple[int, int] = (0, 0)  # width and height of the image
    image: str | bytes | None = None  # the image's path; if it has none, the bytes of a small JPEG

    @classmethod
    def of(cls: type[R], value: object, **fields: object) -> R:
        """Return a result with this value and these fields."""
        made = cls(value)  # type: ignore[call-arg]  # the constructor of str or int
        vars(made).update(fields)
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_shortened(repr(self._plain()))}, score={self.score:.3g})"

    def _plain(self) -> object:
        return str(self)

    def _drawn(self) -> Iterable[tuple[Corners, str]]:
        return zip(self.boxes[:DRAWN_BOXES], self.labels, strict=False)

    def _repr_html_(self) -> str:
        words = f"<b>{escape(str(self._plain()))}</b> <small>{self.score:.3g}</small>"
        return drawing(self.image, self.size, self._drawn(), words)


class Caption(ImageResult, str):
    """A caption. `score` is its log-probability. `others` has the other captions, the most probable first."""


class Answer(ImageResult, str):
    """The most probable answer to a question. `score` is its probability.

    `sure` is False if, on validation questions, answers this improbable were more often wrong than right, and None if
    this was not measured.
    """

    sure: bool | None = None


class Judgement(ImageResult, int):
    """The judgement of a statement: 1 if it is true, else 0. `score` is the probability of this judgement."""

    def _plain(self) -> object:
        return bool(self)


class Found(ImageResult, str):
    """The region to which an expression refers: its label, with `box` (x1, y1, x2, y2 in pixels) and `score`."""

    box: Corners = (0, 0, 0, 0)

    def _drawn(self) -> Iterable[tuple[Corners, str]]:
        return [(self.box, str(self))]


class ChosenAnswer(ImageResult, str):
    """The best of several answers.

    `others` has the other answers in the given order. `rationale` is the best rationale.
    """

    rationale: ChosenAnswer | None = None


class Explained(Explanation):
    """The influence of regions on words. A notebook shows the image and a table of words and regions."""

    _image: str | bytes | None = PrivateAttr(None)  # as in `ImageResult`
    _text: str = PrivateAttr("")  # the words as one sentence

    def of(self, image: str | bytes | None, text: str) -> Explained:
        """Return this result with its image and its text."""
        self._image, self._text = image, text
        return self

    def __repr__(self) -> str:
        size = f"{counted(self.words, 'words')} x {counted(self.regions, 'regions')}"
        return f"<Explained {_shortened(repr(self._text or ' '.join(self.words)))}: {size}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        corners = [(x, y, x + width, y + height) for x, y, width, height in (region.box for region in self.regions)]
        sides = torch.tensor([self.width, self.height] * 2)
        boxes = torch.tensor(corners, dtype=torch.float32).reshape(-1, 4) / sides
        detected = Regions(
            boxes=boxes, scores=torch.tensor([one.score for one in self.regions]), size=(self.width, self.height)
        )
        from diptych.inference.drawing import COLOURS, influential, with_covering

        groups = influential(detected, torch.tensor(self.weights).reshape(len(self.words), len(self.regions)))
        names = [f"{self.regions[row].label or 'region'} {self.regions[row].score:.2f}" for row, *_ in groups]
        labels = [with_covering(name, len(group) - 1) for name, group in zip(names, groups, strict=True)]
        head = "".join(
            f'<th style="color:{colour}">{place} {escape(label)}</th>'
            for place, (label, colour) in enumerate(zip(labels, COLOURS, strict=False), start=1)
        )
        rows = (
            f"<tr><th>{escape(word)}</th>" + "".join(f"<td>{row[first]:+.2f}</td>" for first, *_ in groups) + "</tr>"
            for word, row in zip(self.words, self.weights, strict=True)
        )
        table = f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>"
        drawn = zip((corners[first] for first, *_ in groups), labels, strict=True)
        words = f"<b>{escape(self._text or ' '.join(self.words))}</b>"
        return drawing(self._image, (self.width, self.height), drawn, words, numbered=True) + table


class Hits(tuple["Hit", ...]):
    """The images that a search found, best first, as pairs (path, score). `refused`: unreadable image -> reason."""

    query: str = ""
    refused: dict[Path, str]

    def __repr__(self) -> str:
        first = f"; the best: {str(self[0].picture)[-120:]}, {self[0].score:.3g}" if self else ""
        return f"<Hits for {_shortened(self.query)[:60]!r}: {counted(self, 'images')}{first}>"

    def _repr_html_(self) -> str:
        return "".join(
            drawing(str(hit.picture), (0, 0), (), f"{hit.score:.3g} <small>{escape(str(hit.picture))}</small>")
            for hit in self
        )


def warn_unread(unread: str | None) -> None:
    """Warn of words that the model does not know, and of texts that it cuts, if there are any."""
    if unread is not None:
        _warn(UnreadWarning(unread))


def _warn(warning: Warning) -> None:
    """Give a warning that shows the user's line: the first one outside Diptych."""
    frames = walk_stack(inspect.currentframe())
    inner = takewhile(lambda one: INNER_FRAME.match(one[0].f_code.co_filename), frames)
    warnings.warn(warning, stacklevel=1 + sum(1 for _ in inner))


def warn_unfamiliar(looked: Iterable[tuple[Record, dict[str, object]]]) -> bool:
    """Warn if images are unlike the training images, and return True if there are any."""
    strange = {one.image or f"image {one.key}": None for one, fields in looked if fields["familiar"] is False}
    if strange:
        _warn(UnfamiliarWarning.of(list(strange)))
    return bool(strange)


def thumbnail(picture: Picture) -> bytes:
    """Return an image (3, H, W) as a JPEG of at most DRAWN_SIDE pixels per side."""
    return as_jpeg(picture.permute(1, 2, 0).numpy(), DRAWN_SIDE)


def drawing(
    image: str | bytes | None, size: tuple[int, int], boxes: Iterable[tuple[Corners, str]], words: str,
    numbered: bool = False,
) -> str:  # fmt: skip
    """Return HTML of the image with boxes, followed by `words`, which must be HTML. An unreadable image is left out.

    `numbered`: write a number at each box, from 1.
    """
    from diptych.inference.drawing import COLOURS

    try:
        content = thumbnail(open_picture(Path(image))) if isinstance(image, str) else image
    except DataError:
        content = None
    shown = ""
    if content is not None:
        width, height = size if all(size) else read_header(content, "a thumbnail")[1:]
        line = max(1, max(width, height) // 160)
        drawn = "".join(
            f'<rect x="{x1}" y="{y1}" width="{x2 - x1}" height="{y2 - y1}" fill="none" stroke-width="{line}" '
            f'stroke="{colour}"><title>{escape(label)}</title></rect>'
            + f'<text x="{x1 + 2 * line}" y="{y1 + 12 * line}" font-size="{12 * line}" fill="{colour}" stroke="#fff" '
            f'stroke-width="{3 * line}" paint-order="stroke">{place}</text>' * numbered
            for place, (((x1, y1, x2, y2), label), colour) in enumerate(zip(boxes, COLOURS, strict=False), start=1)
        )
        data = f"data:image/jpeg;base64,{b64encode(content).decode()}"
        shown = (
            f'<svg viewBox="0 0 {width} {height}" style="width:240px;max-height:240px;display:block">'
            f'<image href="{data}" width="{width}" height="{height}"/>{drawn}</svg>'
        )
    return f'<div style="display:inline-block;vertical-align:top;margin:4px;max-width:240px">{shown}{words}</div>'


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
