"""The verbs that make and check data: data, check, extract, tokenizer."""

import json
import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from diptych.cli.app import (
    AsJson,
    DetectorBackbone,
    DetectorSettings,
    DetectorWeights,
    Device,
    Features,
    Revision,
    SkipBad,
    SplitSeed,
    StoredBoxes,
    Verbs,
    console,
    hold,
)
from diptych.cli.outputs import OutFile, OutFolder
from diptych.runtime.errors import RecipeError, counted
from diptych.runtime.terminal import begin

ImageFolder = Annotated[Path | None, Option(help="Folder that image names are relative to; default: that of the data.")]


tokenizer = Verbs(help="Learn vocabularies of texts.")


class Extracting(StrEnum):
    local = "local"
    ray = "ray"


class TokenKind(StrEnum):
    wordpiece = "wordpiece"
    bpe = "bpe"


def public_data(
    name: str | None = Argument(
        None, help="The set, such as coco or vqa2; without it, all are listed. `formats` lists the formats of files."
    ),
    root: Path | None = Argument(None, help="The folder of its files; without it, they are listed."),
    out: Annotated[Path | None, OutFile()] = Option(
        None, help="Write a manifest here, which other verbs take as DATA (default: none)."
    ),
    skip_bad: SkipBad = False,
) -> None:
    """List the files of a public data set, and write a manifest of the files that exist."""
    from diptych.data.formats.public import describe_folder, list_files, list_sets

    if name == "formats":
        from diptych.data.formats.table import list_formats

        print(list_formats())
        return
    if name is None or root is None:
        print(list_sets() if name is None else list_files(name))
        return
    if out is None:
        print(describe_folder(name, root))
        return
    from diptych.data.formats.public_set import write_set

    print(write_set(name, root, out, console(), skip_bad))


def check(
    data: Path = Argument(help="Store, model or run to check, or data to extract."),
    model: str | None = Option(
        None, help="Model, to check its features and whether it was trained on the test images."
    ),
    images: ImageFolder = None,
    revision: Revision = None,
    skip_bad: SkipBad = False,
    stored: StoredBoxes = False,
    as_json: AsJson = False,
) -> None:
    """Check data before training. The exit code is 1 if training would fail, or if a test image is in another split."""
    begin(f"reading {data}")
    from diptych.data.check import check as check_records
    from diptych.data.extract.own_data import read_records
    from diptych.data.store.store import INDEX, Store
    from diptych.inference.open import open_folder
    from diptych.runs.folder import damaged_files, model_in
    from diptych.runtime.progress import advancing
    from diptych.tasks import TASKS

    if (folder := model_in(data)) is not None:
        if model is not None or images is not None:
            raise RecipeError(
                f"{folder} has no records, so only its files can be checked; leave out --model and --images"
            )
        hurt = damaged_files(folder)
        report = json.dumps({"ok": not hurt, "findings": hurt}, indent=1) if as_json else "\n".join(hurt)
        print(report or f"{folder}: all files are complete and unchanged")
        raise SystemExit(1 if hurt else 0)
    opened = open_folder(model, revision=revision) if model is not None else None
    contract, seen = (None, None) if opened is None else (opened.contract, opened.seen)
    parts = () if opened is None else opened.architecture.config.reads
    if (is_store := (data / INDEX).exists()) and stored:
        raise RecipeError(f"{data} is a store, which has its boxes already; pass --stored-boxes to `diptych extract`")
    records = Store(data) if is_store else read_records(data, console(), images, None, 0, True, skip_bad, stored)
    tasks = {name: spec.learns_from for name, spec in TASKS.items()}
    with advancing("checking", len(records)) as progress:
        checked = check_records(records, contract, True, tasks, seen, stored, progress, parts)
    if as_json:
        print(json.dumps(checked.to_json(), indent=1))
    else:
        console(stderr=False).print(checked)
    if not checked.ok:
        raise SystemExit(1)


def extract(
    *,
    data: Path = Argument(help="Manifest, .jsonl, file of a public data set, or folder of images, to read."),
    out: Annotated[Path, OutFolder("store")] = Option(
        ..., help="Store to write; the same command resumes after an interruption."
    ),
    detector: str = Option(
        ...,
        help="Detector or model folder, torchvision name, grid:BACKBONE, hf:NAME, onnx:FILE, tfjs:FILE#nanodet, "
        "hub:NAME@COMMIT, given or ground-truth.",
    ),
    weights: DetectorWeights = None,
    backbone: DetectorBackbone = None,
    settings: DetectorSettings = None,
    region_selection: str | None = Option(
        None, help="Number of regions of each image, or a rule, as of tden; default: the detector's."
    ),
    images: ImageFolder = None,
    features: Features = None,
    boxes: str | None = Option(None, help="Boxes of features that have none: `whole` gives each the whole image."),
    split: str | None = Option(None, help="Split of data without splits; default: --split-seed divides them."),
    split_seed: SplitSeed = 0,
    skip_bad: SkipBad = False,
    stored: StoredBoxes = False,
    image_feature: str | None = Option(None, help="Backbone of a whole-image feature (densenet121); default: none."),
    batch_size: int = Option(8, min=1, help="Images in a batch of the detector."),
    processes: int | None = Option(
        None, min=1, help="Processes that read or extract; default: 1; with a GPU or Ray one a core, up to 4."
    ),
    engine: Extracting = Option(Extracting.local, help="Engine, with the same result: local, or ray (at RAY_ADDRESS)."),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Extract the regions of every image into a store, from which models are trained."""
    begin(f"reading {data}")
    from diptych.data.extract.own_data import extract_regions, read_records, refuse_changed
    from diptych.runtime.outputs import refuse_inputs
    from diptych.runtime.progress import tell
    from diptych.systems import find_selection
    from diptych.vision.detectors.open import open_detector, with_image_feature

    selection = find_selection(region_selection) if region_selection is not None else None
    records = read_records(data, console(), images, split, split_seed, features is None, skip_bad, stored)
    refuse_inputs(out, [data])
    opened = open_detector(
        detector, records, features, weights, selection, boxes, settings or (), backbone,
        report=partial(tell, console()),
    )  # fmt: skip
    opened = with_image_feature(opened, image_feature)
    refuse_changed(out, records, data, opened)
    hold(out, "store")
    done = extract_regions(records, opened, out, console(), batch_size, processes, engine, device, skip_bad, stored)
    print(json.dumps({"store": str(out), **vars(done)}) if as_json else f"{done.summary()}; {out}")


@tokenizer.command("train")
def tokenizer_train(
    out: Annotated[Path, OutFolder("tokens")] = Option(..., help="Folder to write tokenizer.json to."),
    data: Path | None = Option(None, help="Store to learn from; its val and test splits are left out."),
    text: list[Path] | None = Option(None, metavar="FILE", help="Text to learn from, one sentence a line; repeatable."),
    size: int = Option(8000, min=10, max=1_000_000, help="Size of the vocabulary at most, in tokens."),
    keep_case: bool = Option(False, "--keep-case", help="Keep upper case, so that Dog and dog differ."),
    kind: TokenKind = Option(
        TokenKind.wordpiece, help="Kind of vocabulary: wordpiece (BERT) or bpe of Moses' words (XGPT)."
    ),
) -> None:
    """Train a vocabulary on the texts of a store, on text files, or on both."""
    if data is None and not text:
        raise RecipeError("Missing --data STORE or --text FILE: a vocabulary is trained on texts")
    from diptych.data.store.corpus import Lines
    from diptych.data.store.store import Store
    from diptych.data.store.tokens import Tokens
    from diptych.runs.words import training_texts
    from diptych.runtime.outputs import refuse_edited, refuse_inputs, write_noted

    file = out / "tokenizer.json"
    refuse_inputs(file, text or [])
    texts = [] if data is None else training_texts(Store(data))
    for lines in map(Lines, text or []):
        texts += [lines[number] for number in range(len(lines))]
    hold(out, "tokens")
    refuse_edited(out, [file])
    if damaged := sum("\ufffd" in one for one in texts):
        print(f"diptych: {damaged} of {counted(texts, 'texts')} have bytes that are not UTF-8", file=sys.stderr)
    learnt = Tokens.train(texts, size, lowercase=not keep_case, kind=kind.value)
    if (least := learnt.vocabulary.size) > size:
        raise RecipeError(f"--size {size}: these texts need {least} tokens for their characters; pass {least} or more")
    write_noted(out, file, learnt.to_json().encode())
    print(f"{least} tokens in {file}")
