"""Save the figures of a benchmark or an experiment with machine, date and commit."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
Figure = dict[str, float]


def machine() -> dict[str, Any]:
    model = next(
        (line.split(":")[1].strip() for line in _read("/proc/cpuinfo").splitlines() if "model name" in line), ""
    )
    return {
        "processor": model or platform.processor(),
        "cores": os.cpu_count(),
        "amx": "amx_bf16" in _read("/proc/cpuinfo"),
        "onednn": os.environ.get("ONEDNN_MAX_CPU_ISA", "all that the processor has"),
        "load": [round(x, 1) for x in os.getloadavg()],
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def save_result(name: str, command: str, figures: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write FOLDER/NAME.json and return its path. Then `make docs` makes its page."""
    commit = _git("rev-parse", "--short", "HEAD") + (" with changes" if _git("diff", "HEAD", "--", "*.py") else "")
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    record = {"command": command, "date": date, "commit": commit, "machine": machine(), "figures": figures}
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path


def of_score(saved: Mapping[str, Any]) -> Figure:
    """Convert a score in the form of `Score.to_json` to a figure."""
    low, high = saved.get("interval") or (None, None)
    known = {"value": saved["value"], "low": low, "high": high}
    known |= {name: saved.get(name) for name in ("blind", "ceiling")}
    return {name: round(value, 1) for name, value in known.items() if value is not None}


def _git(*asked: str) -> str:
    return subprocess.run(["git", *asked], capture_output=True, text=True, check=False).stdout.strip()


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
