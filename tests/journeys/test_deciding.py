"""VCR, referring expressions, statements and entailment from the command line: learnt, scored, asked of a picture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import diptych as library
from diptych.data.store.store import Store
from diptych.runtime.errors import ServingError
from tests.journeys.conftest import Result, tiny

STEPS = {"training.steps": 4, "training.validate_every": 4, "training.checkpoint_every": 4, "training.batch": 4,
         "data.validation_records": 2, "data.records": 12}  # fmt: skip
SETTINGS = [word for key, value in STEPS.items() for word in ("--set", f"{key}={value}")]
FIGURES = {"vcr": {"Q->A", "QA->R", "Q->AR"}, "referring": {"accuracy"}, "nlvr": {"accuracy", "accuracy above blind"},
           "entailment": {"accuracy", "accuracy above blind"}}  # fmt: skip


@pytest.mark.slow
def test_four_tasks_from_the_truth(run: Callable[..., Result], world: Path, tmp_path: Path) -> None:
    """With fewer regions than pictures have: the best are kept, and what that costs is said."""
    few = tiny(**{"data.split": "train", "training.steps": 2, "model.max_regions": 4})
    made = run("pretrain", "unified-vlp/small/pretrain", "--data", world, "--out", tmp_path / "start", *few)
    assert made.code == 0, made.error
    record = Store(world).record(0)
    for task, figures in FIGURES.items():
        out = tmp_path / task
        result = run("finetune", task, "--data", world, "--model", tmp_path / "start", "--out", out, *SETTINGS)
        assert result.code == 0, result.error
        assert "have more than 4 regions: the best 4 are kept" in result.error
        assert task != "referring" or "expressions are left out: no region fits" in result.error
        assert task != "vcr" or "objects in questions have no region" in result.error
        scored = run("evaluate", "--model", out, "--data", world, "--json", "--out", out / "said.json")
        assert scored.code == 0, scored.error
        scores = json.loads(scored.out)
        assert set(scores["scores"]) == figures
        for name, score in scores["scores"].items():
            assert {"value", "interval", *(() if name == "accuracy above blind" else ("blind",))} == set(score) - {
                "ceiling"
            }
        assert json.loads((out / "said.json").read_text())
        shown = run("evaluate", "--model", out, "--data", world)
        assert "95%" in shown.out
        refused = run("evaluate", "--model", out, "--data", world, "--extra-metrics", "METEOR")
        assert refused.code == 2
    found = library.load(tmp_path / "referring").ground(record, "the dog")
    assert found.box in found.boxes
    assert 0 <= found.score <= 1
    chosen = library.load(tmp_path / "vcr").choose(record, "what is [0] doing", ["a", "b", "c"], ["d", "e"])
    assert chosen.rationale is not None
    assert (chosen in ("a", "b", "c"), chosen.rationale in ("d", "e")) == (True, True)
    assert chosen.score + sum(score for _, score in chosen.others) == pytest.approx(1)
    assert chosen.score >= max(score for _, score in chosen.others)
    (verdict,) = library.load(tmp_path / "nlvr").verify(record, ["there is a dog"])
    assert 0.5 <= verdict.score <= 1
    with pytest.raises(ServingError, match=r"refers to \[99\], but .* has these objects: \[0\]"):
        library.load(tmp_path / "vcr").choose(record, "why [99]", ["a", "b"])
    with pytest.raises(ServingError, match="found 1 answer and 0 rationales; pass at least two"):
        library.load(tmp_path / "vcr").choose(record, "why", ["a"])
    with pytest.raises(ServingError, match="expression is empty"):
        library.load(tmp_path / "referring").ground(record, " ")
    with pytest.raises(ServingError, match="was not trained for vcr; run diptych finetune vcr"):
        library.load(tmp_path / "referring").choose(record, "why", ["a", "b"])


def test_a_box_is_drawn_on_the_picture(tmp_path: Path) -> None:
    import torch

    from diptych.inference.drawing import COLOURS, draw_box

    sheet = draw_box(torch.full((3, 90, 120), 255, dtype=torch.uint8), (0.25, 0.25, 0.75, 0.75), "the dog " * 9)
    red = tuple(bytes.fromhex(COLOURS[0][1:]))
    assert sheet.width == 160
    top = sheet.height - 90
    assert sheet.getpixel((30, top + 45)) == red
    assert sheet.getpixel((60, top + 45)) == (255, 255, 255)
    for side in ((3, 5, 4000), (3, 4000, 5)):
        assert isinstance(draw_box(torch.zeros(side, dtype=torch.uint8), (0.0, 0.0, 0.001, 0.001), "x"), Image.Image)
