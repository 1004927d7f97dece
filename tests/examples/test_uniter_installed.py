"""The package as a user installs it, and plain `diptych` with it; in processes of their own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from diptych.data.extract.extract import extract
from diptych.runs.folder import open_model
from diptych.runtime.errors import CheckpointError
from diptych.vision.detectors.ground_truth import GroundTruth
from diptych_world.book import record
from diptych_world.layout import scene
from tests.support.outside import REPOSITORY, diptych

SPLITS = {"train": 12, "val": 4, "test": 4}
SMALL = ["model.width=16", "model.heads=2", "model.layers=1", "model.ffn=32", "training.batch=4", "training.steps=3",
         "training.validate_every=3", "training.checkpoint_every=3", "training.precision=fp32"]  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by uv's own backend, which needs no network."""
    if (uv := shutil.which("uv")) is None:
        pytest.skip("no uv here to install the package with")
    folder = tmp_path_factory.mktemp("installed")
    given = ["--no-deps", "--offline", "--no-cache", "--target", folder, REPOSITORY / "examples" / "uniter"]
    done = subprocess.run([uv, "pip", "install", "-q", *given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "store"
    records = [record(scene(0, split, number)) for split, count in SPLITS.items() for number in range(count)]
    extract(records, GroundTruth.of(records), folder)
    return folder


@pytest.mark.slow
def test_it_is_listed_trained_taught_and_scored(installed: Path, drawn: Path, tmp_path: Path) -> None:
    def run(*arguments: object) -> str:
        done = diptych(*arguments, path=installed)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "uniter/small/pretrain" in run("recipes", "--system", "uniter")
    settings = [word for one in SMALL for word in ("--set", one)]
    start, tuned = tmp_path / "pretrained", tmp_path / "tuned"
    run("pretrain", "uniter/small/pretrain", "--data", drawn, "--out", start, *settings)
    config = json.loads((start / "model" / "config.json").read_text())
    assert config["system"] == "uniter"
    assert config["packages"] == {"diptych-uniter": "0.1.0"}
    run("finetune", "vqa", "--data", drawn, "--model", start, "--out", tuned, *settings)
    scores = json.loads(run("evaluate", "--model", tuned, "--data", drawn, "--split", "test", "--json"))["scores"]
    assert 0 <= scores["accuracy"]["value"] <= 100
    missing = "was made with diptych-uniter 0.1.0, which is missing; run pip install diptych-uniter"
    with pytest.raises(CheckpointError, match=missing):  # in this process
        open_model(tuned)


@pytest.mark.thorough
@pytest.mark.slow
def test_its_own_tests_pass_where_it_is_installed(installed: Path) -> None:
    """By `diptych.testing`, as its authors would run them."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(installed)])}
    given = [REPOSITORY / "examples" / "uniter" / "tests", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        # an interpreter: pytest as an author of a package runs it
        [sys.executable, "-m", "pytest", *map(str, given)],
        capture_output=True, text=True, check=False, cwd=REPOSITORY, env={**environment, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
