"""Make the sample model of the package: Unified VLP for captions of drawn scenes, its detector in bf16, and three
images.

    uv run python -m experiments.sample DEMO

DEMO is the folder of `diptych demo`. Stages that the caption model needs are run first, if they are missing. Writes
src/diptych/inference/packaged/sample.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from torch import nn

from diptych.data.store.store import Store
from diptych.runs.folder import ModelFolder, open_model
from diptych.runtime.configs import derive
from diptych.vision.detectors.load import load_detector
from diptych_world.demo import demo as stages
from diptych_world.demo.demo import ALL, DEMO, DemoConfig, Times
from diptych_world.demo.systems import DEFAULT

TARGET = Path(__file__).parent.parent / "src/diptych/inference/packaged/sample"
PICTURES = 3  # number of images, from the start of the test split


def train(out: Path, console: Console) -> tuple[ModelFolder, Store]:
    """Run the stages of the demo that the caption model needs and that are not done yet. Return the model and the
    store."""
    config = DemoConfig.model_validate_json((out / DEMO).read_text()) if (out / DEMO).exists() else DemoConfig()
    store = stages.extract_world(out, config, Times(out / "stages.json", console))
    start = stages.pretrain_in_ranks(stages.pretraining_recipe(config, config.seed), store, out / "pretrain")
    cells = [c for c in stages.cells_of(config, store, start, out, DEFAULT) if (c.task, c.arm) == ("caption", ALL)]
    stages.run_cells(cells, console)
    return open_model(cells[0].folder), store


def round_weights(module: nn.Module) -> None:
    """Round all weights to bf16 values, which a model folder saves in half the bytes."""
    for tensor in module.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(tensor.bfloat16())


def pack(model: ModelFolder, store: Store, target: Path, pictures: int = PICTURES) -> None:
    """Write the model with rounded weights, and the first images of the test split, to `target`."""
    assert model.detector is not None
    assert model.recipe is not None
    detector: Any = load_detector(model.detector)
    round_weights(detector.network)
    round_weights(model.model)
    with TemporaryDirectory() as temporary:
        detector.save(Path(temporary))
        weights = load_detector(Path(temporary)).contract.weights
        contract = replace(model.contract, weights=weights)
        recipe = derive(model.recipe, init=None)  # without the path on the training machine
        for picture in target.glob("*.png"):  # images of an earlier sample, with which `save` refuses the folder
            picture.unlink()
        replace(model, contract=contract, recipe=recipe, detector=Path(temporary)).save(target)
    for index in store.split("test")[:pictures]:
        image = store.record(index).image
        assert image is not None
        shutil.copyfile(image, target / Path(image).name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path)
    parser.add_argument("--out", type=Path, default=TARGET)
    given = parser.parse_args()
    pack(*train(given.demo, Console()), given.out)
    for path in sorted(path for path in given.out.rglob("*") if path.is_file()):
        print(f"{path.stat().st_size:9,} {path.relative_to(given.out)}")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
