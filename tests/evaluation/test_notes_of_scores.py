"""What `diptych score` reports of a file of true answers that it does not read whole."""

import json
from pathlib import Path
from typing import Any

from diptych.runs.evaluation.evaluate import score_file


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
