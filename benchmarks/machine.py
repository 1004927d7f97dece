"""Save the figures of a benchmark or an experiment with machine, date and commit."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
Figure = dict[str, float]
MEASURED = ("src", "benchmarks", "uv.lock")  # a commit that touches none of them does not change a benchmark's figures
OUTSIDE = re.compile(r"(?<![\w./<-])(?:(?:~|\.\.)?/(?!/)|[A-Z]:\\)[^\s'\"`|]*?([^\s'\"`|/\\]+)/?(?=[\s'\"`|]|$)")


def machine() -> dict[str, Any]:
    model = next(
        (line.split(":")[1].strip() for line in _read("/proc/cpuinfo").splitlines() if "model name" in line), ""
    )
    return {
        "processor": model or platform.processor(),
        "cores": os.cpu_count(),
        "amx": "amx_bf16" in _read("/proc/cpuinfo"),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "onednn": os.environ.get("ONEDNN_MAX_CPU_ISA", "all that the processor has"),
        "load": [round(x, 1) for x in os.getloadavg()],
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def save_result(name: str, command: str, figures: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write FOLDER/NAME.json and return its path. Then `make docs` makes its page. Of folders outside the current one,
    COMMAND keeps the last name only."""
    root, made_by = Path(__file__).parent.parent, folder.absolute().parent.name
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    record: dict[str, Any] = {"command": without_folders(command), "date": date}
    record |= {"commit": commit_of(root, made_by), "machine": machine(), "figures": figures}
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path


def without_folders(command: str) -> str:
    """Return the command, where each absolute path, and each path that begins with `..` or `~`, is its last name."""
    return OUTSIDE.sub(r"\1", command)


def commit_of(root: Path, made_by: str = "benchmarks") -> str:
    """Return the short hash of the last commit in the repository `root` that touched the measured code, or the code
    that measures (folder `made_by`). " with changes" follows if code differs from its last commit."""
    touched = dict.fromkeys((*MEASURED, made_by))
    code = [f"{path}/*.py" if path in ("benchmarks", made_by) else path for path in touched]  # results are no code
    changed = _git(root, "diff", "HEAD", "--", *code)
    return _git(root, "log", "-1", "--format=%h", "--", *touched) + (" with changes" if changed else "")


def of_score(saved: Mapping[str, Any]) -> Figure:
    """Convert a score in the form of `Score.to_json` to a figure."""
    low, high = saved.get("interval") or (None, None)
    known = {"value": saved["value"], "low": low, "high": high}
    known |= {name: saved.get(name) for name in ("blind", "ceiling")}
    return {name: round(value, 1) for name, value in known.items() if value is not None}


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False).stdout.strip()


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
