"""Shapes and types of every signature are checked at run time, in tests only."""

import os
import sys
from pathlib import Path

from jaxtyping import install_import_hook

CHECKED = ("core", "vision", "loading", "objectives", "models", "metrics", "decoding", "tasks")  # where tensors are
# From 3.12 on isinstance looks for a protocol's members without __getattr__, which is where nn.Module keeps its own: no
# model would pass for a Model there. The same signatures run unchecked; 3.11 checks them.
if sys.version_info < (3, 12):
    install_import_hook([f"diptych.{package}" for package in CHECKED], "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)
REPOSITORY = Path(__file__).parent.parent


@pytest.fixture
def data_folder() -> Path:
    """Real files in the official formats; not part of the project."""
    folder = Path(os.environ.get("DIPTYCH_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}: set DIPTYCH_SHARED_DATA to run this test")
    return folder
