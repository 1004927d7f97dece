"""The verbs that look at a user's pictures and say something: caption, ask."""

from __future__ import annotations

import glob
import json
import sys
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diptych.cli.app import (
    AsJson,
    Beams,
    BlockRepeats,
    DrawSeed,
    Features,
    LengthNorm,
    LengthPenalty,
    MaxWords,
    MinWords,
    Model,
    Sample,
    Temperature,
    TopK,
    TopP,
    app,
)
from diptych.errors import DataError

if TYPE_CHECKING:
    from diptych.serving import Prediction

Show = Annotated[Path | None, typer.Option(help="A folder for each picture with its regions and what they weighed.")]


@app.command()
def caption(
    pictures: Annotated[list[str], typer.Argument(help="Files, folders, or patterns such as 'photos/*.jpg'.")],
    model: Model,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(help="Write the lines to this file.")] = None,
    captions: Annotated[int, typer.Option(min=1, help="How many for each picture, the likeliest first.")] = 1,
    beams: Beams = None,
    length_penalty: LengthPenalty = None,
    length_norm: LengthNorm = None,
    sample: Sample = False,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: DrawSeed = 0,
    min_words: MinWords = None,
    max_words: MaxWords = None,
    block_repeats: BlockRepeats = None,
    show: Show = None,
    features: Features = None,
) -> None:
    """Write a sentence about each picture."""
    import torch

    from diptych.files import write_atomically
    from diptych.recipes.writing import chosen_decoding
    from diptych.serving import load

    predictor, drawn = load(model, features), Shown(show)
    torch.manual_seed(seed)
    decoding = chosen_decoding(
        predictor.decoding, captions, sample,
        beams=beams, length_penalty=length_penalty, length_norm=length_norm, temperature=temperature, top_k=top_k,
        top_p=top_p, min_words=min_words, max_words=max_words, block_repeats=block_repeats,
    )  # fmt: skip
    lines: list[str] = []
    refused: list[DataError] = []

    def refuse(_: object, error: DataError) -> None:
        refused.append(error)
        print(f"diptych: {error}", file=sys.stderr)

    for said in predictor.captions(_find(pictures, refuse), decoding, refused=refuse):
        try:
            shown = drawn.write(said)
        except DataError as error:  # regions were given, and there is no picture to draw them on
            refuse(said, error)
            shown = {}
        told = _told(said, captions, shown, as_json)
        lines += told
        if out is None:
            print("\n".join(told), flush=True)
    if not lines:
        raise DataError(f"none of {len(refused)} pictures could be captioned; the reasons stand above")
    if out is not None:
        write_atomically(out, "".join(f"{line}\n" for line in lines).encode())
        print(f"{len(lines)} lines in {out}")


@app.command()
def ask(
    picture: Annotated[Path, typer.Argument(help="A picture.")],
    questions: Annotated[list[str], typer.Argument(help="Such as 'what colour is the kite?'")],
    model: Model,
    as_json: AsJson = False,
    show: Show = None,
    features: Features = None,
) -> None:
    """Answer questions about a picture."""
    from diptych.serving import load

    drawn = Shown(show)
    answers = load(model, features).answer(picture, questions)
    for question, said in zip(questions, answers, strict=True):
        shown = drawn.write(said)
        if as_json:
            found: dict[str, Any] = {"picture": str(picture), "question": question, "answer": said.text}
            print(json.dumps(found | {"probability": said.score} | shown, ensure_ascii=False))
        else:
            print(said.text if len(questions) == 1 else f"{question} {said.text}")


class Shown:
    """The folder of `--show`: a PNG for each prediction, named as its picture; no name twice."""

    def __init__(self, folder: Path | None) -> None:
        self.folder, self._names = folder, set[str]()

    def write(self, said: Prediction) -> dict[str, str]:
        """What a JSON line says of it."""
        if self.folder is None:
            return {}
        from io import BytesIO

        from diptych.files import write_atomically
        from diptych.serving.drawing import draw
        from diptych.vision.pictures import open_picture

        assert said.record.picture is not None
        stem = said.record.picture.stem
        name = next(n for n in chain([stem], (f"{stem}-{k}" for k in count(2))) if n not in self._names)
        self._names.add(name)
        content = BytesIO()
        draw(said, open_picture(said.record.picture)).save(content, "PNG")
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / f"{name}.png", content.getvalue())
        return {"shown": str(self.folder / f"{name}.png")}


def _told(said: Prediction, captions: int, shown: dict[str, str], as_json: bool) -> list[str]:
    """The lines about one picture: a JSON object, or a line a caption."""
    (text, score), *others = [(said.text, said.score), *said.others][:captions]
    if not as_json:
        return [f"{said.record.picture}: {caption}" for caption in (text, *(other for other, _ in others))]
    line: dict[str, Any] = {"picture": str(said.record.picture), "caption": text, "score": score}
    if others:
        line["others"] = [{"caption": text, "score": score} for text, score in others]
    return [json.dumps(line | shown, ensure_ascii=False)]


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
