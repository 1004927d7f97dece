"""What a finished demo came to, kept among the results: its figures, the seconds and memory of each stage.

    uv run diptych demo --out DIR; uv run python -m benchmarks.demo DIR
    uv run diptych demo --thorough --out DIR; uv run python -m benchmarks.demo DIR

Writes benchmarks/results/demo.json of DIR/results.json, thorough.json of DIR/thorough.json, of those that are there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.machine import save_result

GOALS = {"seconds": "at most 480", "memory, MiB": "under 4096"}


def of_demo(results: dict[str, Any]) -> dict[str, Any]:
    seconds, memory = results["seconds"], results["memory_mib"]
    return {
        "seconds": {**seconds, "all stages": round(sum(seconds.values()), 1)},
        "memory, MiB": {**memory, "most": max(memory.values())},
        "goals": GOALS,
        "test, detected regions": {
            task: {arm: _told(scores["scores"]) for arm, scores in arms.items()}
            for task, arms in results["scores"].items()
        },
        "gain of pre-training": {
            task: f"{gain['value']:+.1f} ({gain['interval'][0]:.1f} to {gain['interval'][1]:.1f})"
            for task, gain in results["gains"].items()
        },
        "config": ", ".join(f"{name} {value}" for name, value in results["config"].items()),
    }


def _told(scores: dict[str, Any]) -> dict[str, str]:
    return {
        name: f"{one['value']:.1f} ({one['interval'][0]:.1f} to {one['interval'][1]:.1f}; blind {one['blind']:.1f}, "
        f"ceiling {one['ceiling']:.1f})"
        for name, one in scores.items()
    }


def of_thorough(results: dict[str, Any]) -> dict[str, Any]:
    """Without the rows, which are the figures' own and many."""
    rows = [{**row, "test": {n: round(v, 1) for n, v in row["test"].items()}} for row in results["rounds"]]
    baselines = {
        task: {score: {n: round(v, 1) for n, v in both.items()} for score, both in scores.items()}
        for task, scores in results["held against"].items()
    }
    took = {"seconds, in two processes beside other work": results["seconds"]}
    return {**results["figures"], "held against": baselines, "rates": results["rates"], **took, "rounds": rows}


def main(folder: Path) -> None:
    for name, figures in (("results", of_demo), ("thorough", of_thorough)):
        if (folder / f"{name}.json").exists():
            asked = "uv run diptych demo" + (" --thorough" if name == "thorough" else "") + " --out DIR"
            told = figures(json.loads((folder / f"{name}.json").read_text("utf-8")))
            kept = "demo" if name == "results" else name
            print(save_result(kept, f"{asked}; uv run python -m benchmarks.demo DIR", told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
