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
from diptych.inference.drawing import COLOURS
from diptych.inference.search import Hit
from diptych.systems import find_recipe
from diptych.tasks.interface import Region
from diptych.tasks.scores import Score, Scores
from tests.support.service import make_model, picture

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
    score = Score("CIDEr", 1.0, 0.5, 1.5, 0.2, 3.0, ("A: 3 of 4 scored images were trained on, and 1 near copies",) * 2)
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


def test_regions_that_cover_each_other_have_one_number_and_column() -> None:
    """As in `--show`: the most confident region stands for all, and the largest influence is number 1."""
    boxes = ((10, 10, 40, 40), (60, 60, 30, 30), (10, 10, 40, 42), (0, 0, 5, 5))
    regions = [Region(box=box, label="dog", score=0.5) for box in boxes]
    weights = ((1.0, 2.0, 1.0, 0.0), (0.5, 0.0, 0.5, 0.0))
    explained = diptych.Explained(width=100, height=100, words=("a", "dog"), regions=regions, weights=weights)
    html = explained.of(picture(size=(100, 100)), "a dog.")._repr_html_()
    heads = [f'<th style="color:{COLOURS[0]}">1 dog 0.50</th>',
             f'<th style="color:{COLOURS[1]}">2 dog 0.50, and 1 region that covers it</th>']  # fmt: skip
    assert f"<tr><th></th>{''.join(heads)}</tr><tr><th>a</th><td>+2.00</td><td>+1.00</td></tr>" in html
    assert re.findall(r'<rect x="(\d+)".*?stroke="(#\w+)"', html) == [("60", COLOURS[0]), ("10", COLOURS[1])]
    assert re.findall(r">(\d)</text>", html) == ["1", "2"]
    assert "<b>a dog.</b>" in html
    assert "'a dog.'" in repr(explained)


def test_a_comparison_names_both_models_and_the_difference() -> None:
    compared = (("runs/first", 20.0), ("runs/<b>", None))
    gain = Score("CIDEr", 3.25, -1.0, 7.5, notes=("A: 0 of 9",), compared=compared)
    assert repr(gain) == "<diptych.Score CIDEr, B minus A: +3.2 (-1.0 to 7.5); A: 0 of 9>"
    html = str(gain._repr_html_())
    assert "<td>A: runs/first</td><td>20.0</td>" in html
    assert "<td>B: runs/&lt;b&gt;</td><td></td>" in html
    assert "<td>B minus A</td><td>+3.2</td><td>-1.0 to +7.5</td>" in html
    assert Score("CIDEr", 3.25)._repr_html_() is None
