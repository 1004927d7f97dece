"""From what arms said to the page, without a model."""

from diptych.core import Question, Record
from diptych.runs.reports.html import page
from diptych.tasks import CAPTION
from diptych_world.demo.measure import measure
from diptych_world.demo.page import demo_report

ASKED = [
    Record(key, captions=(f"a {key} dog", f"one {key} dog"), questions=(Question(key, "what colour", (key,) * 10),))
    for key in ("red", "blue", "green")
]


def test_arms_are_measured_and_reported() -> None:
    right = CAPTION.by_key([{"key": r.key, "caption": r.captions[0], "score": 0.0} for r in ASKED])
    wrong = dict.fromkeys(right, "a boat")
    answers = {"scratch": dict.fromkeys(right, "red"), "pre-trained": {key: key for key in right}, "all": {}}
    answers["all"] = answers["scratch"]  # the gain is that of the second over the first
    said = {"scratch": wrong, "pre-trained": right, "all": right}
    measured = measure({"caption": said, "vqa": answers}, ASKED, ASKED[:1])
    assert measured.scores["vqa"]["pre-trained"]["accuracy"].value == 100
    assert abs(measured.gains["vqa"].value - 200 / 3) < 1e-9
    caption = measured.scores["caption"]
    assert measured.gains["caption"].value == caption["pre-trained"]["CIDEr"].value - caption["scratch"]["CIDEr"].value
    assert caption["scratch"]["CIDEr"].ceiling == caption["pre-trained"]["CIDEr"].ceiling
    shown = page(demo_report(measured, ("dog",), {}, {"evaluate": 1.0}, {}, {}, {}))
    assert "pre-trained minus scratch: accuracy +66.7" in shown
    assert "the arm “all”" in shown
    assert f"Captions, CIDEr: scratch 0.0, pre-trained {caption['pre-trained']['CIDEr'].value:.1f}" in shown
