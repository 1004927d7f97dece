"""Steps and weights of a run."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path


def weights(run: Path) -> str:
    return sha256((run / "model" / "model.safetensors").read_bytes()).hexdigest()


def steps(run: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
