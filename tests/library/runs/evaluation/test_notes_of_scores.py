"""What `diptych score` reports of a file of true answers that it does not read whole."""

import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from diptych.data.leakage import Leakage
from diptych.runs.evaluation.evaluate import score_file
from diptych.runs.reports.tables import score_table
from diptych.tasks.scores import Score, Scores


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), "utf-8")
    return path


def test_an_empty_answer_among_ten_is_named_with_the_scores(tmp_path: Path) -> None:
    asked = write(tmp_path / "questions.json", {
        "data_subtype": "val2014", "questions": [{"question_id": 10, "image_id": 1, "question": "what is it?"}],
    })  # fmt: skip
    answers = [{"answer": answer} for answer in ["dog"] * 3 + ["cat"] * 6 + [""]]
    about = {"question_id": 10, "image_id": 1, "answer_type": "other", "answers": answers}
    given = write(tmp_path / "results.json", [{"question_id": 10, "answer": "dog"}])

    def notes(change: dict[str, Any]) -> str:
        truth = write(tmp_path / "annotations.json", {"data_subtype": "val2014", "annotations": [about | change]})
        return "\n".join(score_file(given, questions=asked, annotations=truth).notes)

    assert "left out of questions.json and annotations.json: empty answers: 1 (the first: annotations.json" in notes({})
    assert "left out" not in notes({"answers": [*answers[:-1], {"answer": "rat"}]})


def test_the_images_that_a_model_was_trained_on_are_the_first_line() -> None:
    told = Console(file=io.StringIO(), width=100)
    scores = Scores("caption", (Score("CIDEr", 1.0),), 10, 50, trained_on=Leakage(10, 0, 10))
    told.print(score_table(scores))
    first, second, *_ = told.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert first == "10 of 10 scored images were trained on, and 0 near copies"
    assert second.startswith("50 captions of 10 images")
    assert scores.to_json()["trained_on"]["exact"] == 10
