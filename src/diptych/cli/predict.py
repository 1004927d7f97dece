"""The verbs that apply a model to a user's pictures: caption, ask, ground, choose, verify."""

from __future__ import annotations

import glob
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diptych.cli.app import AsJson, Device, Features, MaybeModel, Model, Precise, app
from diptych.cli.groups import Writing, grouped
from diptych.runtime.errors import DataError, RecipeError
from diptych.runtime.terminal import printable

if TYPE_CHECKING:
    from diptych.serving import Prediction, Predictor
    from diptych.serving.messages import Caption

IN_FLIGHT = 16  # requests to a service at once
Server = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Address of a running service (diptych serve) to ask instead of opening a model."),
]
Show = Annotated[
    Path | None, typer.Option(help="Folder to write each picture to, with its regions and their weights drawn in.")
]


@app.command()
@grouped
def caption(
    *,
    pictures: Annotated[list[str], typer.Argument(help="Picture files, folders, or patterns such as 'photos/*.jpg'.")],
    model: MaybeModel = None,
    server: Server = None,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(help="File to write the captions to; default: they are printed.")] = None,
    captions: Annotated[int, typer.Option(min=1, help="Captions of each picture, the likeliest first.")] = 1,
    writing: Writing,
    show: Show = None,
    features: Features = None,
    device: Device = "auto",
    precision: Precise = "auto",
) -> None:
    """Write a sentence about each picture."""
    from diptych.runtime.files import refuse_unwritable, write_atomically
    from diptych.serving import load

    refuse_unwritable(out)

    lines: list[str] = []
    refused: list[DataError] = []

    def refuse(_: object, error: DataError) -> None:
        refused.append(error)
        print(f"diptych: {printable(str(error))}", file=sys.stderr)

    found = _find(pictures, refuse)
    if server is not None:
        if show is not None or features is not None:
            raise RecipeError("--show and --features want the model itself; leave out --server")
        if (device, precision) != ("auto", "auto"):
            raise RecipeError("--device and --precision are the service's own choice; leave out --server")
        asked = {"model": model, "captions": captions, "sample": writing.sample, "seed": writing.seed}
        answer = _from_server(server, found, asked | writing.given, refuse)
    else:
        predictor = load(_named(model), features, device=device, precision=precision)
        answer = _from_model(predictor, found, captions, writing, show, refuse)
    for line in answer:
        printed = [line.line()] if as_json else [printable(f"{line.picture}: {one}") for one in line.captions]
        lines += printed
        if out is None:
            print("\n".join(printed), flush=True)
    if not lines:
        raise DataError(f"none of {len(refused)} pictures could be captioned; the reasons stand above")
    if out is not None:
        write_atomically(out, "".join(f"{line}\n" for line in lines).encode())
        print(f"{len(lines)} lines in {out}")


def _named(model: str | None) -> str:
    if model is None:
        raise RecipeError("say what captions: --model FOLDER, or --server URL for a running service")
    return model


def _from_model(
    predictor: Predictor,
    pictures: Sequence[Path],
    captions: int,
    writing: Writing,
    show: Path | None,
    refuse: Callable[[object, DataError], None],
) -> Iterator[Caption]:
    from diptych.serving.messages import caption_line

    drawn, decoding = Shown(show), writing.options(predictor.decoding, captions)
    for prediction in predictor.captions(pictures, decoding, refused=refuse):
        try:
            shown = drawn.write(prediction)
        except DataError as error:  # regions were given, and there is no picture to draw them on
            refuse(prediction, error)
            shown = None
        yield caption_line(prediction, str(prediction.record.image), captions, shown=shown)


def _from_server(
    url: str, pictures: Sequence[Path], asked: dict[str, Any], refuse: Callable[[object, DataError], None]
) -> Iterator[Caption]:
    """In the order of the pictures; several are on their way, so that the service can put them together."""
    from collections import deque
    from concurrent.futures import Future, ThreadPoolExecutor

    from diptych.serving.client import Client
    from diptych.serving.messages import CaptionRequest
    from diptych.systems.recipe import parse

    client, request = Client(url), parse(CaptionRequest, asked, "options")
    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        waiting: deque[tuple[Path, Future[Caption]]] = deque()
        left = iter(pictures)
        try:
            while True:
                for picture in islice(left, IN_FLIGHT - len(waiting)):
                    waiting.append((picture, threads.submit(client.caption, picture, request)))
                if not waiting:
                    return
                picture, future = waiting.popleft()
                try:
                    yield future.result()
                except DataError as error:
                    refuse(picture, error)
        finally:
            for _, future in waiting:
                future.cancel()


@app.command()
def ask(
    picture: Annotated[Path, typer.Argument(help="Picture file to read.")],
    questions: Annotated[
        list[str], typer.Argument(help="Questions about the picture, such as 'what colour is the kite?'.")
    ],
    model: Model,
    as_json: AsJson = False,
    show: Show = None,
    features: Features = None,
    device: Device = "auto",
    precision: Precise = "auto",
) -> None:
    """Answer questions about a picture."""
    from diptych.serving import load
    from diptych.serving.messages import answer_line

    drawn = Shown(show)
    predictor = load(model, features, device=device, precision=precision)
    answers = predictor.answer(picture, questions)
    for question, prediction in zip(questions, answers, strict=True):
        shown = drawn.write(prediction)
        if as_json:
            print(answer_line(prediction, str(picture), question, shown=shown).line())
        else:
            print(printable(prediction.text if len(questions) == 1 else f"{question} {prediction.text}"))


@app.command()
def ground(
    expression: Annotated[str, typer.Argument(help="Words for a region, such as 'the dog left of the bench'.")],
    picture: Annotated[Path, typer.Argument(help="Picture file to read.")],
    model: Model,
    out: Annotated[
        Path | None, typer.Option(help="PNG file to write the picture with the box to; default: PICTURE-found.png.")
    ] = None,
    as_json: AsJson = False,
    features: Features = None,
    device: Device = "auto",
    precision: Precise = "auto",
) -> None:
    """Find the region that an expression refers to, and draw its box."""
    from diptych.serving import load
    from diptych.serving.drawing import draw_box
    from diptych.serving.messages import ground_line
    from diptych.vision.pictures import open_picture, write_png

    predictor = load(model, features, device=device, precision=precision)
    found = predictor.ground(picture, expression)
    shown, drawn = open_picture(picture), out or Path(f"{picture.stem}-found.png")
    write_png(draw_box(shown, found.box, expression), drawn)
    size = shown.shape[2], shown.shape[1]
    line = ground_line(found, str(picture), expression, size, str(drawn))
    if as_json:
        print(line.line())
    else:
        box = line.box
        print(f"left {box[0]}, top {box[1]}, width {box[2]}, height {box[3]} ({found.score:.2f}); {drawn}")


@app.command()
def choose(
    picture: Annotated[Path, typer.Argument(help="Picture file to read.")],
    question: Annotated[
        str,
        typer.Argument(help="Question about the picture; [0] in it is the region of the highest score, [1] the next."),
    ],
    answers: Annotated[list[str], typer.Argument(help="Answers to choose from, two or more; VCR has four.")],
    model: Model,
    rationale: Annotated[
        list[str] | None,
        typer.Option(help="Rationale to choose from; give the option twice or more often; default: none is chosen."),
    ] = None,
    as_json: AsJson = False,
    features: Features = None,
    device: Device = "auto",
    precision: Precise = "auto",
) -> None:
    """Choose the right one of some answers, and the reason for it."""
    from diptych.serving import load
    from diptych.serving.messages import choice_line

    rationales = rationale or []
    predictor = load(model, features, device=device, precision=precision)
    chosen = predictor.choose(picture, question, answers, rationales)
    line = choice_line(chosen, str(picture), question, answers, rationales)
    if as_json:
        print(line.line())
    else:
        print(line.answer if line.rationale is None else f"{line.answer}\n{line.rationale}")


@app.command()
def verify(
    picture: Annotated[Path, typer.Argument(help="Picture file to read.")],
    statements: Annotated[
        list[str], typer.Argument(help="Statements about the picture, such as 'there are two dogs'.")
    ],
    model: Model,
    as_json: AsJson = False,
    features: Features = None,
    device: Device = "auto",
    precision: Precise = "auto",
) -> None:
    """Say whether statements are true of a picture."""
    from diptych.serving import load
    from diptych.serving.messages import verify_line

    predictor = load(model, features, device=device, precision=precision)
    for statement, verdict in zip(statements, predictor.verify(picture, statements), strict=True):
        word = "true" if verdict.true else "false"
        if as_json:
            print(verify_line(verdict, str(picture), statement).line())
        else:
            print(word if len(statements) == 1 else f"{word}: {statement}")


class Shown:
    """The folder of `--show`: a PNG for each prediction, named as its picture; no name twice."""

    def __init__(self, folder: Path | None) -> None:
        self.folder, self._names = folder, set[str]()

    def write(self, prediction: Prediction) -> str | None:
        """The file, where there is a folder."""
        if self.folder is None:
            return None
        from diptych.serving.drawing import draw
        from diptych.vision.pictures import open_picture, write_png

        assert prediction.record.image is not None
        stem = prediction.record.image.stem
        name = next(n for n in chain([stem], (f"{stem}-{k}" for k in count(2))) if n not in self._names)
        self._names.add(name)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_png(draw(prediction, open_picture(prediction.record.image)), self.folder / f"{name}.png")
        return str(self.folder / f"{name}.png")


def _find(names: list[str], refuse: Any) -> list[Path]:
    """Each picture once, in the order in which they were named. A folder or a pattern without pictures is refused."""
    from diptych.vision.pictures import ENDINGS, find_pictures

    found: dict[Path, None] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            here = find_pictures(path)
        elif not path.exists() and glob.has_magic(name):
            here = [p for p in map(Path, sorted(glob.glob(name, recursive=True))) if p.suffix.lower() in ENDINGS]
        else:
            here = [path]
        if not here:
            refuse(name, DataError(f"no pictures in {name}"))
        found |= dict.fromkeys(here)
    return list(found)
