"""What Python shows of every public object fits in a few lines of a terminal, whatever its size."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import diptych
from diptych.api.dataset import Example
from diptych.api.run import Metrics, Plot
from diptych.core import Question, Record
from diptych.inference.search import Hit
from diptych.systems import find_recipe
from diptych.tasks.scores import Score, Scores
from tests.support.service import make_model

MOST, LONG = 300, "a long text of a caption or a name " * 40


def test_every_public_object_has_a_short_repr(tmp_path: Path) -> None:
    folder = tmp_path / ("n" * 120) / ("m" * 120)
    make_model(folder)
    find_recipe("unified-vlp/small/caption").save(folder)
    assert repr(diptych.Run(folder)).endswith(", finished at step 0>"), "a run without a log has one too"
    line = {"step": 2, "total": 1.0, "losses": {"masked": 1.0}}
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    run = diptych.Run(folder)
    record = Record("k" * 200, "s" * 200, None, captions=(LONG,), questions=(Question("q", LONG, (LONG,)),))
    fields: dict[str, Any] = {"score": -1.23456789, "others": ((LONG, -2.0),) * 16, "labels": (LONG,) * 99}
    hits = diptych.Hits([Hit(Path(LONG), 0.5)] * 99)
    hits.query = LONG
    texts = (diptych.Answer, diptych.Caption, diptych.ChosenAnswer, diptych.Found)
    score = Score("CIDEr", 1.0, 0.5, 1.5, 0.2, 3.0, ("A: 3 of 4 test images were trained on, and 1 near copies",) * 2)
    objects = [
        *(getattr(diptych, name) for name in diptych.__all__),
        *(kind.of(LONG, **fields, image=LONG) for kind in texts),
        diptych.Judgement.of(1, **fields),
        diptych.Explained(width=9, height=9, words=(LONG,) * 9, regions=(), weights=((),) * 9),
        *(hits, diptych.Dataset([record] * 9, LONG), Example(record), diptych.load(folder / "model")),
        *(run, run.metrics, Metrics([{LONG: 1.0}]), run.plot(), Plot(LONG)),
        *(find_recipe("unified-vlp/small/caption"), diptych.recipe("image-bert/small/pretrain/web-then-train")),
        *(score, Scores("caption", (score,) * 30, 4, 20)),
    ]
    assert {type(one).__name__: repr(one) for one in objects if len(repr(one)) > MOST} == {}


def test_one_is_counted_in_the_singular() -> None:
    assert ", 1 step of 64, lr " in repr(find_recipe("unified-vlp/small/caption").override(["training.steps=1"]))


def test_a_region_has_one_colour_and_number_in_all_drawings() -> None:
    def colours(html: str) -> list[tuple[str, ...]]:
        return re.findall(r'<rect x="(\d+)" y="(\d+)".*?stroke="(#\w+)"', html)

    model = diptych.load("sample")
    image = model.examples[0]
    caption = model.caption(image)
    explained, drawn = model.explain(image, caption)._repr_html_(), colours(caption._repr_html_())
    assert len(drawn) == len(caption.boxes) > 2
    assert set(colours(explained)) == set(drawn)
    for number, label in enumerate(caption.labels):
        assert f'<th style="color:{drawn[number][2]}">[{number}] {label}</th>' in explained
