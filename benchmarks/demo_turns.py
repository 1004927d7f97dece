"""Run the demo and the demo of an earlier commit in turn; compare CPU seconds by stage, and scores.

    OMP_WAIT_POLICY=passive uv run python -m benchmarks.demo_turns [--before e16f41f] [--seeds 3] [--out DIR] [--fast]

For each seed the earlier demo runs, then the current one, in the same environment. The earlier sources are extracted
from git into DIR. Seconds are user and system time of all processes of a demo. The earlier demo lacks the models that
train on all labels. So the current demo is timed without them; they run afterwards and are timed separately. CIDEr and
each kind of VQA are listed for both arms with their intervals. An idle machine of two cores needs an hour for three
seeds. If the command is stopped, repeat it to resume after the last complete demo. Writes
benchmarks/results/demo_turns.json. With --fast (a test of this program, with demos of a minute) it writes nothing.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import save_result

COMMAND = "OMP_WAIT_POLICY=passive uv run python -m benchmarks.demo_turns"
BEFORE, NOW, ADDED = "before", "now", "models with all labels"
SCORES = {"caption": ("CIDEr",), "vqa": ("accuracy yes/no", "accuracy number", "accuracy other")}
# Runs in both versions. Sums the CPU time of all processes in its session; ended ones count in their parents' times.
DRIVER = """
import json, os, sys
from contextlib import contextmanager
from pathlib import Path
from rich.console import Console
try:
    import diptych_world.demo.demo as demo
except ImportError:
    import diptych.recipes.demo as demo

def cpu():
    total = 0
    for process in Path("/proc").iterdir():
        try:
            fields = (process / "stat").read_text().rsplit(")", 1)[1].split() if process.name.isdigit() else None
        except OSError:
            continue
        if fields and int(fields[3]) == os.getsid(0):
            total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")

out, seed, arms, fast = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "True"
taken, stage = {}, demo.Times.stage

@contextmanager
def timed(self, name):
    began = cpu()
    with stage(self, name):
        yield
    taken["fine-tune" if name.startswith("fine-tune") else name] = round(cpu() - began, 1)

demo.Times.stage = timed
if arms == "few":
    name = "cells_of" if hasattr(demo, "cells_of") else "_cells"  # of e16f41f
    cells = getattr(demo, name)
    made = lambda *given: [cell for cell in cells(*given) if cell.arm != demo.ALL]
    setattr(demo, name, made)
demo.demo(out, demo.DemoConfig.fast(seed) if fast else demo.DemoConfig(seed=seed), Console(quiet=True))
print(json.dumps(taken))
"""


def taken_out(revision: str, folder: Path) -> Path:
    """Extract the sources of a commit below `folder`, and return their folder."""
    packed = subprocess.run(["git", "archive", revision, "src"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def run(sources: Path, out: Path, seed: int, arms: str, fast: bool) -> dict[str, float]:
    """Run one demo and return its CPU seconds by stage. A finished demo is not repeated."""
    kept, added = out.parent / f"{out.name}-{arms}.json", (out.parent / f"{out.name}-few.json").exists()
    if not kept.exists():
        if not added and out.exists():  # restart an interrupted demo, whose first part was not timed
            shutil.rmtree(out)
        given = [sys.executable, "-c", DRIVER, str(out), str(seed), arms, str(fast)]
        environment = {**os.environ, "PYTHONPATH": str(sources)}
        done = subprocess.run(given, env=environment, check=True, stdout=subprocess.PIPE, start_new_session=True)
        kept.write_text(done.stdout.decode().strip().splitlines()[-1])
    seconds: dict[str, float] = json.loads(kept.read_text())
    return seconds | {"all stages": round(sum(seconds.values()), 1)}


def scores(out: Path) -> dict[str, Any]:
    """Return the test scores of the arms with few labels."""
    found = json.loads((out / "results.json").read_text())["scores"]
    return {
        f"{task}, {arm}": {name: _figure(found[task][arm]["scores"][name]) for name in names}
        for task, names in SCORES.items()
        for arm in ("from scratch", "pre-trained")
    }


def below(reached: dict[str, Any]) -> list[bool]:
    """Return, for each score of a seed, whether the current demo is below the earlier demo's interval."""
    return [
        reached[NOW][arm][name]["value"] < score["low"]
        for arm, named in reached[BEFORE].items()
        for name, score in named.items()
    ]


def _figure(score: dict[str, Any]) -> dict[str, float]:
    low, high = score["interval"]
    return {name: round(number, 1) for name, number in (("value", score["value"]), ("low", low), ("high", high))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="e16f41f", help="the earlier commit (default: e16f41f)")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds (default: 3)")
    parser.add_argument("--out", type=Path, default=Path("out/demo_turns"), help="folder of all demos")
    parser.add_argument("--fast", action="store_true", help="demos of a minute, to test this program")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    sources = {BEFORE: taken_out(given.before, given.out / given.before), NOW: Path("src").resolve()}
    seeds, ratios = {}, []
    for seed in range(given.seeds):
        outs = {name: given.out.resolve() / f"{name}-{seed}" for name in sources}
        spent = {
            name: run(folder, outs[name], seed, "few" if name == NOW else "all", given.fast)
            for name, folder in sources.items()
        }
        ratios.append(spent[NOW]["all stages"] / spent[BEFORE]["all stages"])
        reached = {name: scores(out) for name, out in outs.items()}
        added = run(sources[NOW], outs[NOW], seed, "all", given.fast)["fine-tune"]
        seeds[f"seed {seed}"] = {"CPU seconds": spent | {NOW: spent[NOW] | {ADDED: added}}, "test": reached}
    figures = {
        "now over before (goal 0.76, at most 0.80)": round(median(ratios), 2),
        "scores": sum(len(below(one["test"])) for one in seeds.values()),
        "below the earlier interval (goal 0)": sum(sum(below(one["test"])) for one in seeds.values()),
        **seeds,
    }
    if given.fast:
        print(json.dumps(figures, indent=2))
    else:
        print(save_result("demo_turns", COMMAND, figures).read_text())


if __name__ == "__main__":
    main()
