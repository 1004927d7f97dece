"""A store, a run and models that commit 4eb52ed made (tests/data/made_at_4eb52ed) open, score and resume."""

import json
import shutil
from pathlib import Path

import pytest

from tests.journeys.conftest import diptych

MADE = Path(__file__).parents[1] / "data" / "made_at_4eb52ed"
SETTINGS = [
    f"--set={setting}"
    for setting in ("training.batch=4", "training.threads=1", "training.device=cpu", "training.validate_every=null")
]


def test_a_model_made_before_answers_the_same() -> None:
    done = diptych("ask", MADE / "picture.png", "what colour is the dog?", "--model", MADE / "vqa", "--json")
    answered = json.loads(done.stdout)
    assert answered["answer"] == "blue"
    assert answered["probability"] == pytest.approx(0.0619011, rel=1e-3)


def test_a_store_made_before_is_read() -> None:
    done = diptych("check", MADE / "store", "--json")
    assert json.loads(done.stdout)["records"] == 8


def test_a_run_made_before_resumes_to_the_same_loss(tmp_path: Path) -> None:
    shutil.copytree(MADE / "vqa", tmp_path / "vqa")
    diptych(
        "finetune", "vqa", "--data", MADE / "store", "--model", MADE / "start", "--out", tmp_path / "vqa",
        "--set=training.steps=2", "--set=data.validation_records=200", *SETTINGS,  # the default then
    )  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "vqa" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert lines[1]["total"] == pytest.approx(3.2084713, rel=1e-3)
    assert (tmp_path / "vqa" / "model.before" / "config.json").read_bytes() == (
        MADE / "vqa/model/config.json"
    ).read_bytes()
