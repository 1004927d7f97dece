"""What is wrong with a data set is found, counted and named."""

import json
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from rich.console import Console

from diptych.core import Choices, Expression, FeatureContract, Object, Question, Record, Regions, Statement, TaskItem
from diptych.data.check import check
from diptych.data.findings import KINDS, CheckFinding, CheckReport
from diptych.data.store.store import Store, StoreWriter
from diptych.tasks import TASKS

CONTRACT = FeatureContract("given", "", 2, class_names=("cat", "dog"), whole=True)


def regions(**changed: Any) -> Regions:
    right = Regions(
        boxes=torch.tensor([[0.1, 0.2, 0.5, 0.6]]),
        scores=torch.tensor([0.5]),
        size=(8, 8),
        classes=torch.tensor([[0.5, 0.5]]),
        features=torch.rand(1, 2),
        whole=torch.ones(2),
    )
    return replace(right, **changed)


def stored(folder: Path, records: Sequence[Record], contract: FeatureContract = CONTRACT) -> Store:
    with StoreWriter(folder, contract) as writer:
        for record in records:
            writer.add(record)
    return Store(folder)


def faults(report: CheckReport) -> list[CheckFinding]:
    """The findings but two, as every data set here has few records to score, and some have none to train on."""
    return [one for one in report.findings if one.kind not in ("split too small", "no train split")]


def one(report: CheckReport) -> CheckFinding:
    assert len(faults(report)) == 1, report.findings
    return faults(report)[0]


def printed(report: CheckReport, width: int) -> str:
    console = Console(record=True, width=width, file=StringIO())
    console.print(report)
    return console.export_text()


def good(key: str, **changed: Any) -> Record:
    return Record(key, **{"captions": ("a cat",), "regions": regions(), **changed})


def test_nothing_wrong(tmp_path: Path) -> None:
    records = []
    for number, split in enumerate(["train", "train", "val"]):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
        records.append(good(f"k{number}", image=path, split=split))
    report = check(stored(tmp_path / "store", records), CONTRACT)
    (small,) = report.findings
    assert (small.kind, small.severity, small.examples) == ("split too small", "warning", ["val: 1"])
    assert (report.ok, report.records) == (True, 3)
    assert check([replace(record, split="train") for record in records], pictures=False).clean
    assert report.splits == {"train": 2, "val": 1}
    assert report.coverage == {"captions": 100, "picture": 100, "questions": 0, "regions": 100}


def test_what_each_task_can_learn_from_is_counted_by_split() -> None:
    asked = replace(good("asked"), captions=(), questions=(Question("asked/0", "what?", ("a cat",)),))
    unanswered = replace(asked, key="unanswered", split="test", questions=(Question("unanswered/0", "what?", ()),))
    tasks = {name: TASKS[name].learns_from for name in ("pretrain", "caption", "vqa", "nlvr")}
    report = check([good("a"), good("b", split="val"), asked, unanswered], pictures=False, tasks=tasks)
    both = {"train": 2, "val": 1}
    assert report.tasks == {"pretrain": both, "caption": {"train": 1, "val": 1}, "vqa": {"train": 1}, "nlvr": {}}
    console = Console(record=True, width=80, file=StringIO())
    console.print(report)
    printed = console.export_text()
    assert "for pretrain: train 2, val 1 records" in printed
    assert "no records for nlvr" in printed
    assert report.to_json()["tasks"]["vqa"] == {"train": 1}


NAN = float("nan")
BROKEN_REGIONS = [
    ("features not finite", "error", {"features": torch.tensor([[1, NAN]])}),
    ("features not finite", "error", {"whole": torch.tensor([float("inf"), 1])}),
    ("features not finite", "error", {"classes": torch.tensor([[NAN, 1]])}),
    ("features of another size", "error", {"features": torch.rand(1, 3), "whole": torch.ones(3)}),
    ("features of another size", "error", {"classes": torch.ones(1, 3)}),
    ("box not finite", "error", {"boxes": torch.tensor([[0, 0, NAN, 1]])}),
    ("box not finite", "error", {"scores": torch.tensor([NAN])}),
    ("box upside down", "error", {"boxes": torch.tensor([[0.5, 0.1, 0.2, 0.6]])}),
    ("box upside down", "error", {"boxes": torch.tensor([[0.1, 0.6, 0.2, 0.5]])}),
    ("box outside", "warning", {"boxes": torch.tensor([[0.1, 0.1, 0.2, 1.1]])}),
    ("box outside", "warning", {"boxes": torch.tensor([[-0.1, 0.1, 0.2, 0.5]])}),
    ("score outside", "warning", {"scores": torch.tensor([7.0])}),
]


@pytest.mark.parametrize(("kind", "severity", "changed"), BROKEN_REGIONS)
def test_broken_regions(tmp_path: Path, kind: str, severity: str, changed: dict[str, Any]) -> None:
    store = stored(tmp_path, [good("bad", regions=regions(**changed))])
    found = one(check(store))
    assert (found.kind, found.severity, found.count) == (kind, severity, 1)
    assert found.examples[0].startswith("bad")
    assert check(store).ok is (severity == "warning")


def test_a_box_end_rounded_outward_is_no_finding(tmp_path: Path) -> None:
    boxes = torch.tensor([[-1e-4, 0, 1.0004, 1]])
    assert check(stored(tmp_path, [good("k", regions=regions(boxes=boxes))])).clean


def test_pictures(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_text("no picture")
    records = [
        Record("good", image=tmp_path / "good.png", captions=("a",)),
        Record("bad", image=tmp_path / "bad.png", captions=("a",)),
        Record("gone", image=tmp_path / "gone.png", captions=("a",)),
        Record("blind", captions=("a",)),
    ]
    report = check(records)
    assert [(f.kind, f.severity, f.count) for f in report.findings] == [
        ("picture missing", "error", 2),
        ("picture unreadable", "error", 1),
    ]
    assert report.coverage["picture"] == 25
    assert check(records, pictures=False).clean
    # Where the features are stored, training needs no picture.
    store = stored(tmp_path / "store", [replace(r, regions=regions()) for r in records])
    report = check(store)
    assert report.ok
    assert [(f.kind, f.severity, f.count) for f in report.findings] == [
        ("picture missing", "warning", 1),
        ("picture unreadable", "warning", 1),
    ]


def test_the_same_picture_in_one_split_and_in_two(tmp_path: Path) -> None:
    records = []
    for number, (split, colour) in enumerate([("train", 1), ("train", 1), ("val", 1), ("val", 2)]):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (8, 8), (colour, 0, 0)).save(path)
        records.append(Record(f"k{number}", split, path, captions=("a",)))
    report = check(records)
    assert [(f.kind, f.severity, f.count, f.examples) for f in faults(report)] == [
        ("picture in two splits", "error", 1, ["k2 (val) is k0 (train)"]),
        ("same picture twice", "warning", 1, ["k1 is k0 (train)"]),
    ]
    assert not report.ok


@pytest.mark.parametrize(
    ("first", "second", "severity"),
    [("web", "train", "warning"), ("train", "test", "error"), ("test_rare", "web", "error"), ("val", "test", "error")],
)
def test_only_what_a_scored_split_shares_is_an_error(tmp_path: Path, first: str, second: str, severity: str) -> None:
    Image.new("RGB", (8, 8), "red").save(tmp_path / "one.png")
    records = [Record(f"k{split}", split, tmp_path / "one.png", captions=("a",)) for split in (first, second)]
    report = check(records)
    assert (one(report).kind, one(report).severity) == ("picture in two splits", severity)
    assert report.ok == (severity == "warning")


def test_keys_are_unique() -> None:
    twice = check([good("k"), good("l"), good("k"), good("k")])
    assert (one(twice).kind, one(twice).count, twice.ok) == ("key twice", 2, False)
    across = check([good("k"), good("k", split="val")])
    assert [(f.kind, f.count) for f in faults(across)] == [("key twice", 1), ("key in two splits", 1)]


def test_letters_that_no_training_text_has() -> None:
    train, val = good("a", captions=("A cat by Ö",)), good("b", split="val", captions=("ein ö, ŵ", "cat ŵ"))
    found = check([train, val], pictures=False)
    assert found.capitals == 1
    assert "1 texts have capital letters" in printed(found, 200)
    assert [line for line in one(found).examples if "U+0175" in line] == ["ŵ (U+0175) in b"]
    assert one(found).count == len(set("ein ö, ŵcat") - set("a cat by ö"))
    assert not faults(check([val], pictures=False)), "no text is trained on"
    assert not faults(check([good("a"), good("b", split="val", captions=("CAT",))], pictures=False))


def test_a_letter_in_either_unicode_form_is_one_and_other_languages_are_counted() -> None:
    """Training puts texts in NFC; and it does not mirror images whose texts are not English."""
    train, val = good("a", captions=("the café",)), good("b", split="val", captions=("the cafe\u0301",))
    assert not faults(check([train, val], pictures=False))
    found = one(check([train, good("c", captions=("der Hund links",))], pictures=False))
    assert (found.kind, found.severity, found.examples) == ("text not in English", "warning", ["c"])


def test_words_that_mean_a_place() -> None:
    """The one region is (0.1, 0.2, 0.5, 0.6): an expression beside it, a tag beside it, and a tag of nothing."""
    here, beside = (0.1, 0.2, 0.5, 0.6), (0.6, 0.6, 0.9, 0.9)
    asked = Choices("c", "is [0] left of [1]", ("[2]", "yes"), 0)
    records = [
        good("a", expressions=(Expression("e", "here", here), Expression("f", "there", beside))),
        good("b", objects=(Object("cat", here), Object("dog", beside)), choices=(asked,)),
    ]
    report = check(records)
    assert {f.kind: f.examples for f in report.findings} == {
        "tag of nothing": ["c: [2] of 2 objects"],
        "tag without a region": ["c: [1]"],
        "expression without a region": ["f"],
    }
    assert report.ok
    assert (report.coverage["choices"], report.coverage["expressions"]) == (50, 50)


def test_words() -> None:
    records = [
        good("a", captions=("a cat", "  ", "")),
        good("b", captions=()),
        good("c", questions=(Question("q1", "what?", ()), Question("q2", "what?", ("cat",)))),
        good("d", captions=(), expressions=(Expression("e", "the cat", (0.2, 0.2, 0.1, 0.4)),)),
        good("e", objects=(Object("cat", (0.0, 0.0, 1.0, 1.2)),)),
    ]
    report = check(records)
    assert [(f.kind, f.count) for f in report.findings] == [
        ("true box wrong", 2),
        ("caption empty", 2),
        ("no words", 1),
        ("question without answers", 1),
    ]
    assert report.findings[3].examples == ["q1"]
    assert report.ok
    assert report.coverage == {"captions": 60, "expressions": 20, "picture": 0, "questions": 20, "regions": 100}


def test_another_contract_is_an_error(tmp_path: Path) -> None:
    found = one(check(stored(tmp_path, [good("k")]), replace(CONTRACT, extractor="other", feature_size=7)))
    assert (found.kind, found.severity, found.count) == ("contract", "error", 2)
    assert found.examples == ["extractor: 'given', not 'other'", "feature_size: 2, not 7"]
    assert not check(Store(tmp_path), replace(CONTRACT, feature_size=7), parts=["boxes"]).findings, "it reads pixels"


def test_what_was_not_extracted_lowers_coverage(tmp_path: Path) -> None:
    store = stored(tmp_path, [good("k"), good("l"), good("m")])
    (tmp_path / "failures.jsonl").write_text(json.dumps({"key": "x", "reason": "cut short"}) + "\n")
    report = check(store)
    assert one(report).examples == ["x: cut short"]
    assert report.coverage["regions"] == 75
    assert report.ok


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    stored(tmp_path, [good("k", regions=regions(features=torch.tensor([[3.0, 5.0]])))])
    shard = next(tmp_path.glob("shard-*"))
    content = shard.read_bytes()
    mark = torch.tensor([3.0, 5.0]).half().numpy().tobytes()
    assert content.count(mark) == 1
    shard.write_bytes(content.replace(mark, mark[::-1]))
    report = check(Store(tmp_path))
    damaged = next(f for f in report.findings if f.kind == "record damaged")
    assert damaged.severity == "error"
    assert "shard-00000" in damaged.examples[0]


def test_an_empty_set_is_an_error() -> None:
    assert (one(check([])).kind, check([]).ok) == ("no records", False)


def test_only_the_first_examples_are_kept() -> None:
    found = one(check([good("other"), *(good(f"k{n}", captions=()) for n in range(50))]))
    assert (found.count, len(found.examples)) == (50, 5)


def test_json_and_table() -> None:
    report = check([good("k[0]", captions=("",)), good("k[0]")])
    written = json.loads(json.dumps(report.to_json()))
    assert written["ok"] is False
    assert [(f["kind"], f["severity"], f["count"], f["examples"]) for f in written["findings"]] == [
        ("key twice", "error", 1, ["k[0]"]),
        ("caption empty", "warning", 1, ["k[0]"]),
    ]
    text = printed(report, 140)
    for part in ("2 records (train 2)", "captions 100.0%", "key twice", "k[0]", KINDS["key twice"][1], "would fail"):
        assert part in text, part


def test_pictures_without_a_word_are_said_once_in_80_columns() -> None:
    report = check([good(f"{number}.jpg", captions=()) for number in range(30)])
    assert one(report).examples == []
    text = printed(report, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("no text here") == 1
    assert ".jpg" not in text
    assert "captions 0" not in text
    assert text.splitlines()[-1] == "There is nothing to train on."
    assert report.ok, "regions can be extracted of them"


@pytest.mark.parametrize(("size", "turned"), [((30, 20), True), ((20, 20), False)])
def test_boxes_for_another_shape_of_the_image(tmp_path: Path, size: tuple[int, int], turned: bool) -> None:
    """Declared by the file, of the image before it was turned, or of another image: the boxes would be elsewhere."""
    Image.new("RGB", (20, 30)).save(tmp_path / "a.png")
    boxed = Record(
        "a", image=tmp_path / "a.png", size=size, captions=("a",), objects=(Object("cat", (0.0, 0.0, 0.5, 0.5)),)
    )
    found = one(check([boxed]))
    assert (found.kind, found.severity) == ("boxes misplaced", "error")
    assert f"an image of {size[0]} x {size[1]} pixels, but the file has 20 x 30" in found.examples[0]
    assert ("as if it were rotated" in found.examples[0]) is turned
    assert check([replace(boxed, size=(200, 302))]).clean
    assert check([replace(boxed, objects=())]).clean, "no box is read by it"


def test_a_text_with_two_labels_is_named() -> None:
    items = [TaskItem("a/0", "what a day", ("funny",)), TaskItem("a/1", "what a day", ("sad",))]
    told = (Statement("a/0", "it rains", True), Statement("a/1", "it rains", False), Statement("a/2", "it rains", True))
    found = one(check([good("a", more={"classify": tuple(items)}, statements=told)], pictures=False))
    assert (found.kind, found.severity, found.count) == ("text with two labels", "warning", 2)
    assert found.examples == ["a: classify, “what a day” is funny and sad", "a: nlvr, “it rains” is True and False"]
    assert check([good("a", more={"classify": (items[0], items[0])}, statements=told[::2])], pictures=False).clean


def test_a_set_without_a_training_split_is_named() -> None:
    found = {one.kind: one.examples for one in check([good("a", split="Trian")], pictures=False).findings}
    assert found == {"no train split": ["Trian"]}
