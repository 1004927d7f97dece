"""The public forms, and every way in which a file can be wrong; whole files are in test_official_forms.py."""

# ruff: noqa: E501  a table is read by its columns

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diptych.core import Record
from diptych.data.formats import coco, conceptual, flickr8k, flickr30k, jsonl, nlvr, refcoco, vcr, vqa2
from diptych.data.formats import table as formats
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import BAD, Skips, combined
from diptych.runtime.errors import DataError
from tests.support.public_files import (
    CAPTIONS,
    IMAGES,
    INSTANCES,
    METADATA,
    NLVR,
    REFS,
    VCR,
    changed,
    places,
    saved,
    values,
)

QUESTIONS = {"data_subtype": "val2014", "questions": [{"image_id": 7, "question_id": 70, "question": "What?"}]}
ANNOTATIONS = {"annotations": [{"question_id": 70, "answer_type": "other", "answers": [{"answer": "dog"}] * 10}]}


TRAIN = Wanted(split="train")


def source(folder: Path, name: str, value: Any) -> Source:
    return Source(saved(folder, name, value))


def test_coco(tmp_path: Path) -> None:
    captions = coco.read_captions(TRAIN, source(tmp_path, "c.json", CAPTIONS))
    (one,) = combined(captions, coco.read_instances(TRAIN, source(tmp_path, "i.json", INSTANCES)))
    assert (one.key, one.size, one.captions) == ("a", (100, 50), ("A dog.",))
    (thing,) = one.objects
    assert (thing.kind, thing.box, thing.attributes, thing.visible) == ("dog", (0.1, 0.2, 0.3, 0.6), {}, 1.0)


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ("\ufeffa.jpg#0\tA dog .\r\nx#b.jpg#0\tA cat\u2028 .\r\na.jpg#1\t\r\n", ""),
        ("\ufeffimage,caption\r\na.jpg,A dog .\r\n\r\nx#b.jpg,A cat\u2028 .\r\na.jpg,\r\n", ".jpg"),
    ],
)
def test_flickr8k_of_either_form(text: str, suffix: str, tmp_path: Path) -> None:
    """Marks of bytes and of lines' ends, a `#` in a name, a line of Unicode's in a caption, and one without words."""
    skips = Skips()
    dog, cat = flickr8k.read(Wanted(split="val", skips=skips), source(tmp_path, "c.token", text))
    assert (dog.key, dog.captions, dog.split) == (f"a{suffix}", ("A dog .",), "val")
    assert (cat.key, cat.captions) == (f"x#b{suffix}", ("A cat\u2028 .",))
    assert "empty captions: 1" in str(skips)
    assert {record.split for record in formats.read(tmp_path / "c.token", need_pictures=False)} <= {
        "train",
        "val",
        "test",
    }


def test_what_teaches_nothing_is_counted(tmp_path: Path) -> None:
    skips = Skips()
    empty = changed(CAPTIONS, "annotations", 0, "caption", to=" ")
    (one,) = coco.read_captions(Wanted(skips=skips), source(tmp_path, "c.json", empty))
    assert (one.captions, str(skips)) == ((), "empty captions: 1 (the first: c.json: annotations[0])")
    lines = [{"image": "a", "captions": ["", "x", " "]}, {"image": "b", "captions": []},
             {"image": "c", "question": "q", "answers": [""]}, {"image": "d", "question": "q", "answers": ["", "y"]}]  # fmt: skip
    skips = Skips()
    records = jsonl.read(Wanted(skips=skips), source(tmp_path, "o.jsonl", "\n".join(map(json.dumps, lines))))
    assert [record.key for record in records] == ["a", "d"]
    assert records[1].questions[0].answers == ("y",)
    assert skips.counts == {"empty captions": 2, "lines with no captions": 1, "empty answers": 2,
                            "questions with no answers": 1}  # fmt: skip
    assert skips.first["empty captions"] == "o.jsonl line 1: captions[0]"


def test_splits_are_drawn_once_for_a_picture_and_a_seed(tmp_path: Path) -> None:
    lines = [{"image": f"{n}", "captions": ["x"]} for n in range(1000)] + [
        {"image": "own", "captions": ["x"], "split": "val"}
    ]
    file = saved(tmp_path, "o.jsonl", "\n".join(map(json.dumps, lines)))
    splits = {record.key: record.split for record in formats.read(file, need_pictures=False)}
    assert splits["own"] == "val"
    counts = Counter(splits.values())
    assert abs(counts["train"] - 800) < 40
    assert abs(counts["val"] - 100) < 30
    fewer = saved(tmp_path, "f.jsonl", "\n".join(map(json.dumps, lines[500:])))
    assert all(splits[record.key] == record.split for record in formats.read(fewer, need_pictures=False))
    assert splits != {record.key: record.split for record in formats.read(file, need_pictures=False, seed=1)}
    assert {record.split for record in formats.read(fewer, need_pictures=False, split="web")} == {"web", "val"}
    (one,) = formats.read(saved(tmp_path, "mine.json", CAPTIONS), need_pictures=False)
    assert (one.key, one.split) == ("a", formats.drawn_split("a", 0))


def test_a_box_that_reaches_out_is_cut(tmp_path: Path) -> None:
    file = json.loads(json.dumps(INSTANCES))
    file["annotations"][0]["bbox"] = [-10, 10, 300, 20]
    assert coco.read_instances(TRAIN, source(tmp_path, "i.json", file))[0].objects[0].box == (0, 0.2, 1, 0.6)


def test_vqa2_test_set_has_no_answers(tmp_path: Path) -> None:
    (one,) = vqa2.read(Wanted(split="test"), source(tmp_path, "q.json", QUESTIONS))
    assert one.questions[0].answers == ()


def test_vqa2_pictures_have_cocos_names(tmp_path: Path) -> None:
    picture = saved(tmp_path, "COCO_val2014_000000000007.jpg", b"")
    (one,) = vqa2.read(Wanted(tmp_path), source(tmp_path, "q.json", QUESTIONS))
    assert one.image == picture


def test_vcr_with_metadata(tmp_path: Path) -> None:
    saved(tmp_path, "x/a.json", METADATA)
    (one,) = vcr.read(TRAIN, source(tmp_path, "v.jsonl", VCR), Source(tmp_path))
    assert one.key == "x/a"
    assert one.choices[0].question == "Why is [0] and [1] here ?"
    assert [(thing.kind, thing.box) for thing in one.objects] == [
        ("person", (0, 0, 0.5, 1)),
        ("dog", (0.1, 0, 0.9, 0.8)),
    ]


def test_conceptual_refcoco_nlvr_jsonl(tmp_path: Path) -> None:
    (one,) = conceptual.read(Wanted(split="web"), source(tmp_path, "web.tsv", "a dog\thttp://x/a.jpg\r\n\n"))
    for table in ("id\tcaption\turl\n7\ta dog\thttp://x/a.jpg", "a dog\thttp://x/a.jpg\tdog,cat\t/m/1\t0.9"):
        (more,) = conceptual.read(Wanted(split="web"), source(tmp_path, "web.tsv", table))
        assert more.captions == one.captions
    assert (one.key, one.captions, one.image) == ("web/000000", ("a dog",), None)
    (one,) = conceptual.read(TRAIN, source(tmp_path, "c.tsv", "http://x/a.jpg\ta dog\n"))
    assert one.captions == ("a dog",), "Conceptual 12M has the address first"
    (two,) = refcoco.read(TRAIN, source(tmp_path, "r.json", REFS))
    assert (two.expressions[0].text, two.expressions[0].box) == ("the dog", (0, 0, 0.5, 1))
    (three,) = nlvr.read(TRAIN, source(tmp_path, "n.jsonl", NLVR))
    assert three.statements[0].true
    lines = '{"image": "a.jpg", "captions": ["x", "y"], "split": "val"}\n\n{"image": "a.jpg", "question": "q", "answers": ["2", "2", "3"]}'
    (four,) = jsonl.read(TRAIN, source(tmp_path, "o.jsonl", lines))
    assert (four.split, four.captions, four.questions[0].kind) == ("val", ("x", "y"), "number")


def test_several_questions_of_one_line(tmp_path: Path) -> None:
    """An entry of `questions` is read as a line with `question`; a bad one is counted and left out."""
    choices = '{"question": "why", "choices": ["a", "b", "c", "d"], "answer": 1, "question_id": 7}'
    plain = '{"question": "q", "answers": ["2"]}, {"question": "r", "answers": ["x"]}'
    entries = f'[{plain}, {choices}, "s", {{"question": 3}}]'
    line = f'{{"image": "a.jpg", "question": "o", "answers": ["y"], "questions": {entries}}}'
    wanted = Wanted(split="train")
    (one,) = jsonl.read(wanted, source(tmp_path, "o.jsonl", line))
    assert [(asked.text, asked.answers, asked.key) for asked in one.questions] == [
        ("o", ("y",), "a.jpg/0"), ("q", ("2",), "a.jpg/1"), ("r", ("x",), "a.jpg/2"),
    ]  # fmt: skip
    assert [(asked.question, asked.answer, asked.key) for asked in one.choices] == [("why", 1, "7")]
    assert sum(wanted.skips.counts.values()) == 2
    with pytest.raises(DataError, match=r"questions\[0\]"):
        jsonl.read(Wanted(split="train"), source(tmp_path, "o.jsonl", '{"image": "a.jpg", "questions": ["what"]}'))


def test_combined_puts_together_what_belongs_together() -> None:
    both = combined([Record("a", captions=("x",))], [Record("b"), Record("a", captions=("y",), size=(1, 2))])
    assert [one.key for one in both] == ["a", "b"]
    assert (both[0].captions, both[0].size) == (("x", "y"), (1, 2))
    with pytest.raises(DataError, match="splits train and val"):
        combined([Record("a")], [Record("a", split="val")])


def coco_both(folder: Path, text: Any) -> object:
    return coco.read_captions(TRAIN, source(folder, "c.json", text))


def coco_boxes(folder: Path, text: Any) -> object:
    return coco.read_instances(TRAIN, source(folder, "i.json", text))


def vqa_questions(folder: Path, text: Any) -> object:
    return vqa2.read(TRAIN, source(folder, "q.json", text), source(folder, "a.json", ANNOTATIONS))


def vqa_answers(folder: Path, text: Any) -> object:
    return vqa2.read(TRAIN, source(folder, "q.json", QUESTIONS), source(folder, "a.json", text))


def vcr_lines(folder: Path, text: Any) -> object:
    saved(folder, "x/a.json", METADATA)
    return vcr.read(TRAIN, source(folder, "v.jsonl", text), Source(folder))


def vcr_metadata(folder: Path, text: Any) -> object:
    saved(folder, "x/a.json", text)
    return vcr.read(TRAIN, source(folder, "v.jsonl", VCR), Source(folder))


def refs(folder: Path, text: Any) -> object:
    return refcoco.read(TRAIN, source(folder, "r.json", text))


def nlvr_lines(folder: Path, text: Any) -> object:
    return nlvr.read(TRAIN, source(folder, "n.jsonl", text))


def nlvr_pairs(folder: Path, text: Any) -> object:
    return nlvr.read_pairs(TRAIN, source(folder, "n.jsonl", text))


def flickr(folder: Path, text: Any) -> object:
    return flickr30k.read(TRAIN, Source(saved(folder, "1.txt", text).parent), source(folder, "names", "1\n"))


def token(folder: Path, text: str) -> object:
    return flickr8k.read(TRAIN, source(folder, "c.token", text))


def token_lists(folder: Path, names: tuple[str, str]) -> object:
    for part, listed in zip(("train", "dev"), names, strict=True):
        saved(folder, f"Flickr_8k.{part}Images.txt", listed)
    return token(folder, "a.jpg#0\tA dog .")


def table(folder: Path, text: Any) -> object:
    return conceptual.read(TRAIN, source(folder, "t.tsv", text))


def own(folder: Path, text: Any) -> object:
    return jsonl.read(TRAIN, source(folder, "o.jsonl", text))


def own_pictures(folder: Path, text: Any) -> object:
    return jsonl.read(Wanted(folder / "pictures"), source(folder, "o.jsonl", text))


LINE = json.dumps(NLVR)
WRONG: list[tuple[Callable[[Path, Any], object], Any, str]] = [
    (coco_both, "{", r"c.json: found no JSON .*line 1, column 2\), expected JSON; correct its syntax"),
    (coco_both, b"\xff{", r"c.json: found bytes that are not UTF-8 \(at byte 0\).*iconv"),
    (coco_both, b"\xff\xfe{", r"c.json: found bytes that are not UTF-8 \(at byte 2\).*iconv -f utf-16"),
    (coco_both, "[" * 100_000, "nested too deep"),
    (coco_both, '{"images": [], "images": []}', "found the name `images` twice"),
    (coco_both, [], "c.json: found a list, expected an object with `images`"),
    (coco_both, changed(CAPTIONS, "annotations"), "c.json: found an object with `images`, expected one with `annotations`"),
    (coco_both, changed(CAPTIONS, "images", 0, "file_name"), r"c.json: images\[0\]: found .*expected one with `file_name`"),
    (coco_both, changed(CAPTIONS, "images", 0, "width", to=0), r"images\[0\].width: found 0, expected 1 to"),
    (coco_both, changed(CAPTIONS, "annotations", 0, "image_id", to=8), "found the image id 8, expected an id in `images`"),
    (coco_both, changed(CAPTIONS, "annotations", 0, "image_id", to="7"), r"found a text \(7\), expected a whole number"),
    (coco_both, changed(CAPTIONS, "annotations", 0, "caption", to=5), "caption: found a number, expected a text"),
    (coco_both, changed(CAPTIONS, "annotations", 0, "caption", to="\ud800"), "half a surrogate pair"),
    (coco_boxes, changed(INSTANCES, "annotations", 0, "bbox", to=[1, 2, 3]), "bbox: found a list of 3 items, expected 4 items"),
    (coco_boxes, changed(INSTANCES, "annotations", 0, "bbox", to=[1, 2, 0, 3]), r"found the box \[1, 2, 0, 3\], expected one"),
    (coco_boxes, json.dumps(INSTANCES).replace("[10, 10,", "[NaN, 10,"), r"found a number \(nan\), expected a finite"),
    (coco_boxes, json.dumps(INSTANCES).replace("[10, 10,", f"[{10**400}, 10,"), "expected a finite number"),
    (coco_boxes, changed(INSTANCES, "annotations", 0, "category_id", to=3), "found the category 3, expected an id in"),
    (coco_boxes, changed(INSTANCES, "images", 0, "relations", to=[[0, "on", 1]]), "found object 1, expected one of the image's 1"),
    (coco_boxes, changed(INSTANCES, "annotations", 0, "attributes", to=["red"]), "attributes: found a list, expected an object"),
    (vqa_questions, changed(QUESTIONS, "questions", 0, "question_id", to=71), "found question 71, expected one that a.json answers"),
    (vqa_answers, changed(ANNOTATIONS, "annotations", 0, "answer_type", to="open"), "found `open`, expected yes/no, number or"),
    (vqa_answers, changed(ANNOTATIONS, "annotations", 0, "answers", to=[]), "found no answers, expected at least one"),
    (vcr_lines, changed(VCR, "answer_choices", to=[["a"]] * 3), "found a list of 3 items, expected 4 items"),
    (vcr_lines, changed(VCR, "answer_label", to=4), "answer_label: found 4, expected 0, 1, 2 or 3"),
    (vcr_lines, changed(VCR, "question", 2, to=[2]), r"found object 2, expected one of the 2 in `objects`"),
    (vcr_lines, changed(VCR, "question", to=[]), "found no words, expected at least one"),
    (vcr_lines, changed(VCR, "metadata_fn", to="../a.json"), "found the image name '../a.json', expected a path inside"),
    (vcr_lines, changed(VCR, "metadata_fn", to="b" * 5000), "found no image"),
    (vcr_metadata, changed(METADATA, "names", to=["person"]), "found a list of 2 items, expected 1 items"),
    (vcr_metadata, changed(METADATA, "names", to=["person", "cat"]), "found 2 names, expected the `objects` of v.jsonl line 1"),
    (refs, changed(REFS, "refs", 0, "image_id", to=9), "found the image id 9"),
    (nlvr_lines, changed(NLVR, "label", to="maybe"), r"found a text \(maybe\), expected true or false"),
    (nlvr_pairs, changed(NLVR, "identifier", to="x"), "found `x`, expected one such as dev-850-0-1"),
    (flickr, "[/EN#1/people A girl sits .", "1.txt line 1: found a phrase mark that does not end"),
    (flickr, "\n", "found no sentence, expected some"),
    (token, "a.jpg#0 A dog .", "c.token line 1: expected `NAME#NUMBER TAB caption`; correct the line"),
    (token, "a.jpg#0\t ", "c.token: found no caption of any image, expected lines of `NAME#NUMBER TAB caption`"),
    (token, "", "c.token: found no caption of any image"),
    (token, "image,caption\na.jpg,one,two", "c.token line 2: expected `NAME,caption`, in quotes where it has a comma"),
    (token, "image,caption\n\"a.jpg,one", "c.token line 2: expected `NAME,caption`"),
    (token_lists, ("a.jpg", "a.jpg"), "devImages.txt: the list of train has a.jpg too; download both again"),
    (table, "a dog", "t.tsv line 1: found 1 fields, expected `caption TAB url`, none empty"),
    (own, {"image": "a.jpg"}, "found an object with `image`, expected one with `captions`, or with"),
    (own, {"captions": ["x"]}, "expected one with `image`"),
    (own_pictures, {"image": "a.jpg", "captions": ["x"]}, "o.jsonl line 1: found no image .*a.jpg; download it"),
    (own_pictures, {"image": "/etc/passwd", "captions": ["x"]}, "expected a path inside"),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "text", "message"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_wrong_is_named(reader: Callable[[Path, Any], object], text: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        reader(tmp_path, text)


PASSED_OVER: list[tuple[Callable[[Path, Any], object], Any, str]] = [
    (coco_both, changed(CAPTIONS, "images", to=IMAGES * 2), r"images\[1\]: found the image id 7 a second time \(first in"),
    (coco_boxes, changed(INSTANCES, "annotations", to=INSTANCES["annotations"] * 2), "the annotation id 1 a second time"),
    (vqa_questions, changed(QUESTIONS, "questions", to=QUESTIONS["questions"] * 2), "the question id 70 a second time"),
    (vcr_lines, json.dumps(VCR) + "\n" + json.dumps(VCR), "line 2: found the annotation id train-0 a second time"),
    (refs, changed(REFS, "refs", to=REFS["refs"] * 2), "the ref id 1 a second time"),
    (nlvr_lines, LINE + "\n{x\n", r"n.jsonl line 2: found no JSON \("),
    (nlvr_lines, LINE + "\n" + LINE, "line 2: found the identifier dev-1-0-0 a second time"),
    (token, "a.jpg#0\tA dog .\na.png#0\tA cat .", "line 2: found the picture a a second time"),
    (token_lists, ("a.jpg b.jpg", ""), "c.token: found no caption of b.jpg, which is in a split's list"),
    (table, "x\ty\na\tb\tc\td", "t.tsv line 2: found 4 fields"),
    (own, '{"image": "a", "captions": ["x"], "split": "val"}\n{"image": "a", "captions": ["y"], "split": "test"}', "line 2: split: found `test`, expected `val`"),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "text", "message"), PASSED_OVER, ids=lambda value: getattr(value, "__name__", ""))
def test_one_bad_entry_costs_one_entry(
    reader: Callable[[Path, Any], object], text: Any, message: str, tmp_path: Path
) -> None:
    TRAIN.skips.counts.clear()
    TRAIN.skips.places.clear()
    assert reader(tmp_path, text)
    assert TRAIN.skips.counts[BAD] == 1
    assert re.search(message, str(TRAIN.skips))


def test_more_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be read \(No such file or directory\); check the path"):
        coco.read_captions(TRAIN, Source(tmp_path / "none.json"))
    for line, wanted in (
        ('{"image": "a", "captions": []}', "no captions"),
        ('{"image": "a", "question": "q", "answers": []}', "no answers"),
    ):
        with pytest.raises(DataError, match=wanted):
            jsonl.read(TRAIN, source(tmp_path, "o.jsonl", line))


READERS = (coco_both, coco_boxes, vqa_questions, vqa_answers, vcr_lines, vcr_metadata, refs, nlvr_lines, own)
GOOD = (CAPTIONS, INSTANCES, QUESTIONS, ANNOTATIONS, VCR, METADATA, REFS, NLVR, {"image": "a.jpg", "captions": ["x"]})


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nothing_but_a_data_error_ever_comes_out(data: st.DataObject, tmp_path: Path) -> None:
    """Any place of a good file with anything in it is read or refused by name."""
    number = data.draw(st.integers(0, len(READERS) - 1))
    place = data.draw(st.sampled_from(places(GOOD[number])))
    try:
        READERS[number](tmp_path, changed(GOOD[number], *place, to=data.draw(values)))
    except DataError as error:
        assert "expected" in str(error)  # noqa: PT017
