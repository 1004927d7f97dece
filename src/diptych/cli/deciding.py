"""The verbs that decide about a picture: ground, choose, verify."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from diptych.cli.app import AsJson, Features, Model, app


@app.command()
def ground(
    expression: Annotated[str, typer.Argument(help="Such as 'the dog left of the bench'.")],
    picture: Annotated[Path, typer.Argument(help="A picture.")],
    model: Model,
    out: Annotated[Path | None, typer.Option(help="The PNG with the box drawn; default: PICTURE-found.png.")] = None,
    as_json: AsJson = False,
    features: Features = None,
) -> None:
    """Find what the words mean, and draw a box around it."""
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
    picture: Annotated[Path, typer.Argument(help="A picture.")],
    question: Annotated[str, typer.Argument(help="[0] in it is the first region, best first.")],
    answers: Annotated[list[str], typer.Argument(help="Two or more; VCR has four.")],
    model: Model,
    rationale: Annotated[
        list[str] | None, typer.Option(help="Why the answer may be right; give it twice or more often.")
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
    picture: Annotated[Path, typer.Argument(help="A picture.")],
    statements: Annotated[list[str], typer.Argument(help="Such as 'there are two dogs'.")],
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
