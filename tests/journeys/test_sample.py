"""The sample model of the package: what it holds, and that images unlike its training are named everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import diptych
from diptych.core.folders import PACKAGED
from diptych.runs.folder import damaged_files, open_model
from diptych.runtime.errors import CheckpointError, UnfamiliarWarning
from diptych.vision.detectors.open import open_detector
from diptych_serve.service.service import Service
from tests.support.service import Local

SAMPLE = PACKAGED / "sample"
PICTURES = sorted(SAMPLE.glob("*.png"))


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("noise") / "noise.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (160, 160, 3), np.uint8)).save(path)
    return path


def test_it_is_small_whole_and_names_no_path_of_the_machine_that_made_it() -> None:
    files = [path for path in SAMPLE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 6_000_000
    assert damaged_files(SAMPLE) == []
    assert open_model(Path("sample")).recipe is not None
    assert not [path for path in files if path.suffix == ".json" and b"/tmp/" in path.read_bytes()]
    for weights in ("model.safetensors", "detector/detector.safetensors"):
        kept = load_file(SAMPLE / weights).values()
        assert {tensor.dtype for tensor in kept if tensor.is_floating_point()} == {torch.bfloat16}


def test_it_captions_its_pictures_as_their_scenes_are() -> None:
    model = diptych.load("sample")
    assert len(PICTURES) == 3
    for path in PICTURES:
        words = model.caption(path)
        assert len(words.split()) >= 4
        assert words.familiar is True


def test_its_detector_goes_by_its_name() -> None:
    assert open_detector("sample").contract == open_model(Path("sample")).contract


def test_a_model_of_that_name_goes_before_it_but_not_a_folder_of_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "0.png").write_bytes(PICTURES[0].read_bytes())
    assert open_model(Path("sample")).folder == SAMPLE
    (tmp_path / "sample" / ".diptych").write_text("diptych run\n")
    with pytest.raises(CheckpointError, match="sample is not a model folder"):
        diptych.load("sample")


def test_noise_is_named_on_the_command_line_and_in_json(noise: Path, run: Callable[..., Any]) -> None:
    done = run("caption", str(PICTURES[0]), str(noise), "--model", "sample", "--json")
    first, second = map(json.loads, done.out.splitlines())
    assert (first["familiar"], second["familiar"]) == (True, False)
    assert f"{noise} is unlike what this model was trained on; expect nonsense" in done.error
    done = run("caption", str(PICTURES[0]), "--model", "sample")
    assert "nonsense" not in done.error


def test_the_service_answers_with_it(noise: Path) -> None:
    with_model = Local(Service({"sample": diptych.load("sample").predictor}))
    answer = with_model.post("/v1/caption", PICTURES[0].read_bytes()).json()
    assert answer["familiar"] is True
    assert with_model.post("/v1/caption", noise.read_bytes()).json()["familiar"] is False


def test_python_warns_once_a_call(noise: Path) -> None:
    model = diptych.load("sample")
    with pytest.warns(UnfamiliarWarning, match=f"^{noise} is unlike what this model was trained on; expect nonsense$"):
        made = model.caption([PICTURES[0], noise])
    assert [one.familiar for one in made] == [True, False]
    with pytest.warns(UnfamiliarWarning, match="noise.png is unlike") as warned:
        list(model.caption(iter([noise] * 20)))
    assert len(warned) == 1


@pytest.mark.parametrize(
    ("pictures", "said"),
    [(["a.png"], "a.png is unlike"), (["a.png", "b.png"], r"2 images \(a.png, ...\) are unlike")],
)
def test_the_warning_counts(pictures: list[Any], said: str) -> None:
    with pytest.raises(UnfamiliarWarning, match=f"^{said} what this model was trained on; expect nonsense$"):
        raise UnfamiliarWarning.of(pictures)


def test_a_task_that_is_not_learnt_is_named_before_images_are_read(tmp_path: Path, run: Callable[..., Any]) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    done = run("ask", str(tmp_path), "what colour?", "--model", "sample")
    assert done.code == 1
    assert "was not trained for vqa" in done.error
    assert "broken.png" not in done.error
