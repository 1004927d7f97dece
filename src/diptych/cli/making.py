"""The verbs that make things: worlds, stores, models, scores."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.app import (
    AsJson,
    Beams,
    BlockRepeats,
    DrawSeed,
    Features,
    MaxWords,
    MinWords,
    Model,
    Out,
    OwnData,
    Seed,
    Set,
    SplitSeed,
    Temperature,
    TopK,
    TopP,
    app,
    console,
    open_folder,
    storybook,
)
from diptych.errors import RecipeError, nearest
from diptych.processes import PROCESSES

if TYPE_CHECKING:
    from diptych.models import Shape


class Task(StrEnum):
    caption = "caption"
    vqa = "vqa"
    retrieval = "retrieval"
    vcr = "vcr"
    referring = "referring"
    reasoning = "reasoning"


class TokenKind(StrEnum):
    wordpiece = "wordpiece"
    bpe = "bpe"


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where all of it goes; the same command goes on where it stopped.")] = Path(
        "demo"
    ),
    fast: Annotated[bool, typer.Option("--fast", help="Under 90 seconds; shows that it works, not how well.")] = False,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="100, 300 and 1,000 labelled scenes, 3 seeds; about 3 CPU-hours.")
    ] = False,
    system: Annotated[
        str, typer.Option(help="unified-vlp, vl-bert, image-bert, tden or xgpt; all share OUT's world and regions.")
    ] = "unified-vlp",
    seed: Seed = 0,
) -> None:
    """Draw a world, find its regions, pre-train, fine-tune, caption and answer: the main job, end to end."""
    from diptych.processes import begin_loading

    begin_loading()
    from diptych.recipes.demo import DemoConfig
    from diptych.recipes.demo import demo as run_demo
    from diptych.recipes.demo_systems import DEFAULT
    from diptych.recipes.thorough import ThoroughConfig
    from diptych.recipes.thorough import thorough as compare_thoroughly

    config = DemoConfig.fast(seed) if fast else DemoConfig(seed=seed)
    if thorough and system != DEFAULT:
        raise RecipeError(f"--thorough measures {DEFAULT} alone; leave out --system, or --thorough")
    if thorough:
        compare_thoroughly(out, ThoroughConfig.of(config), console())
    else:
        run_demo(out, config, console(), system)


@storybook.command("write")
def storybook_write(
    folder: Annotated[Path, typer.Argument(help="Where to; the same command goes on where it stopped.")],
    web: Annotated[int, typer.Option(help="Scenes with one careless caption each, as on the web.")] = 10_000,
    train: Annotated[int, typer.Option(help="Scenes with all words, to learn from.")] = 1000,
    val: Annotated[int, typer.Option(help="To choose by.")] = 200,
    test: Annotated[int, typer.Option(help="To score on.")] = 600,
    test_rare: Annotated[int, typer.Option(help="To score on: kinds in colours never seen in training.")] = 200,
    processes: Annotated[int, typer.Option(min=1, help="That draw; what they draw does not depend on it.")] = PROCESSES,
    seed: Seed = 0,
) -> None:
    """Draw scenes and write their words in the forms of COCO, VQA v2, RefCOCO, VCR and NLVR."""
    from diptych.progress import bar
    from diptych.sources.storybook import write

    splits = {"web": web, "train": train, "val": val, "test": test, "test_rare": test_rare}
    with bar("scenes") as progress:
        drawing = progress.add_task("drawing", total=sum(splits.values()))
        write(folder, splits, seed, lambda done: progress.advance(drawing, done), processes)
    print(f"{sum(splits.values())} scenes in {folder}")


@storybook.command("show")
def storybook_show(
    out: Annotated[Path, typer.Argument(help="The PNG to write.")],
    split: Annotated[str, typer.Option(help="web, train, val, test or test_rare.")] = "train",
    count: Annotated[int, typer.Option(min=1, max=200)] = 12,
    detector: Annotated[str | None, typer.Option(help="Show what it finds, instead of what is there.")] = None,
    seed: Seed = 0,
) -> None:
    """A sheet of scenes with their boxes and words, or with what a detector finds in them."""
    from diptych.sources.storybook import SPLITS, Storybook, show

    if split not in SPLITS:
        raise RecipeError(f"no split {split!r}; {nearest(split, SPLITS)}")
    scenes = Storybook(seed, split, count)[:]
    if detector is None:
        show(scenes, out)
    else:
        from diptych.recipes.detector import drawn, truth
        from diptych.recipes.looking import open_eyes
        from diptych.vision.sheet import detection_sheet

        pictures, records = [drawn(scene) for scene in scenes], [truth(scene) for scene in scenes]
        eyes = open_eyes(detector, records)
        detection_sheet(pictures, eyes.see(pictures, records), eyes.contract.class_names, out)
    print(f"{count} scenes in {out}")


@storybook.command("detector")
def storybook_detector(
    out: Annotated[Path, typer.Argument(help="Folder of the run; the eyes go to OUT/eyes.")],
    faster_rcnn: Annotated[
        str | None,
        typer.Option(help="Train torchvision's Faster R-CNN of this architecture instead, such as resnet18_fpn."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Default: the recipe's.")] = None,
    seed: Seed = 0,
) -> None:
    """Train a small detector to see the drawn world."""
    from diptych.recipes.detector import DetectorRecipe, FasterRCNNRecipe, train_detector

    recipe = (
        DetectorRecipe.of(steps, seed)
        if faster_rcnn is None
        else FasterRCNNRecipe.of(steps, seed, architecture=faster_rcnn)
    )
    train_detector(recipe, out, console=console())
    print(f"eyes: {out / 'eyes'}")


@app.command()
def check(
    data: Annotated[Path, typer.Argument(help="A store, or data that `extract` reads.")],
    model: Annotated[str | None, typer.Option(help="Would this model take these features?")] = None,
    pictures: Annotated[Path | None, typer.Option(help="Where names of pictures start from.")] = None,
    as_json: AsJson = False,
) -> None:
    """Look over data before hours are spent on it; exit code 1 when training would fail or a test split leaks."""
    from diptych.loading.check import check as look_over
    from diptych.loading.store import INDEX, Store
    from diptych.recipes.looking import read_and_tell

    contract = open_folder(model).contract if model is not None else None
    records = Store(data) if (data / INDEX).exists() else read_and_tell(data, console(), pictures, None, 0)
    report = look_over(records, contract)
    if as_json:
        print(json.dumps(report.to_json(), indent=1))
    else:
        console(stderr=False).print(report)
    if not report.ok:
        raise SystemExit(1)


@app.command()
def extract(
    data: Annotated[Path, typer.Argument(help="A .jsonl, a COCO .json, a folder of pictures or of Storybook.")],
    out: Annotated[Path, typer.Argument(help="The store; the same command goes on where it stopped.")],
    detector: Annotated[
        str,
        typer.Option(help="A folder of eyes or of a model; torchvision's name; grid:BACKBONE; given; ground-truth."),
    ],
    weights: Annotated[Path | None, typer.Option(help="Of a torchvision detector, where there is no network.")] = None,
    select: Annotated[str | None, typer.Option(help="Its regions: unified-vlp, vl-bert, tden, xgpt, ...")] = None,
    pictures: Annotated[Path | None, typer.Option(help="Where names of pictures start from.")] = None,
    features: Features = None,
    split: Annotated[str | None, typer.Option(help="Of data that name none; without it, --seed draws.")] = None,
    seed: SplitSeed = 0,
    whole: Annotated[str | None, typer.Option(help="A backbone for whole pictures, such as densenet121.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Pictures at a time.")] = 16,
    processes: Annotated[int | None, typer.Option(min=1, help="That look; what is seen does not depend on it.")] = None,
) -> None:
    """Look at every picture once and keep what was seen, in a store that training reads."""
    from diptych.recipes.looking import look_and_tell, open_eyes, read_and_tell, with_whole

    records = read_and_tell(data, console(), pictures, split, seed, look=features is None)
    eyes = with_whole(open_eyes(detector, records, features, weights, select), whole)
    done = look_and_tell(records, eyes, out, console(), batch, processes)
    print(f"{done.summary()}; {out}")


@app.command()
def pretrain(
    recipe: Annotated[str, typer.Argument(help="Such as unified-vlp/small/pretrain; an unknown name lists them.")],
    data: Annotated[
        list[str],
        typer.Option(help="A store, or data to look at on the way; or several, cc=STORE, for recipes that name them."),
    ],
    out: Out,
    model: Annotated[str | None, typer.Option(help="Begin from this model folder instead of from scratch.")] = None,
    init: Annotated[str | None, typer.Option(help="Begin from BERT or UniLM weights: a file, or a hub id.")] = None,
    vocab: Annotated[str | None, typer.Option(help="Their vocab.txt.")] = None,
    detector: Annotated[str | None, typer.Option(help="Finds the regions of data that are no store yet.")] = None,
    seed: SplitSeed = 0,
    settings: Set = None,
) -> None:
    """Pre-train a model on pictures and their captions."""
    from diptych.recipes import find_stages
    from diptych.recipes.looking import stores_of
    from diptych.recipes.stages import run_stages

    given = [f"{key}={json.dumps(value)}" for key, value in (("init", init), ("data.vocabulary", vocab)) if value]
    start = open_folder(model) if model is not None else None
    named = find_stages(recipe)
    chosen = (named if start is None else named.fitted(start)).override([*given, *(settings or ())])
    chosen.claimed(out)
    if start is not None:
        _tell_of_regions(named.recipes[0].model, chosen.recipes[0].model, start.folder)
    own = str(start.folder) if start is not None else None
    store = stores_of(data, out, detector or own, console(), seed)
    made = run_stages(chosen, store, out, start=start, console=console())
    print(f"model folder: {made.folder}")


@app.command()
def finetune(
    task: Annotated[Task, typer.Argument(help="What it shall learn.")],
    data: OwnData,
    model: Model,
    out: Out,
    recipe: Annotated[str | None, typer.Option(help="Default: SYSTEM/small/TASK.")] = None,
    seed: SplitSeed = 0,
    settings: Set = None,
) -> None:
    """Teach a pre-trained model a task, on a store or on data of your own."""
    from diptych.recipes import find_recipe
    from diptych.recipes.looking import store_of
    from diptych.recipes.recipe import claimed
    from diptych.recipes.run import fit_to, run

    start = open_folder(model)
    named = find_recipe(recipe or f"{start.architecture.system}/small/{task.value}")
    chosen = fit_to(named, start).override(settings or ())
    claimed(out, chosen)
    if recipe is not None:
        _tell_of_regions(named.model, chosen.model, start.folder)
    store = store_of(data, out / "store", str(start.folder), console(), seed)
    made = run(chosen, store, out, start=start, console=console())
    print(f"model folder: {made.model.folder}")


def _tell_of_regions(named: Shape, chosen: Shape, start: Path) -> None:
    """A model that is gone on with keeps its own number of regions."""
    if named.max_regions != chosen.max_regions:
        other = "" if chosen.regions_fixed else f"; --set model.max_regions={named.max_regions} reads so many"
        console().print(
            f"at most {chosen.max_regions} regions of a picture are read, and not {named.max_regions} as the recipe "
            f"says, for {start} goes on as it was built{other}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


@app.command()
def augment(
    store: Annotated[Path, typer.Argument(help="A store, from `diptych extract`.")],
    out: Annotated[Path, typer.Argument(help="The new store; the same command goes on where it stopped.")],
    model: Model,
    captions: Annotated[int, typer.Option(min=1, help="New ones for each picture, where the model finds so many.")] = 2,
    split: Annotated[str, typer.Option(help="Which records get them; the others are copied.")] = "train",
    beams: Beams = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_words: MinWords = None,
    max_words: MaxWords = None,
    block_repeats: BlockRepeats = None,
    seed: DrawSeed = 0,
) -> None:
    """Write new captions for a training set, drawn by chance, or with --beams the likeliest."""
    from diptych.decoding import DecodingOptions
    from diptych.loading.store import Store
    from diptych.recipes.augmenting import SPARE
    from diptych.recipes.augmenting import augment as write_captions
    from diptych.recipes.writing import chosen_decoding

    start = open_folder(model)
    usual = start.recipe.decoding if start.recipe is not None else DecodingOptions()
    if beams is None and top_k is None and top_p is None:
        top_p = 0.9
    decoding = chosen_decoding(
        usual, SPARE * captions, beams is None,
        beams=beams, temperature=temperature, top_k=top_k, top_p=top_p, min_words=min_words, max_words=max_words,
        block_repeats=block_repeats,
    )  # fmt: skip
    print(f"{write_captions(start, Store(store), out, captions, decoding, split, seed).summary()}; {out}")


@app.command()
def tokens(
    out: Annotated[Path, typer.Option(help="Folder for tokenizer.json.")],
    data: Annotated[Path | None, typer.Option(help="A store; its val and test splits are left out.")] = None,
    text: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A sentence a line; may be given several times.")
    ] = None,
    size: Annotated[int, typer.Option(help="Words and word pieces at most.")] = 8000,
    keep_case: Annotated[bool, typer.Option("--keep-case", help="Dog and dog differ.")] = False,
    kind: Annotated[TokenKind, typer.Option(help="wordpiece as BERT's, or bpe on Moses' words as XGPT's.")] = (
        TokenKind.wordpiece
    ),
) -> None:
    """Learn a vocabulary from the words of a store, of files of text, or of both."""
    from diptych.loading.corpus import Lines
    from diptych.loading.store import Store
    from diptych.loading.tokens import Tokens
    from diptych.recipes.plan import taught_texts

    if data is None and not text:
        raise RecipeError("a vocabulary is learnt from words: give --data STORE, --text FILE, or both")
    texts = [] if data is None else taught_texts(Store(data))
    for lines in map(Lines, text or []):
        texts += [lines[number] for number in range(len(lines))]
    out.mkdir(parents=True, exist_ok=True)
    learnt = Tokens.train(texts, size, lowercase=not keep_case, kind=kind.value)
    learnt.save(out)
    print(f"{learnt.vocabulary.size} tokens in {out / 'tokenizer.json'}")


@app.command("import")
def import_(
    system: Annotated[str, typer.Argument(help="Whose code wrote it: unified-vlp, tden or vl-bert.")],
    file: Annotated[Path, typer.Argument(help="The official checkpoint.")],
    out: Annotated[Path, typer.Argument(help="The model folder to make.")],
    vocab: Annotated[
        Path, typer.Option(help="Its vocab.txt: bert-base-cased (unified-vlp), bert-base-uncased (tden, vl-bert).")
    ],
    uncased: Annotated[
        bool | None,
        typer.Option("--uncased/--cased", help="Whether the vocabulary knows lower case alone. Default: as released."),
    ] = None,
) -> None:
    """Turn an official checkpoint into a model folder, with an account of every key."""
    from diptych.recipes.importing import import_checkpoint

    for line in import_checkpoint(system, file, out, vocab, lowercase=uncased):
        print(line)
    print(f"model folder: {out}")
