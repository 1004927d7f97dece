"""Measure the CPU seconds of one caption and of help on the command line, against `import torch` alone.

    uv run python -m benchmarks.startup MODEL PICTURE

MODEL is the folder of a caption model (such as the demo's `caption`), PICTURE an image file. The commands run in turn,
each in a separate process. Seconds are user and system time of all its threads. Writes benchmarks/results/startup.json.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks.machine import save_result

ROUNDS = 5
TORCH, CAPTION, HELP = "python -c 'import torch'", "diptych caption PICTURE --model MODEL", "diptych --help"


def seconds(arguments: list[str]) -> float:
    """Return the CPU seconds of one command, which must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(model: Path, picture: Path) -> None:
    commands = {
        TORCH: ["-c", "import torch"],
        CAPTION: ["-m", "diptych.cli", "caption", str(picture), "--model", str(model)],
        HELP: ["-m", "diptych.cli", "--help"],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, arguments in commands.items():
            taken[name].append(seconds(arguments))
    ratios = [caption / torch for caption, torch in zip(taken[CAPTION], taken[TORCH], strict=True)]
    figures = {
        "rounds": ROUNDS,
        "CPU seconds, median": {name: round(median(each), 2) for name, each in taken.items()},
        "a caption over import torch, median (goal 2.0, at most 2.5)": round(median(ratios), 2),
        "of each round": [round(ratio, 2) for ratio in ratios],
    }
    print(save_result("startup", f"uv run python -m benchmarks.startup {model} {picture}", figures).read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
