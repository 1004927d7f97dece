"""The command line's trunk: the verbs of all modules hang on `app`, and share these options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="diptych",
    help="Vision-language pre-training: pictures on one panel, words on the other.",
    epilog="Any verb takes --debug, to show the traceback of an error.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
storybook = typer.Typer(help="The drawn world: write it, look at it.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(storybook, name="storybook")

Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe, such as optimizer.lr=3e-4.")
]
OwnData = Annotated[
    Path, typer.Option(help="A store, or data to look at on the way: a .jsonl of your own, a COCO .json, ...")
]
SplitSeed = Annotated[
    int, typer.Option(help="Seed by which data that name no splits are divided into train, val and test; default: 0.")
]
TrainingSeed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="Seed of the weights, the order of the data and all that is drawn in training; default: the recipe's.",
    ),
]
Features = Annotated[
    Path | None, typer.Option(help="Features made elsewhere: a file or a folder, its format found by looking.")
]
Out = Annotated[Path, typer.Option(help="Folder of the run; the same command goes on where it stopped.")]
Model = Annotated[str, typer.Option(help="A model folder, the folder of a run, or user/name on the hub.")]
Seed = Annotated[int, typer.Option(help="Same seed, same pictures, words and weights.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]

# How captions are written; what is left out is the recipe's. docs/your-own-data.md shows them at work.
Beams = Annotated[int | None, typer.Option(min=1, help="Captions followed at once; 1 is greedy.")]
LengthBonus = Annotated[float | None, typer.Option(help="Added for each word to a beam's log-probability.")]
LengthPenalty = Annotated[float | None, typer.Option(help="Or it is divided by words to this power; 1 is the mean.")]
Sample = Annotated[bool, typer.Option("--sample", help="Draw words by chance in place of a search.")]
Temperature = Annotated[float | None, typer.Option(help="Of drawn words: below 1 likely ones become likelier.")]
TopK = Annotated[int | None, typer.Option(help="Draw from so many words, the likeliest.")]
TopP = Annotated[float | None, typer.Option(help="Draw from the fewest words that have this probability together.")]
DrawSeed = Annotated[int, typer.Option("--seed", help="Of drawn words: the same seed, the same captions.")]
MinWords = Annotated[int | None, typer.Option(help="No caption ends before.")]
MaxWords = Annotated[int | None, typer.Option(help="Each is cut there; its end counts as one.")]
NoRepeatNgram = Annotated[int | None, typer.Option(min=1, metavar="N", help="No run of N words comes twice.")]


def open_folder(model: str) -> Any:
    from diptych.serving import load

    return load(model).folder


def console(stderr: bool = True) -> Console:
    from diptych.terminal import make_console

    return make_console(stderr)
