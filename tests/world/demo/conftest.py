"""A report of two pictures in which every text is hostile."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from diptych.core import Object, Question, Record, Regions
from diptych.runs.reports.report import Report
from diptych.tasks.baselines import vqa_baselines
from diptych.tasks.caption import caption_baselines, score_captions
from diptych.tasks.scores import ItemScore, Scores
from diptych.tasks.vqa import score_vqa
from diptych_world.demo.measure import MeasuredScores
from diptych_world.demo.page import demo_report
from tests.support.hostile import HOSTILE

NAMES = ("dog", "boat", HOSTILE)


@pytest.fixture
def records(tmp_path: Path) -> list[Record]:
    return [_record(tmp_path, "test/000000", "dog", 0), _record(tmp_path, "test/000001", "boat", 2)]


def _record(folder: Path, key: str, kind: str, seen: int) -> Record:
    picture = folder / f"{key.replace('/', '_')}.png"
    Image.new("RGB", (40, 30), (200, 40, 40)).save(picture)
    regions = Regions(
        boxes=torch.tensor([[0.1, 0.2, 0.5, 0.9], [0.85, 0.0, 1.0, 0.3]]),
        scores=torch.tensor([0.9, 0.5]),
        size=(40, 30),
        classes=torch.eye(3)[[seen, 2]],
    )
    questions = (
        Question(f"{key}/colour", f"what colour is the {kind}", ("red",) * 10),
        Question(f"{key}/is", f"is there a {kind} {HOSTILE}", ("yes",) * 10, "yes/no"),
    )
    captions = (f"a red {kind} on the grass", f"the {kind} {HOSTILE}")
    objects = (Object(kind, (0.1, 0.2, 0.5, 0.9)),)
    return Record(key, "test", picture, (40, 30), captions, questions, objects=objects, regions=regions)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lines = [{"step": s, "total": 8.0 / s, "validation": {"CIDEr": 10.0 * s}} for s in (1, 2, 4)]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 5, "tot')
    return folder


@pytest.fixture
def said(records: list[Record]) -> tuple[dict[str, str], dict[str, str]]:
    captions = {records[0].key: "a red dog on the grass", records[1].key: f"two cats {HOSTILE}"}
    answers = {q.key: "red" if q.kind == "other" else "no" for record in records for q in record.questions}
    return captions, answers


@pytest.fixture
def scores(records: list[Record], said: tuple[dict[str, str], dict[str, str]]) -> dict[str, dict[str, Scores]]:
    captions, answers = said
    truths = {record.key: record.captions for record in records}
    training = (Question("t", "is there a thing", ("yes",) * 10, "yes/no"),)
    return {
        "caption": {HOSTILE: score_captions(captions, truths, caption_baselines(truths, [["a dog"], [HOSTILE]]))},
        "vqa": {HOSTILE: score_vqa(answers, records, vqa_baselines(records, training))},
    }


@pytest.fixture
def rows(scores: dict[str, dict[str, Scores]]) -> list[ItemScore]:
    return [row for arms in scores.values() for row in arms[HOSTILE].rows]


@pytest.fixture
def report(records: list[Record], run: Path, scores: dict[str, dict[str, Scores]]) -> Report:
    return demo_report(
        MeasuredScores(tuple(records), scores, {}),
        NAMES,
        runs={"caption": {HOSTILE: run, "none": run / "nothing"}},
        seconds={HOSTILE: 61.0, "evaluate": 2.5},
        memory_mib={"evaluate": 512.0},
        configuration={HOSTILE: HOSTILE, "steps": 3},
        notes={"caption": {HOSTILE: HOSTILE}},
        title=HOSTILE,
    )
