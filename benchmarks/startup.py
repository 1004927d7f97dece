"""Measure the CPU seconds that verbs take with a model of photographs, against `import torch` alone.

    uv run python -m benchmarks.startup FOLDER

FOLDER has a caption model (`captions`) and a retrieval model (`search`) on NanoDet's regions, `photos.jsonl` with their
texts, and the folder `photos`. How good the models are changes nothing: three steps of training are enough. The
commands run in turn, each in a separate process in FOLDER. Seconds are user and system time of all its threads.
`search` finds the vectors of the images in its cache, and `serve` ends as soon as it is ready. Writes
benchmarks/results/startup.json.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.machine import save_result

ROUNDS = 5
ROWS = """
import diptych, json
diptych.Dataset.from_rows([json.loads(line) for line in open("photos.jsonl")])
"""
DIPTYCH = ["-m", "diptych.cli"]
TORCH, CAPTION = "python -c 'import torch'", "diptych caption PHOTO --model photos"
READY = "serving on"


def seconds(arguments: list[str], folder: Path) -> float:
    """Return the CPU seconds of one command, which must succeed. A service is stopped when it is ready."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *arguments]
    serves = "serve" in arguments
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if serves and line.startswith(READY):
                process.terminate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr="".join(lines))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(folder: Path) -> None:
    photo = min((folder / "photos").iterdir()).relative_to(folder)
    with tempfile.TemporaryDirectory() as cache:
        searching = ["search", "two dogs", "--images", "photos", "--model", "search", "--cache", f"{cache}/vectors"]
        commands = {
            TORCH: ["-c", "import torch"],
            CAPTION: [*DIPTYCH, "caption", str(photo), "--model", "photos"],
            "diptych search TEXT --images photos --model search": [*DIPTYCH, *searching],
            "diptych check photos.jsonl": [*DIPTYCH, "check", "photos.jsonl"],
            "Dataset.from_rows": ["-c", ROWS],
            "diptych serve captions search, until it is ready": [
                *DIPTYCH,
                "serve",
                "captions",
                "search",
                "--port",
                "0",
            ],
            "diptych --help": [*DIPTYCH, "--help"],
        }
        seconds([*DIPTYCH, *searching], folder)  # fills the cache
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, arguments in commands.items():
                taken[name].append(seconds(arguments, folder))
    ratios = {
        name: [own / torch for own, torch in zip(each, taken[TORCH], strict=True)] for name, each in taken.items()
    }
    figures = {
        "rounds": ROUNDS,
        "photographs": sum(1 for _ in (folder / "photos").iterdir()),
        "a caption over import torch, median (goal 1.6)": round(median(ratios[CAPTION]), 2),
        "of each round": [round(ratio, 2) for ratio in ratios[CAPTION]],
        "medians": {
            name: {"CPU seconds": round(median(each), 2), "over import torch": round(median(ratios[name]), 2)}
            for name, each in taken.items()
        },
    }
    print(save_result("startup", f"uv run python -m benchmarks.startup {folder.name}", figures).read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
