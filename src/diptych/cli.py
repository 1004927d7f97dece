"""The command line: verbs, their options, and how errors are shown. What a verb does lives elsewhere.

Exit codes: 0 done, 1 failed, 2 used wrongly, 75 stopped and saved (the same command goes on), 130 interrupted.
Heavy imports stand inside the verbs, so that `--help` takes no time.
"""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diptych.errors import DiptychError, RecipeError, nearest

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
Data = Annotated[Path, typer.Option(help="A store (from `diptych extract`).")]
Out = Annotated[Path, typer.Option(help="Folder of the run; the same command goes on where it stopped.")]
Model = Annotated[str, typer.Option(help="A model folder, the folder of a run, or user/name on the hub.")]
Seed = Annotated[int, typer.Option(help="Same seed, same pictures, words and weights.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


class Task(StrEnum):
    caption = "caption"
    vqa = "vqa"


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where all of it goes; the same command goes on where it stopped.")] = Path(
        "demo"
    ),
    fast: Annotated[bool, typer.Option("--fast", help="Under 90 seconds; shows that it works, not how well.")] = False,
    seed: Seed = 0,
) -> None:
    """Draw a world, find its regions, pre-train, fine-tune, caption and answer: the main job, end to end."""
    from diptych.recipes.demo import DemoConfig
    from diptych.recipes.demo import demo as run_demo

    run_demo(out, DemoConfig.fast(seed) if fast else DemoConfig(seed=seed), _console())


@storybook.command("write")
def storybook_write(
    folder: Annotated[Path, typer.Argument(help="Where to; the same command goes on where it stopped.")],
    web: Annotated[int, typer.Option(help="Scenes with one careless caption each, as on the web.")] = 10_000,
    train: Annotated[int, typer.Option(help="Scenes with all words, to learn from.")] = 1000,
    val: Annotated[int, typer.Option(help="To choose by.")] = 200,
    test: Annotated[int, typer.Option(help="To score on.")] = 600,
    test_rare: Annotated[int, typer.Option(help="To score on: kinds in colours never seen in training.")] = 200,
    seed: Seed = 0,
) -> None:
    """Draw scenes and write their words in the forms of COCO, VQA v2, RefCOCO, VCR and NLVR."""
    from diptych.progress import bar
    from diptych.sources.storybook import write

    splits = {"web": web, "train": train, "val": val, "test": test, "test_rare": test_rare}
    with bar("scenes") as progress:
        drawing = progress.add_task("drawing", total=sum(splits.values()))
        write(folder, splits, seed, lambda _: progress.advance(drawing))
    print(f"{sum(splits.values())} scenes in {folder}")


@storybook.command("show")
def storybook_show(
    out: Annotated[Path, typer.Argument(help="The PNG to write.")],
    split: Annotated[str, typer.Option(help="web, train, val, test or test_rare.")] = "train",
    count: Annotated[int, typer.Option(min=1, max=200)] = 12,
    seed: Seed = 0,
) -> None:
    """A sheet of scenes with their boxes and words."""
    from diptych.sources.storybook import SPLITS, Storybook, show

    if split not in SPLITS:
        raise RecipeError(f"no split {split!r}; {nearest(split, SPLITS)}")
    show(Storybook(seed, split, count)[:], out)
    print(f"{count} scenes in {out}")


@storybook.command("detector")
def storybook_detector(
    out: Annotated[Path, typer.Argument(help="Folder of the run; the eyes go to OUT/eyes.")],
    steps: Annotated[int, typer.Option(min=1, help="Of 8 scenes each.")] = 1100,
    seed: Seed = 0,
) -> None:
    """Train a small detector to see the drawn world."""
    from diptych.recipes.detector import DetectorRecipe, train_detector

    train_detector(DetectorRecipe.of(steps, seed), out, console=_console())
    print(f"eyes: {out / 'eyes'}")


@app.command()
def check(
    data: Annotated[Path, typer.Argument(help="A store, or data that `extract` reads.")],
    model: Annotated[str | None, typer.Option(help="Would this model take these features?")] = None,
    pictures: Annotated[Path | None, typer.Option(help="Where names of pictures start from.")] = None,
    as_json: AsJson = False,
) -> None:
    """Look over data before hours are spent on it; exit code 1 when training would fail."""
    from diptych.loading.check import check as look_over
    from diptych.loading.store import INDEX, Store
    from diptych.sources.anything import read

    contract = _open(model).contract if model is not None else None
    report = look_over(Store(data) if (data / INDEX).exists() else read(data, pictures), contract)
    if as_json:
        print(json.dumps(report.to_json(), indent=1))
    else:
        _console(stderr=False).print(report)
    if not report.ok:
        raise SystemExit(1)


@app.command()
def extract(
    data: Annotated[Path, typer.Argument(help="A .jsonl, a COCO .json, a folder of pictures or of Storybook.")],
    out: Annotated[Path, typer.Argument(help="The store; the same command goes on where it stopped.")],
    detector: Annotated[
        str, typer.Option(help="A folder of eyes or of a model; a torchvision detector; grid:BACKBONE; ground-truth.")
    ],
    weights: Annotated[Path | None, typer.Option(help="Of a torchvision detector, where there is no network.")] = None,
    select: Annotated[str | None, typer.Option(help="Its regions: unified-vlp, vl-bert, tden, xgpt, ...")] = None,
    pictures: Annotated[Path | None, typer.Option(help="Where names of pictures start from.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Pictures at a time.")] = 16,
) -> None:
    """Look at every picture once and keep what was seen, in a store that training reads."""
    from diptych.progress import bar
    from diptych.recipes.looking import look, open_eyes
    from diptych.sources.anything import read

    records = read(data, pictures)
    eyes = open_eyes(detector, records, weights, select)
    with bar("pictures") as progress:
        looking = progress.add_task("looking", total=len(records))
        done = look(records, eyes, out, batch, lambda count: progress.advance(looking, count))
    print(f"{done.summary()}; {out}")
    for key, reason in list(done.failed.items())[:5]:
        print(f"  {key}: {reason}", file=sys.stderr)


@app.command()
def pretrain(
    recipe: Annotated[str, typer.Argument(help="Such as unified-vlp/small/pretrain; an unknown name lists them.")],
    data: Data,
    out: Out,
    model: Annotated[str | None, typer.Option(help="Begin from this model folder instead of from scratch.")] = None,
    init: Annotated[str | None, typer.Option(help="Begin from BERT or UniLM weights: a file, or a hub id.")] = None,
    vocab: Annotated[str | None, typer.Option(help="Their vocab.txt.")] = None,
    settings: Set = None,
) -> None:
    """Pre-train a model on pictures and their captions."""
    from diptych.loading.store import Store
    from diptych.recipes import find_recipe
    from diptych.recipes.run import run

    given = [f"{key}={json.dumps(value)}" for key, value in (("init", init), ("data.vocabulary", vocab)) if value]
    chosen = find_recipe(recipe, [*given, *(settings or ())])
    start = _open(model) if model is not None else None
    made = run(chosen, Store(data), out, start=start, console=_console())
    print(f"model folder: {made.model.folder}")


@app.command()
def finetune(
    task: Annotated[Task, typer.Argument(help="What it shall learn.")],
    data: Data,
    model: Model,
    out: Out,
    recipe: Annotated[str | None, typer.Option(help="Default: unified-vlp/small/TASK.")] = None,
    settings: Set = None,
) -> None:
    """Teach a pre-trained model a task."""
    from diptych.loading.store import Store
    from diptych.recipes import find_recipe
    from diptych.recipes.run import fit_to, run

    start = _open(model)
    chosen = fit_to(find_recipe(recipe or f"unified-vlp/small/{task.value}"), start).override(settings or ())
    made = run(chosen, Store(data), out, start=start, console=_console())
    print(f"model folder: {made.model.folder}")


@app.command()
def evaluate(
    model: Annotated[str | None, typer.Option(help="A model folder, the folder of a run, or user/name.")] = None,
    data: Annotated[Path | None, typer.Option(help="A store (from `diptych extract`) that it is asked about.")] = None,
    split: Annotated[str, typer.Option(help="Which records.")] = "test",
    predictions: Annotated[Path | None, typer.Option(help="Keep what it said, as JSON.")] = None,
    results: Annotated[Path | None, typer.Option(help="Score this file in COCO's or VQA's form, not a model.")] = None,
    references: Annotated[Path | None, typer.Option(help="Its captions_*.json.")] = None,
    questions: Annotated[Path | None, typer.Option(help="Or its VQA questions,")] = None,
    annotations: Annotated[Path | None, typer.Option(help="and their answers.")] = None,
    training: Annotated[
        Path | None, typer.Option(help="Training captions_*.json, for a file's blind baseline.")
    ] = None,
    also: Annotated[list[str] | None, typer.Option(metavar="NAME", help="METEOR or SPICE; they need Java.")] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Score what the file has; say how much.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Score a model, or a file of results: each figure with its interval, beside a blind baseline and a ceiling."""
    from diptych.recipes.scoring import score_file, score_model
    from diptych.reports.tables import score_table

    if results is not None and model is None and data is None:
        scores = score_file(results, references, questions, annotations, training, also or (), allow_missing)
    elif results is None and model is not None and data is not None:
        from diptych.loading.store import Store

        said, scores = score_model(_open(model), Store(data), split, also or ())
        if predictions is not None:
            from diptych.files import write_atomically

            write_atomically(predictions, json.dumps(said, indent=1, ensure_ascii=False).encode())
    else:
        raise RecipeError("evaluate wants --model and --data, or --results with --references or --questions")
    if as_json:
        print(json.dumps(scores.to_json(), indent=2, ensure_ascii=False))
    else:
        from rich.console import Console

        Console().print(score_table(scores))


@app.command()
def caption(
    pictures: Annotated[list[Path], typer.Argument(help="Files and folders.")], model: Model, as_json: AsJson = False
) -> None:
    """Write a sentence about each picture."""
    from diptych.serving import load

    predictor = load(model)
    for said in predictor.captions(_pictures(pictures)):
        if as_json:
            print(json.dumps({"picture": str(said.record.picture), "caption": said.text, "score": said.score}))
        else:
            print(f"{said.record.picture}: {said.text}")


@app.command()
def ask(
    picture: Annotated[Path, typer.Argument(help="A picture.")],
    question: Annotated[str, typer.Argument(help="Such as 'what colour is the kite?'")],
    model: Model,
    as_json: AsJson = False,
) -> None:
    """Answer a question about a picture."""
    from diptych.serving import load

    said = load(model).answer(picture, [question])[0]
    print(json.dumps({"answer": said.text, "probability": said.score}) if as_json else said.text)


@app.command()
def tokens(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for tokenizer.json.")],
    size: Annotated[int, typer.Option(help="Words and word pieces at most.")] = 8000,
    keep_case: Annotated[bool, typer.Option("--keep-case", help="Dog and dog differ.")] = False,
) -> None:
    """Learn a vocabulary from the words of a store."""
    from diptych.loading.store import Store, iterate
    from diptych.loading.tokens import Tokens
    from diptych.recipes.plan import words_of

    texts = [text for record in iterate(Store(data)) for text in words_of(record)]
    out.mkdir(parents=True, exist_ok=True)
    learnt = Tokens.train(texts, size, lowercase=not keep_case)
    learnt.save(out)
    print(f"{learnt.vocabulary.size} tokens in {out / 'tokenizer.json'}")


@app.command("import")
def import_(
    system: Annotated[str, typer.Argument(help="Whose code wrote it: unified-vlp.")],
    file: Annotated[Path, typer.Argument(help="The official checkpoint.")],
    out: Annotated[Path, typer.Argument(help="The model folder to make.")],
    vocab: Annotated[Path, typer.Option(help="Its vocab.txt (bert-base-cased for the released models).")],
    uncased: Annotated[bool, typer.Option("--uncased", help="The vocabulary knows lower case alone.")] = False,
) -> None:
    """Turn an official checkpoint into a model folder, with an account of every key."""
    from diptych.recipes.importing import import_checkpoint

    for line in import_checkpoint(system, file, out, vocab, lowercase=uncased):
        print(line)
    print(f"model folder: {out}")


def _open(model: str) -> Any:
    from diptych.serving import load

    return load(model).folder


def _pictures(paths: list[Path]) -> list[Path]:
    from diptych.vision.pictures import find_pictures

    found = [picture for path in paths for picture in (find_pictures(path) if path.is_dir() else [path])]
    if not found:
        raise RecipeError(f"no pictures in {', '.join(map(str, paths))}")
    return found


def _console(stderr: bool = True) -> Console:
    from rich.console import Console

    return Console(stderr=stderr)


def main() -> None:
    """Run the command line; errors become one message on standard error and an exit code."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        app(arguments)
    except DiptychError as error:
        if debug:
            raise
        print(f"diptych: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise SystemExit(0) from None
    except Exception as error:
        if debug:
            raise
        kind = type(error).__name__
        print(f"diptych: {kind}: {error}; this is a fault of Diptych: please report it, with --debug", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
