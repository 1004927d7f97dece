"""`diptych score`: files of others, without a model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diptych.cli import app
from diptych.runs.reports.tables import score_row
from diptych.runtime.errors import DataError, RecipeError
from diptych.tasks.scores import Score

TRUTHS = {1: ["a red dog runs", "a dog"], 2: ["the blue boat is small", "a boat"], 3: ["two cats", "cats"]}


@pytest.fixture
def save(tmp_path: Path) -> Callable[[str, Any], str]:
    def to_file(name: str, content: Any) -> str:
        (tmp_path / name).write_text(json.dumps(content))
        return str(tmp_path / name)

    return to_file


@pytest.fixture
def captions(save: Callable[[str, Any], str]) -> list[str]:
    notes = [{"image_id": key, "caption": text} for key, texts in TRUTHS.items() for text in texts]
    references = save("captions.json", {"images": [{"id": key} for key in TRUTHS], "annotations": notes})
    results = save("results.json", [{"image_id": 1, "caption": "a red dog runs"}, {"image_id": 2, "caption": ""}])
    return ["score", results, "--references", references]


def evaluate(*arguments: str) -> None:
    app(list(arguments), standalone_mode=False)


def test_a_table_with_coverage(captions: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(*captions, "--allow-missing")
    told = " ".join(capsys.readouterr().out.split())
    assert "2 captions of 2 images, 66.7% of the queries" in told
    assert "95% interval" in told
    assert "1 of 3 have no prediction" in told
    assert "1 predictions are empty and score 0" in told


def test_no_share_of_a_ceiling_of_nothing() -> None:
    scores = [
        Score("BLEU-4", 12.6, ceiling=1e-7),
        Score("BLEU-1", 15.0, ceiling=30.0),
        Score("CIDEr", 9.0, ceiling=0.0),
    ]
    assert [score_row(score)[-1] for score in scores] == ["", "50%", ""]


def test_json_with_a_baseline(
    captions: list[str], save: Callable[[str, Any], str], capsys: pytest.CaptureFixture[str]
) -> None:
    training = save("training.json", {"annotations": [{"image_id": 7, "caption": "a dog"}]})
    evaluate(*captions, "--allow-missing", "--training", training, "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["coverage"] == pytest.approx(2 / 3)
    assert set(told["scores"]["CIDEr"]) == {"value", "interval", "blind", "ceiling"}


def test_answers(save: Callable[[str, Any], str], capsys: pytest.CaptureFixture[str]) -> None:
    asked = save("q.json", {"questions": [{"image_id": 1, "question_id": 5, "question": "is it red"}]})
    said = [{"answer": "yes"}] * 9 + [{"answer": "no"}]
    notes = save(
        "a.json", {"annotations": [{"question_id": 5, "image_id": 1, "answer_type": "yes/no", "answers": said}]}
    )
    results = save("r.json", [{"question_id": 5, "answer": "yes"}])
    evaluate("score", results, "--questions", asked, "--annotations", notes, "--json")
    told = json.loads(capsys.readouterr().out)["scores"]
    assert told["accuracy yes/no"]["value"] == 100
    assert told["accuracy"]["ceiling"] == pytest.approx(90)


def test_what_does_not_go_together_is_said(captions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="allow missing predictions"):
        evaluate(*captions)
    both = [*captions, "--questions", "q.json"]
    for wrong, fault in ((captions[:2], "a file of results needs --references"), (both, "pass --references")):
        with pytest.raises(RecipeError, match=rf"{fault} .*, or --questions"):
            evaluate(*wrong)
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(RecipeError, match="METEOR needs Java on the PATH"):
        evaluate(*captions, "--extra-metrics", "METEOR")
