"""The verb `push`: upload a model to the Hugging Face hub."""

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from diptych.cli.app import Revision, hold
from diptych.cli.outputs import OutFolder


def push(
    model: str = Argument(metavar="MODEL", help="Model folder, folder of a run, or user/name on the hub, to push."),
    repository: str = Argument(metavar="REPO", help="Name on the Hugging Face hub, as user/name."),
    license: str | None = Option(None, help="License of the weights, as the hub names it, such as cc-by-4.0."),
    data: str | None = Option(None, help="What the model was trained on, in words, for its card."),
    data_license: str | None = Option(None, help="License of the data, in words, for the card."),
    scores: list[Path] | None = Option(None, help="JSON file of `diptych evaluate --json` for the card; repeatable."),
    private: bool = Option(False, "--private", help="Make a new repository private; an existing one does not change."),
    dry_run: bool = Option(False, "--dry-run", help="Write the folder with its card to --out, and push nothing."),
    out: Annotated[Path | None, OutFolder("card")] = Option(
        None, help="Folder that --dry-run writes; default: the name of REPO without its user."
    ),
    revision: Revision = None,
) -> None:
    """Upload a model to the Hugging Face hub, with a model card."""
    from diptych.runtime.errors import RecipeError

    if out is not None and not dry_run:
        raise RecipeError("--out needs --dry-run; pass both, or neither")
    from diptych.data.leakage import FILE as SEEN
    from diptych.inference import hub
    from diptych.inference.card import Publisher, model_card

    hub.check_repository(repository)
    target = out or Path(repository.partition("/")[2])
    if dry_run:
        hold(target, "card", temporary=False)
    from diptych.inference.open import open_folder

    folder = open_folder(model, revision=revision)
    card = model_card(folder, repository, Publisher(license, data, data_license, tuple(scores or ())))
    for line in hub.private_paths(folder):
        print(f"diptych: recipe.json names a path of this machine, which will be public: {line}", file=sys.stderr)
    if dry_run:
        hub.write(folder, target, card)
        left = "" if folder.seen is None else f"; left out: {SEEN}, the fingerprints of the training images"
        print(f"{target}: {len(hub.files_of(folder)) + 1} files; nothing was pushed{left}")
    else:
        print(hub.push(folder, repository, card, private))
