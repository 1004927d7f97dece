"""Open the eyes that a folder holds."""

from __future__ import annotations

import json
from pathlib import Path

from diptych.errors import CheckpointError
from diptych.vision.eyes import Eyes
from diptych.vision.ground_truth import GroundTruth

FILE = "eyes.json"


def load_eyes(folder: Path) -> Eyes:
    """From a folder that `Eyes.save` wrote; nothing in it points outside it."""
    path = folder / FILE
    try:
        known = json.loads(path.read_text("utf-8"))
        kind = known["kind"]
        if kind == "ground-truth":
            return GroundTruth(known["kinds"], known["attributes"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} describes no detector ({error!r}); copy the folder again") from error
    raise CheckpointError(f"{path} is of a kind {kind!r} that this Diptych does not know; it knows ground-truth")
