"""The verbs of the drawn world: `demo`, and those of `storybook`, which write, show and learn it."""

from pathlib import Path
from typing import Annotated

from typer import Option

from diptych.cli.app import Seed, Verbs, console, hold
from diptych.cli.outputs import OutFile, OutFolder
from diptych.runtime.errors import RecipeError, counted, nearest
from diptych.runtime.processes import PROCESSES
from diptych.runtime.verbs import OWN_SYSTEMS

_SYSTEMS = ", ".join(OWN_SYSTEMS)
storybook = Verbs(help="Write and show the drawn world, and train a detector for it.")


@storybook.command("write")
def storybook_write(
    *,
    out: Annotated[Path, OutFolder("world")] = Option(
        ..., help="Folder to write to; the same command resumes after an interruption."
    ),
    web: int = Option(10_000, min=0, help="Scenes of the split web, with one careless caption each, as on the web."),
    train: int = Option(1000, min=0, help="Scenes of the split train, with texts for all tasks."),
    val: int = Option(200, min=0, help="Scenes of the split val, by which weights are chosen."),
    test: int = Option(600, min=0, help="Scenes of the split test, on which models are scored."),
    test_rare: int = Option(
        200, min=0, help="Scenes of the split test_rare, with kinds in colours never shown in training."
    ),
    processes: int = Option(PROCESSES, min=1, help="Processes that draw; the pictures are the same for any number."),
    seed: Seed = 0,
) -> None:
    """Draw scenes and write their texts in the formats of COCO, VQA v2, RefCOCO, VCR and NLVR."""
    from diptych.runtime.progress import bar
    from diptych_world.files import write

    hold(out, "world")
    splits = {"web": web, "train": train, "val": val, "test": test, "test_rare": test_rare}
    with bar("scenes") as progress:
        drawing = progress.add_task("drawing", total=sum(splits.values()))
        write(out, splits, seed, lambda done: progress.advance(drawing, done), processes)
    print(f"{counted(sum(splits.values()), 'scenes')} in {out}")


@storybook.command("show")
def storybook_show(
    *,
    out: Annotated[Path, OutFile()] = Option(..., help="PNG file to write the sheet to."),
    split: str = Option("train", help="Split to show: web, train, val, test or test_rare."),
    count: int = Option(12, min=1, max=200, help="Scenes on the sheet, at most 200."),
    detector: str | None = Option(None, help="Detector folder, to show its regions instead of the true ones."),
    seed: Seed = 0,
) -> None:
    """Draw a sheet of scenes with their boxes and texts, or with the regions that a detector finds."""
    from diptych_world.book import Storybook
    from diptych_world.sheet import show
    from diptych_world.world import SPLITS

    if split not in SPLITS:
        raise RecipeError(f"no split {split!r}; {nearest(split, SPLITS)}")
    scenes = Storybook(seed, split, count)[:]
    if detector is None:
        show(scenes, out)
    else:
        from diptych.vision.detectors.open import open_detector
        from diptych.vision.detectors.sheet import detection_sheet
        from diptych_world.demo.detector import drawn, truth

        pictures, records = [drawn(scene) for scene in scenes], [truth(scene) for scene in scenes]
        opened = open_detector(detector, records)
        detection_sheet(pictures, opened.detect(pictures, records), opened.contract.class_names, out)
    print(f"{counted(count, 'scenes')} in {out}")


@storybook.command("detector")
def storybook_detector(
    *,
    out: Annotated[Path, OutFolder("detector run")] = Option(
        ..., help="Folder of the run; the detector is written to OUT/detector."
    ),
    faster_rcnn: str | None = Option(None, help="Torchvision Faster R-CNN to train instead, such as resnet18_fpn."),
    steps: int | None = Option(None, min=1, help="Steps to train for; default: those of the recipe."),
    seed: Seed = 0,
) -> None:
    """Train a small detector on the drawn world."""
    from diptych_world.demo.detector import DetectorRecipe, FasterRCNNRecipe, train_detector

    recipe = (
        DetectorRecipe.of(steps, seed)
        if faster_rcnn is None
        else FasterRCNNRecipe.of(steps, seed, architecture=faster_rcnn)
    )
    hold(out, "detector run")
    train_detector(recipe, out, console=console())
    print(f"detector: {out / 'detector'}")


@storybook.command("web")
def storybook_web(
    *,
    out: Annotated[Path, OutFolder("web")] = Option(..., help="Folder to write the test web to."),
    pages: int = Option(5000, min=1, help="Pages to write; a folder that has them already is left as it is."),
    serve: int | None = Option(None, metavar="PORT", help="Port of 127.0.0.1 to serve its hosts on; default: none."),
    processes: int = Option(PROCESSES, min=1, help="Processes that draw; the pages are the same for any number."),
    seed: Seed = 0,
) -> None:
    """Write a test web to try mining on: drawn scenes on pages of invented hosts, with ground truth."""
    from diptych.runtime.progress import bar
    from diptych_world import web

    if (there := web.settings_of(out)) is not None and (serve is not None or there == {"pages": pages, "seed": seed}):
        print(f"{out} has {counted(there['pages'], 'pages')} of seed {there['seed']} already")
    else:
        hold(out, "web")
        with bar("pages") as progress:
            writing = progress.add_task("writing", total=pages)
            web.write(out, pages, seed, processes, lambda done: progress.advance(writing, done))
        print(f"{counted(pages, 'pages')} in {out}")
    if serve is not None:
        web.serve(out, serve)


def demo(
    out: Annotated[Path, OutFolder("demo")] = Option(
        Path("demo"), help="Folder of the demo; the same command resumes after an interruption."
    ),
    fast: bool = Option(False, "--fast", help="Run a demo of under 60 seconds, to show that it works, not how well."),
    system: str = Option("unified-vlp", help=f"System to run: {_SYSTEMS}, or one of an installed package."),
    seed: Seed = 0,
) -> None:
    """Run the whole pipeline on drawn images: draw, extract, pre-train, fine-tune, caption and answer."""
    from diptych.runtime.processes import begin_loading

    hold(out, "demo")
    begin_loading()
    from diptych_world.demo.demo import DemoConfig
    from diptych_world.demo.demo import demo as run_demo

    run_demo(out, DemoConfig.fast(seed) if fast else DemoConfig(seed=seed), console(), system)
