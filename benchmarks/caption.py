"""Time the way from an image file to its caption on one core, after a warm-up, as a user of `diptych.load` sees it.

    uv run python -m benchmarks.caption MODEL PICTURES

MODEL is the folder of a caption model (such as the demo's `caption`), PICTURES a folder of PNG files. Decoding the
file, detecting regions and generating the caption (greedy) are also timed separately. Writes
benchmarks/results/caption.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

import diptych
from benchmarks.machine import save_result
from diptych.vision.pictures import open_picture

MOST, ROUNDS = 50, 3


def milliseconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - began)


def main(model: Path, pictures: Path) -> None:
    torch.set_num_threads(1)
    speaker = diptych.load(model)
    files = sorted(pictures.rglob("*.png"))[:MOST]
    seen = [speaker.predictor.extract([file])[0] for file in files]
    speaker.caption(files[0])
    parts: dict[str, Callable[[int], object]] = {
        "picture to caption": lambda n: speaker.caption(files[n]),
        "picture to caption, beam 5": lambda n: speaker.caption(files[n], beams=5),
        "of it, decoding the file": lambda n: open_picture(files[n]),
        "of it, looking": lambda n: speaker.predictor.extract([files[n]]),
        "of it, writing": lambda n: speaker.caption(seen[n]),
    }
    taken: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(ROUNDS):
        for number in range(len(files)):
            for name, part in parts.items():
                taken[name].append(milliseconds(lambda part=part, number=number: part(number)))
    figures = {"threads": 1, "milliseconds, median (goal 60)": {n: round(median(t), 1) for n, t in taken.items()}}
    command = f"uv run python -m benchmarks.caption {model} {pictures}"
    print(save_result("caption", command, figures).read_text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a model folder that captions")
    parser.add_argument("pictures", type=Path, help="a folder of PNG files")
    given = parser.parse_args()
    main(given.model, given.pictures)
