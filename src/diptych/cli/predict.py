"""The verbs that apply a model to a user's pictures: caption, ask, ground, choose, verify."""

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
    DrawSeed,
    Features,
    LengthBonus,
    LengthPenalty,
    MaxWords,
    MinWords,
    Model,
    NoRepeatNgram,
    Sample,
    Temperature,
    TopK,
    TopP,
    app,
)
from diptych.errors import DataError

if TYPE_CHECKING:
    from diptych.serving import Prediction

Show = Annotated[
    Path | None, typer.Option(help="Folder to write each picture to, with its regions and their weights drawn in.")
]


@app.command()
def caption(
    pictures: Annotated[list[str], typer.Argument(help="Picture files, folders, or patterns such as 'photos/*.jpg'.")],
    model: Model,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(help="File to write the captions to; default: they are printed.")] = None,
    captions: Annotated[int, typer.Option(min=1, help="Captions of each picture, the likeliest first.")] = 1,
    beams: Beams = None,
    length_bonus: LengthBonus = None,
    length_penalty: LengthPenalty = None,
    sample: Sample = False,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: DrawSeed = 0,
    min_words: MinWords = None,
    max_words: MaxWords = None,
    no_repeat_ngram: NoRepeatNgram = None,
    show: Show = None,
    features: Features = None,
) -> None:
    """Write a sentence about each picture."""
    import torch

    from diptych.files import write_atomically
    from diptych.recipes.decoding import chosen_decoding
    from diptych.serving import load

    predictor, drawn = load(model, features), Shown(show)
    torch.manual_seed(seed)
    decoding = chosen_decoding(
        predictor.decoding, captions, sample,
        beams=beams, length_bonus=length_bonus, length_penalty=length_penalty, temperature=temperature, top_k=top_k,
        top_p=top_p, min_words=min_words, max_words=max_words, no_repeat_ngram=no_repeat_ngram,
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
    picture: Annotated[Path, typer.Argument(help="Picture file to read.")],
    questions: Annotated[
        list[str], typer.Argument(help="Questions about the picture, such as 'what colour is the kite?'.")
    ],
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
) -> None:
    """Find the region that an expression refers to, and draw its box."""
    from io import BytesIO

    from diptych.files import write_atomically
    from diptych.serving import load
    from diptych.serving.drawing import draw_box
    from diptych.vision.pictures import open_picture

    found = load(model, features).ground(picture, expression)
    shown, drawn = open_picture(picture), out or Path(f"{picture.stem}-found.png")
    content = BytesIO()
    draw_box(shown, found.box, expression).save(content, "PNG")
    write_atomically(drawn, content.getvalue())
    box = found.pixels(shown.shape[2], shown.shape[1])
    if as_json:
        told = {"picture": str(picture), "expression": expression, "box": list(box), "probability": found.score}
        print(json.dumps(told | {"shown": str(drawn)}, ensure_ascii=False))
    else:
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
) -> None:
    """Choose the right one of some answers, and the reason for it."""
    from diptych.serving import load

    rationales = rationale or []
    chosen = load(model, features).choose(picture, question, answers, rationales)
    because = None if chosen.rationale is None else rationales[chosen.rationale]
    if as_json:
        told: dict[str, Any] = {"picture": str(picture), "question": question, "answer": answers[chosen.answer]}
        told["shares"] = list(chosen.answers)
        if because is not None:
            told |= {"rationale": because, "rationale_shares": list(chosen.rationales)}
        print(json.dumps(told, ensure_ascii=False))
    else:
        print(answers[chosen.answer] if because is None else f"{answers[chosen.answer]}\n{because}")


@app.command()
def verify(
    picture: Annotated[Path, typer.Argument(help="Picture file to read.")],
    statements: Annotated[
        list[str], typer.Argument(help="Statements about the picture, such as 'there are two dogs'.")
    ],
    model: Model,
    as_json: AsJson = False,
    features: Features = None,
) -> None:
    """Say whether statements are true of a picture."""
    from diptych.serving import load

    for statement, verdict in zip(statements, load(model, features).verify(picture, statements), strict=True):
        word = "true" if verdict.true else "false"
        if as_json:
            told = {"picture": str(picture), "statement": statement, "true": verdict.true, "probability": verdict.score}
            print(json.dumps(told, ensure_ascii=False))
        else:
            print(word if len(statements) == 1 else f"{word}: {statement}")


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

        assert said.record.image is not None
        stem = said.record.image.stem
        name = next(n for n in chain([stem], (f"{stem}-{k}" for k in count(2))) if n not in self._names)
        self._names.add(name)
        content = BytesIO()
        draw(said, open_picture(said.record.image)).save(content, "PNG")
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / f"{name}.png", content.getvalue())
        return {"shown": str(self.folder / f"{name}.png")}


def _told(said: Prediction, captions: int, shown: dict[str, str], as_json: bool) -> list[str]:
    """The lines about one picture: a JSON object, or a line a caption."""
    (text, score), *others = [(said.text, said.score), *said.others][:captions]
    if not as_json:
        return [f"{said.record.image}: {caption}" for caption in (text, *(other for other, _ in others))]
    line: dict[str, Any] = {"picture": str(said.record.image), "caption": text, "score": score}
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
