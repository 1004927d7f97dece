"""A network of one's own, as ONNX files: from photographs to captions, answers and search."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.journeys.conftest import Result, drawn_pictures, tiny
from tests.support.onnx_files import write, write_map

COUNT = 12
SIZES = {"model.max_regions": 8, "model.positions": 40, "data.max_words": 16, "training.steps": 2}
FEW = ("--set", "training.steps=2", "--set", "data.max_words=16", "--set", "training.validate_every=null",
       "--set", "training.average_best=1")  # fmt: skip


def test_an_onnx_detector_goes_the_whole_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Result]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    drawn_pictures(tmp_path, COUNT)
    corners = np.random.default_rng(0).uniform(0, 16, (1, 5, 4)) + np.array([0, 0, 16, 16])
    scores, labels = [[0.9, 0.8, 0.7, 0.6, 0.5]], [[0, 1, 1, 0, 1]]
    write(tmp_path / "mine.onnx", {"boxes": corners, "scores": scores, "labels": labels})
    write_map(tmp_path / "backbone.onnx", 12)
    (tmp_path / "names.txt").write_text("dog\nbird\n")

    def done(*command: object) -> str:
        ended = run(*command)
        assert ended.code == 0, (command, ended.error)
        return ended.out

    asked = run("extract", "mine.jsonl", "--out", "store", "--detector", "onnx:mine.onnx")
    assert (asked.code, "--backbone timm/NAME" in asked.error) == (2, True)
    imported = done("import", "detector", "mine.onnx", "--out", "detector", "--backbone", "onnx:backbone.onnx",
                    "--class-names", "names.txt")  # fmt: skip
    assert "assumed: fit=stretch" in imported
    assert "12 values a region, 2 classes" in imported
    for network in ("mine.onnx", "backbone.onnx"):
        (tmp_path / network).rename(tmp_path / f"moved-{network}")
    done("extract", "mine.jsonl", "--out", "store", "--detector", "detector")
    done("pretrain", "unified-vlp/small/pretrain", "--data", "store", "--out", "first",
         *tiny(**SIZES, **{"data.split": "train"}))  # fmt: skip
    for task in ("caption", "vqa"):
        done("finetune", task, "--data", "store", "--model", "first", "--out", task, *FEW)
    (tmp_path / "caption").rename(tmp_path / "elsewhere")
    (line,) = done("caption", "photos/000.jpg", "--model", "elsewhere", "--json").splitlines()
    assert json.loads(line)["picture"] == "photos/000.jpg"
    assert done("ask", "photos/001.jpg", "what is it?", "--model", "vqa").strip()
    done("pretrain", "image-bert/small/pretrain", "--data", "store", "--out", "second",
         *tiny(**SIZES, **{"data.split": "train"}))  # fmt: skip
    done("finetune", "retrieval", "--data", "store", "--model", "second", "--out", "finder", *FEW)
    found = done("search", "a red dog", "--images", "photos", "--model", "finder", "--top-k", 3)
    assert len(found.splitlines()) == 3
