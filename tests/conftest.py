"""Shapes and types of every signature are checked at run time, in tests only (tests/checking.py)."""

import os
import sys
from pathlib import Path

from tests import checking
from tests.protocols import see_submodules

CHECKED = (  # where tensors are
    "core", "vision", "data.store", "storybook.detector", "objectives", "models", "metrics", "tasks",
    *(f"systems.{name}" for name in ("unified_vlp", "vl_bert", "image_bert", "tden", "xgpt")),
)  # fmt: skip
if sys.version_info >= (3, 12):
    see_submodules()
checking.install([f"diptych.{package}" for package in CHECKED])

import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)
os.environ.setdefault("DIPTYCH_PRECISION", "fp32")  # what processes of a test compute is the same on every machine
REPOSITORY = Path(__file__).parent.parent


def pytest_runtest_setup() -> None:
    checking.begin()


@pytest.fixture
def data_folder() -> Path:
    """Real files of data sets and published examples, which are not ours to hand on."""
    folder = Path(os.environ.get("DIPTYCH_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"needs real files of others, and there is no folder {folder}; DIPTYCH_SHARED_DATA names one")
    return folder
