"""Runs of recipes by one process, or by several under torchrun: what `test_ranks.py` compares."""

import json
import sys
from pathlib import Path

import torch

from diptych.data.store.store import Store
from diptych.runs.folder import open_model
from diptych.runs.run import run
from diptych.systems import find_recipe
from diptych.training.ranks import join_ranks, leave


def main() -> int:
    """Arguments: a store, then a JSON object for each run."""
    torch.set_num_threads(1)
    with join_ranks(torch.device("cpu")):
        for text in sys.argv[2:]:
            asked = json.loads(text)
            start = open_model(Path(asked["start"])) if asked["start"] else None
            run(find_recipe(asked["recipe"], asked["settings"]), Store(Path(sys.argv[1])), Path(asked["out"]), start)
    return 0


if __name__ == "__main__":
    leave(main())
