"""The verb that takes in what others trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.app import app
from diptych.errors import RecipeError

DETECTOR = "detector"


@app.command("import")
def import_(
    system: Annotated[str, typer.Argument(help="Whose code wrote it: unified-vlp, tden or vl-bert; or `detector`.")],
    file: Annotated[Path, typer.Argument(help="The official checkpoint, or the file of an official detector.")],
    out: Annotated[Path, typer.Argument(help="The model folder or detector folder to make.")],
    vocab: Annotated[
        Path | None,
        typer.Option(help="A model's vocab.txt: bert-base-cased (unified-vlp), bert-base-uncased (tden, vl-bert)."),
    ] = None,
    uncased: Annotated[
        bool | None,
        typer.Option("--uncased/--cased", help="Whether the vocabulary knows lower case alone. Default: as released."),
    ] = None,
    class_names: Annotated[
        Path | None, typer.Option(help="Names of a detector's classes, one a line (objects_vocab.txt).")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of a detector, such as least=36."),
    ] = None,
) -> None:
    """Turn an official checkpoint into a model folder, or a detector's file into a detector folder."""
    if system == DETECTOR:
        if vocab is not None or uncased is not None:
            raise RecipeError("a detector has no vocabulary; leave out --vocab, --cased and --uncased")
        from diptych.runs.detector_files import import_detector

        lines = import_detector(file, out, settings or (), class_names)
    else:
        if vocab is None:
            raise RecipeError(f"{system} reads words, and its file does not say which; give --vocab vocab.txt")
        if class_names is not None or settings:
            raise RecipeError("--class-names and --set are for `import detector`; leave them out")
        from diptych.runs.importing import import_checkpoint

        lines = import_checkpoint(system, file, out, vocab, lowercase=uncased)
    for line in lines:
        print(line)
    print(f"{'detector' if system == DETECTOR else 'model'} folder: {out}")
