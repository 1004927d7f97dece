"""From images and captions of one's own to a captioner: the whole pipeline, without the drawn world."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.cli import run_verb
from tests.library.api.conftest import TINY
from tests.support.given_features import given

COUNT = 12
SETTINGS = [f"--set={key}={json.dumps(value)}" for key, value in {**TINY, "training.steps": 4}.items()]


@pytest.mark.slow
def test_images_with_features_of_others_become_a_captioner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "photos").mkdir()
    (tmp_path / "features").mkdir()
    lines = []
    for number in range(COUNT):
        pixels = np.random.default_rng(number).integers(0, 255, (160, 160, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"photos/{number:03d}.png")
        given(tmp_path / "features" / f"{number:03d}.npz", seed=number)
        split = ("train", "val", "test")[max(0, number - 9)]
        lines.append({"image": f"photos/{number:03d}.png", "captions": ["a dog", "a red dog"], "split": split})
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def diptych(*words: str) -> str:
        assert run_verb(list(words), debug=True) == 0, words
        return capsys.readouterr().out

    data = ("--data", "store")
    diptych("extract", "mine.jsonl", "--out", "store", "--detector", "given", "--features", "features")
    diptych("pretrain", "unified-vlp/small/pretrain", *data, "--out", "first", *SETTINGS)
    diptych("finetune", "caption", *data, "--model", "first", "--out", "captioner", "--steps", "4", "--batch-size", "4")
    scores = json.loads(diptych("evaluate", "--model", "captioner", *data, "--json"))
    assert scores["task"] == "caption"
    assert diptych("caption", "photos/003.png", "--model", "captioner", "--features", "features").strip()
