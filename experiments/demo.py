"""Copy the results of a finished demo to experiments/results: its scores, and the seconds and memory of each stage.

    uv run diptych demo --out DIR; uv run python -m experiments.demo DIR
    uv run python -m experiments.thorough DIR; uv run python -m experiments.demo DIR

Writes experiments/results/demo.json from DIR/results.json, and thorough.json from DIR/thorough.json. One of these two
inputs may be missing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.machine import of_score
from experiments.figures import save
from experiments.thorough import GAIN

GOALS = {"seconds, at most": 480, "memory, MiB, under": 4096}


def of_demo(results: dict[str, Any]) -> dict[str, Any]:
    seconds, memory = results["seconds"], results["memory_mib"]
    return {
        "seconds": {**seconds, "all stages": round(sum(seconds.values()), 1)},
        "memory, MiB": {**memory, "most": max(memory.values())},
        "goals": GOALS,
        "test, detected regions": {
            task: {arm: {n: of_score(one) for n, one in scores["scores"].items()} for arm, scores in arms.items()}
            for task, arms in results["scores"].items()
        },
        "gain of pre-training": {task: of_score(gain) for task, gain in results["gains"].items()},
        "config": results["config"],
    }


def of_thorough(results: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of thorough.json. Each score has its blind baseline and ceiling; gains have neither."""
    rows = [{**row, "test": {n: round(v, 1) for n, v in row["test"].items()}} for row in results["rounds"]]
    held = {
        task: {score: {n: round(v, 1) for n, v in both.items() if v is not None} for score, both in scores.items()}
        for task, scores in results["held against"].items()
    }
    figures = {
        task: {
            labels: {
                arm: scores if arm == GAIN else {n: one | held[task][n] for n, one in scores.items()}
                for arm, scores in arms.items()
            }
            for labels, arms in sizes.items()
        }
        for task, sizes in results["figures"].items()
    }
    took = {"seconds, in two processes on a busy machine": results["seconds"]}
    return {**figures, "rates": results["rates"], **took, "rounds": rows}


def main(folder: Path) -> None:
    known = {"results": of_demo, "thorough": of_thorough}
    done = [name for name in known if (folder / f"{name}.json").exists()]
    if not done:
        raise SystemExit(f"{folder} has no results.json and no thorough.json; run `diptych demo --out {folder}` first")
    for name in done:
        asked = "uv run python -m experiments.thorough DIR" if name == "thorough" else "uv run diptych demo --out DIR"
        told = known[name](json.loads((folder / f"{name}.json").read_text("utf-8")))
        kept = "demo" if name == "results" else name
        print(save(kept, f"{asked}; uv run python -m experiments.demo DIR", told))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a finished `diptych demo`")
    main(parser.parse_args().folder)
