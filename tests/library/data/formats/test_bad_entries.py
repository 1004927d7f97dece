"""One damaged entry of a file costs that entry: every format, damaged in several ways, and the limit."""

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from diptych.core import Record
from diptych.data.formats import table as formats
from diptych.data.formats.parsing import BAD, Skips
from diptych.data.store.tokens import SPECIAL, Tokens
from diptych.runtime.errors import DataError

MANY = 6  # entries of each file; the third is damaged
IMAGES = [{"id": 70 + n, "file_name": f"{n}.jpg", "width": 100, "height": 50} for n in range(MANY)]
CAPTIONS = [{"image_id": 70 + n, "id": n, "caption": f"a dog {n}"} for n in range(MANY)]
BOXES = [{"id": n, "image_id": 70 + n, "category_id": 1, "bbox": [10, 10, 20, 20]} for n in range(MANY)]
REFS = [
    {"ref_id": n, "image_id": 70 + n, "bbox": [1, 1, 9, 9], "sentences": [{"sent_id": n, "sent": "the dog"}]}
    for n in range(MANY)
]
TAIL = {"categories": [{"id": 1, "name": "dog"}]}
HEADS = {"captions.txt": ["image,caption"], "f.csv": ["file_name,text"]}  # first lines of tables
ELSEWHERE = {  # formats that have a test of their own below, or are the same reader's
    "conceptual", "flickr8k", "flickr30k", "lines", "mined", "storybook", "web",
}  # fmt: skip
FOUR = [["a"], ["b"], ["c"], ["d"]]
LISTS: dict[str, tuple[dict[str, Any], str]] = {  # a file, and which of its lists is damaged
    "captions": ({"images": IMAGES, "annotations": CAPTIONS}, "annotations"),
    "captions with categories": ({"images": IMAGES, "annotations": CAPTIONS, "categories": []}, "annotations"),
    "images of captions": ({"images": IMAGES, "annotations": CAPTIONS}, "images"),
    "instances": ({"images": IMAGES, "annotations": BOXES} | TAIL, "annotations"),
    "refcoco": ({"images": IMAGES, "refs": REFS}, "refs"),
    "karpathy": (
        {"images": [{"filename": f"{n}.jpg", "split": "val", "sentences": [{"raw": "x"}]} for n in range(MANY)]},
        "images",
    ),
    "vqa": (
        {"data_subtype": "a", "questions": [{"question_id": n, "image_id": n, "question": "q"} for n in range(MANY)]},
        "questions",
    ),
    "gqa": ({str(n): {"imageId": str(n), "question": "q", "answer": "a"} for n in range(MANY)}, ""),
    "question-list": ({"": [{"image": f"{n}.jpg", "question": "q", "answers": []} for n in range(MANY)]}, ""),
    "visual-genome": ({"": [{"id": n, "regions": [{"phrase": "a dog"}]} for n in range(MANY)]}, ""),
    "visual-genome-qa": (
        {"": [{"id": n, "qas": [{"qa_id": n, "question": "q", "answer": "a"}]} for n in range(MANY)]},
        "",
    ),
}
LINES: dict[str, Callable[[int], Any]] = {
    "own": lambda n: {"image": f"{n}.jpg", "captions": ["a dog"]},
    "nlvr": lambda n: {"identifier": f"dev-{n}-0-0", "sentence": "x", "label": "True", "image": f"{n}.jpg"},
    "nlvr2": lambda n: {"identifier": f"dev-{n}-0-0", "sentence": "x", "label": "True"},
    "snli-ve": lambda n: {"Flickr30K_ID": str(n), "gold_label": "neutral", "pairID": str(n), "sentence2": "x"},
    "hateful-memes": lambda n: {"id": n, "img": f"img/{n}.png", "text": "x", "label": n % 2},
    "vl-bert": lambda n: {"image": f"{n}.jpg", "caption": ["a"], "frcnn": "x"},
    "image-folder": lambda n: {"file_name": f"{n}.jpg", "text": "a dog"},
    "vcr": lambda n: {"objects": [], "img_fn": f"{n}.jpg", "annot_id": str(n), "question": ["a"],
                      "answer_choices": FOUR, "answer_label": 0},
}  # fmt: skip


def damaged(entry: Any) -> Iterator[Any]:
    """One entry in several ways that make no sense."""
    yield from (None, 5, [], "x", {}, dict.fromkeys(entry), dict.fromkeys(entry, "half \ud83d a pair"))
    first = next(iter(entry))
    yield {name: value for name, value in entry.items() if name != first}
    yield {name: [[value]] if isinstance(value, str) else value for name, value in entry.items() if name != first}


def read(path: Path, content: str, **options: Any) -> tuple[list[Record], Skips]:
    path.write_text(content)
    skips = Skips(**options)
    return formats.read(path, need_pictures=False, skips=skips), skips


def holds(records: list[Record], skips: Skips) -> None:
    """All entries but one were read, and that one was named."""
    words = [record for record in records if any(record.words().values()) or record.objects]
    assert len(words) == MANY - 1
    assert skips.counts[BAD] == 1
    assert "expected" in skips.first[BAD]


@pytest.mark.parametrize("name", LISTS)
def test_a_damaged_entry_of_a_list_costs_itself(name: str, tmp_path: Path) -> None:
    value, place = LISTS[name]
    for at in (0, 2):
        for bad in damaged(
            list((value if name == "gqa" else value[place]).values() if name == "gqa" else value[place])[at]
        ):
            if name == "gqa":
                file: Any = value | {str(at): bad}
            else:
                entries = [*value[place][:at], bad, *value[place][at + 1 :]]
                file = entries if place == "" else value | {place: entries}
            holds(*read(tmp_path / "f.json", json.dumps(file)))


@pytest.mark.parametrize(("name", "key"), [("captions", "caption"), ("instances", "bbox"), ("karpathy", "sentences")])
def test_a_name_twice_in_one_entry_costs_the_entry(name: str, key: str, tmp_path: Path) -> None:
    before, named, last = json.dumps(LISTS[name][0]).rpartition(f'"{key}": ')
    records, skips = read(tmp_path / "f.json", f"{before}{named}0, {named}{last}")
    holds(records, skips)
    assert f"the name `{key}` twice" in skips.first[BAD]


def test_ids_and_names_that_two_entries_share(tmp_path: Path) -> None:
    """Scores are kept by the id of a question, regions by the key of an image."""
    qas = {"qa_id": 7, "question": "q", "answer": "a"}
    records, skips = read(tmp_path / "f.json", json.dumps([{"id": n, "qas": [qas]} for n in (1, 2)]))
    assert [one.key for record in records for one in record.questions] == ["7"]
    assert "a second time" in skips.first[BAD]
    images = [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "a.png"}, {"id": 3, "file_name": "b.jpg"}]
    records, _ = read(tmp_path / "f.json", json.dumps({"images": images, "annotations": []}))
    assert [record.key for record in records] == ["a.jpg", "a.png", "b"]
    places = [("a.jpg", "x"), ("a.png", "x"), ("a.jpg", "y"), ("b.jpg", "x"), ("c.jpg", "x"), ("c.png", "y")]
    named = [{"filename": name, "filepath": place, "split": "val", "sentences": []} for name, place in places]
    records, _ = read(tmp_path / "f.json", json.dumps({"images": named}))
    assert [record.key for record in records] == ["x/a.jpg", "x/a.png", "y/a", "b", "x/c", "y/c"]
    entry = '{"imageId": "1", "question": "q", "answer": "a"}'
    records, skips = read(tmp_path / "f.json", f'{{"1": {entry}, "2": {entry}, "1": {entry}}}')
    assert [one.key for record in records for one in record.questions] == ["2"]
    assert "the name `1` twice" in skips.first[BAD]


def test_two_sets_with_equal_ids_keep_all_predictions(tmp_path: Path) -> None:
    for name, kept in {"a": ["7", "8"], "b": ["7", "9"]}.items():
        lines = [{"image": f"{name}.jpg", "question": "q", "answers": [key], "question_id": key} for key in kept]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    records, _ = read(tmp_path / "m.json", json.dumps({"sets": [{"lines": "a.jsonl"}, {"lines": "b.jsonl"}]}))
    assert [one.key for record in records for one in record.questions] == ["7", "8", "b.jpg/7", "9"]
    records, _ = read(tmp_path / "m.json", json.dumps({"sets": [{"lines": "a.jsonl"}] * 3}))
    keys = [one.key for record in records for one in record.questions]
    assert keys == ["7", "8", "a.jpg/7", "a.jpg/8", "a.jpg/7+", "a.jpg/8+"]


@pytest.mark.parametrize("name", LINES)
def test_a_damaged_line_costs_itself(name: str, tmp_path: Path) -> None:
    lines = [json.dumps(LINES[name](n)) for n in range(MANY)]
    for at in (0, 2):
        for bad in ('{"image": "cut', "{}}", "\0", *map(json.dumps, damaged(LINES[name](at)))):
            holds(*read(tmp_path / "f.jsonl", "\n".join([*lines[:at], bad, *lines[at + 1 :]])))
    records, skips = read(tmp_path / "f.jsonl", "\r".join(lines))
    assert (len(records), skips.counts) == (MANY, {}), "lines may end as on an old Mac"
    cut_then_whole = "\n".join([*lines[:2], lines[2][:-9], lines[2], *lines[3:]])
    records, skips = read(tmp_path / "f.jsonl", cut_then_whole)
    assert (len(records), skips.counts) == (MANY, {BAD: 1})
    inside = "\n".join([*lines[:2], lines[2][:-9] + lines[3], lines[2], *lines[4:]])
    records, skips = read(tmp_path / "f.jsonl", inside)
    assert (len(records), skips.counts) == (MANY, {BAD: 1})


@pytest.mark.parametrize(
    ("name", "line", "bad"),
    [
        ("f.tsv", "a dog {0}\thttp://x/{0}.jpg", ("a dog", "\thttp://x", "a\tb\tc\td")),
        ("f.token", "{0}.jpg#0\ta dog", ("2.jpg", "#0", "2.jpg#x\ta")),
        ("f.csv", "{0}.jpg,a dog", ("2.jpg", '"2.jpg,a', "2.jpg,a,b", ",a dog")),
        ("captions.txt", "{0}.jpg,a dog", ("2.jpg", '"2.jpg,a', "2.jpg,a,b")),
    ],
)
def test_a_damaged_line_of_a_table_costs_itself(name: str, line: str, bad: tuple[str, ...], tmp_path: Path) -> None:
    for one in bad:
        lines = [one if n == 2 else line.format(n) for n in range(MANY)]
        holds(*read(tmp_path / name, "\n".join([*HEADS.get(name, ()), *lines])))


def test_every_format_is_here() -> None:
    """All but folders of pictures without words, whose images extraction reports."""
    assert set(formats.FORMATS) - {*LISTS, *LINES} - ELSEWHERE == {"pictures"}


PHRASE = "[/EN#1/animals A dog] sits ."
XML = (
    "<a><size><width>100</width><height>50</height></size><object><name>1</name><bndbox><xmin>1</xmin><ymin>1</ymin>"
    "<xmax>{0}</xmax><ymax>9</ymax></bndbox></object></a>"
)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("s/2.txt", None), ("s/2.txt", b""), ("s/2.txt", b"[/EN#1/animals A dog sits ."), ("s/2.txt", b"\xff\xfe"),
        ("b/2.xml", None), ("b/2.xml", b"<a>"), ("b/2.xml", b"<!DOCTYPE a>" + XML.format(9).encode()),
        ("b/2.xml", XML.format("x").encode()), ("b/2.xml", XML.format(0).encode()),
    ],
)  # fmt: skip
def test_a_damaged_file_of_flickr30k_costs_its_image_or_its_phrase(
    file: str, content: bytes | None, tmp_path: Path
) -> None:
    for n in range(MANY):
        for name, text in ((f"s/{n}.txt", PHRASE), (f"b/{n}.xml", XML.format(9))):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
    (tmp_path / file).unlink() if content is None else (tmp_path / file).write_bytes(content)
    (tmp_path / "val.txt").write_text("\n".join(map(str, range(MANY))))
    records, skips = read(tmp_path / "m.json", json.dumps({"flickr30k": ["s", "val.txt", "b"]}))
    assert sum(len(record.expressions) for record in records) == MANY - 1
    assert skips.counts == {BAD: 1}, skips


def test_a_damaged_line_of_a_mined_folder_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "mine.json").write_text("{}")
    for n in range(MANY):
        (tmp_path / f"{n}.jpg").touch()
    for bad in ('{"image": "cut', *map(json.dumps, damaged(LINES["own"](2)))):
        lines = [json.dumps(LINES["own"](n)) for n in range(MANY)]
        (tmp_path / "records" / "0.jsonl").write_text("\n".join([*lines[:2], bad, *lines[3:]]))
        skips = Skips()
        holds(formats.read(tmp_path, need_pictures=False, skips=skips), skips)


def test_a_damaged_entry_of_a_drawn_world_is_counted(tmp_path: Path) -> None:
    from diptych_world.files import write

    write(tmp_path / "world", {"train": MANY}, seed=0, processes=1)
    file = tmp_path / "world" / "coco" / "captions_train.json"
    whole = formats.read(tmp_path / "world")
    values = json.loads(file.read_text())
    for bad in damaged(dict(sorted(values["annotations"][2].items()))):
        notes = [*values["annotations"][:2], bad, *values["annotations"][3:]]
        file.write_text(json.dumps(values | {"annotations": notes}))
        skips = Skips()
        records = formats.read(tmp_path / "world", skips=skips)
        assert skips.counts == {BAD: 1}
        lost = sum(len(one.captions) for one in whole) - sum(len(one.captions) for one in records)
        assert (lost, len(records)) == (1, MANY)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.thorough) for seed in range(20)])
@pytest.mark.parametrize("name", [*LISTS, *LINES])
def test_any_entries_may_be_damaged(name: str, seed: int, tmp_path: Path) -> None:
    """Two entries anywhere, each in any of the eight ways."""
    random = Random(f"{name}{seed}")
    if name in LINES:
        entries = [LINES[name](n) for n in range(MANY)]
    else:
        value, place = LISTS[name]
        entries = list(value.values()) if name == "gqa" else list(value[place])
    for at in random.sample(range(MANY), 2):
        entries[at] = random.choice(list(damaged(entries[at])))
    if name in LINES:
        records, skips = read(tmp_path / "f.jsonl", "\n".join(map(json.dumps, entries)))
    else:
        file = dict(enumerate(entries)) if name == "gqa" else entries if place == "" else value | {place: entries}
        records, skips = read(tmp_path / "f.json", json.dumps(file))
    assert sum(any(record.words().values()) or bool(record.objects) for record in records) == MANY - 2
    assert skips.counts[BAD] == 2


def test_a_damaged_caption_in_a_tar_costs_itself(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "00000.tar", "w") as tar:
        for n in range(MANY):
            for ending, content in (
                ("jpg", b"x"),
                ("png" if n == 0 else "json", b"x"),
                ("txt", b"\xff\xff" if n == 2 else b"\xef\xbb\xbfa dog"),
            ):
                member = tarfile.TarInfo(f"{n}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    skips = Skips()
    records = formats.read(tmp_path, need_pictures=False, skips=skips)
    assert [one.captions for one in records] == [("a dog",)] * (MANY - 1), "without the byte order mark"
    assert skips.counts == {BAD: 1, "several images with the same key (the last one is read)": 1}
    assert skips.first["several images with the same key (the last one is read)"].endswith("0.jpg")


def test_lines_of_a_vocabulary_end_with_line_feeds(tmp_path: Path) -> None:
    """Other letters that end lines may be tokens: cut there, all later ids would be others."""
    words = [*SPECIAL, "\u2028", "\x85", "dog"]
    for end in ("\n", "\r\n"):
        (tmp_path / "vocab.txt").write_bytes((end.join(words) + end).encode())
        assert Tokens.from_vocabulary(tmp_path / "vocab.txt", lowercase=True).encode("dog") == [7]


def test_more_than_ten_and_one_in_a_hundred_are_an_error_unless_allowed(tmp_path: Path) -> None:
    lines = [json.dumps(LINES["own"](n)) for n in range(1200)]
    for bad, total, is_wrong in ((10, 20, False), (11, 1000, True), (11, 1200, False)):
        content = "\n".join(["{"] * bad + lines[bad:total])
        if is_wrong:
            with pytest.raises(
                DataError, match=r"11 of 1,000 entries are invalid.*line 1: .* \| f.jsonl line 2.*--skip-bad"
            ):
                read(tmp_path / "f.jsonl", content)
        records, skips = read(tmp_path / "f.jsonl", content, allowed=is_wrong)
        assert (len(records), skips.counts) == (total - bad, {BAD: bad})
        assert len(skips.places[BAD]) == 3


def test_what_the_official_files_have(tmp_path: Path) -> None:
    """Boxes without extent and crowds of COCO, captions without sizes, an empty answer of ten, names in two folders."""
    boxes = [BOXES[0] | {"bbox": [1, 2, 3, 0]}, BOXES[1] | {"iscrowd": 1, "segmentation": {}}, *BOXES[2:]]
    instances = {"images": IMAGES, "annotations": boxes} | TAIL
    records, skips = read(tmp_path / "instances.json", json.dumps(instances))
    assert [len(record.objects) for record in records] == [0, 0, 1, 1, 1, 1]
    assert skips.counts == {"crowds": 1, BAD: 1}
    manifest = {"instances": "instances.json", "crowds": True}
    assert sum(len(one.objects) for one in read(tmp_path / "m.json", json.dumps(manifest))[0]) == MANY - 1
    crowd = {"images": IMAGES, "refs": [REFS[0] | {"iscrowd": 1}, *REFS[1:]]}
    records, skips = read(tmp_path / "r.json", json.dumps(crowd))
    assert (sum(len(one.expressions) for one in records), skips.counts) == (MANY - 1, {"crowds": 1})
    bare = [{"id": one["id"], "file_name": one["file_name"], "width": None} for one in IMAGES]
    records, skips = read(tmp_path / "c.json", json.dumps({"images": bare, "annotations": CAPTIONS}))
    assert ([one.size for one in records], skips.counts) == ([None] * MANY, {})
    assert [one.image_id for one in records] == [one["id"] for one in IMAGES], "kept, as the names are other numbers"
    named = [{"id": 7, "file_name": "COCO_val2014_000000000007.jpg"}, {"id": 8, "file_name": "8.jpg"}]
    assert [one.image_id for one in read(tmp_path / "c.json", json.dumps({"images": named, "annotations": []}))[0]] == [
        None,
        None,
    ]
    answers = [{"question_id": n, "answers": [{"answer": "" if n == at == 2 else "dog"} for at in range(10)]}
               for n in range(MANY)]  # fmt: skip
    (tmp_path / "q.json").write_text(json.dumps(LISTS["vqa"][0]))
    (tmp_path / "a.json").write_text(json.dumps({"annotations": answers}))
    records, skips = read(tmp_path / "m.json", json.dumps({"vqa": ["q.json", "a.json"]}))
    assert [len(record.questions[0].answers) for record in records] == [10, 10, 9, 10, 10, 10]
    assert skips.counts == {"empty answers": 1}
    twice = [{"filename": "1.jpg", "filepath": folder, "split": "val", "cocoid": 5, "sentences": [{"raw": folder}]}
             for folder in ("train", "val")]  # fmt: skip
    records, skips = read(tmp_path / "k.json", json.dumps({"images": twice}))
    assert [(one.key, one.captions, one.image_id) for one in records] == [
        ("train/1", ("train",), 5),
        ("val/1", ("val",), 5),
    ]
    line = LINES["own"](0) | {"question": "q", "answers": ["a"], "question_id": 12, "image_id": 34}
    (record,) = read(tmp_path / "o.jsonl", json.dumps(line))[0]
    assert (record.image_id, record.questions[0].key) == (34, "12")


@pytest.mark.parametrize(
    ("file", "more", "told"),
    [
        ("metadata.jsonl", {"file_name": "2.jpg", "text": "half \ud83d"}, BAD),
        ("metadata.jsonl", {"file_name": " \u2003", "text": "a dog"}, BAD),
        ("f.jsonl", {"image": "2.jpg", "captions": ["a"], "caption_ids": ["\ud83d"]}, "caption ids that are neither "),
        ("f.jsonl", {"image": "2.jpg", "question": "q", "answers": ["a"], "question_id": "\ud83d"}, BAD),
    ],
)
def test_half_a_surrogate_and_names_of_spaces_reach_no_record(
    file: str, more: dict[str, Any], told: str, tmp_path: Path
) -> None:
    whole = {"image": "1.jpg", "captions": ["a"]} if file == "f.jsonl" else {"file_name": "1.jpg", "text": "a"}
    records, skips = read(tmp_path / file, "\n".join(map(json.dumps, (whole, more))))
    assert any(told in what for what in skips.counts), skips
    assert "\ud83d" not in repr(records).encode("utf-8").decode()


ASKED = {"question": "q", "answers": ["a"], "question_id": 7}
CHOSEN = {"question": "why", "choices": ["a", "b", "c", "d"], "answer": 0, "question_id": 7}


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (ASKED, ASKED | {"question_id": "7"}, "found the question id 7 a second time (first in f.jsonl line 1)"),
        (CHOSEN, CHOSEN, "found the question id 7 a second time"),
        (
            {"captions": ["x"], "image_id": 5},
            {"captions": ["y"], "image_id": 6},
            "image_id: found 6, expected 5, the id",
        ),
    ],
)
def test_an_id_of_a_line_of_before_costs_the_line(
    first: dict[str, Any], second: dict[str, Any], told: str, tmp_path: Path
) -> None:
    """One result would count for both questions; an image's second id replaced its first."""
    lines = [{"image": "1.jpg"} | one for one in (first, second, {"captions": ["z"]}, CHOSEN | {"question_id": 8})]
    records, skips = read(tmp_path / "f.jsonl", "\n".join(map(json.dumps, lines)))
    assert (len(records), skips.counts) == (1, {BAD: 1})
    assert told in skips.first[BAD]
    both = [{"image": "1.jpg"} | one for one in (ASKED, CHOSEN)]
    assert read(tmp_path / "f.jsonl", "\n".join(map(json.dumps, both)))[1].counts == {}, "two tasks"


def test_an_unknown_label_of_entailment_costs_its_item(tmp_path: Path) -> None:
    """It was neither trained on nor scored, and nothing said so."""
    items = [{"text": "x", "answers": [label]} for label in ("Entailment", " neutral", "entails")]
    records, skips = read(tmp_path / "f.jsonl", json.dumps({"image": "1.jpg", "more": {"entailment": items}}))
    assert [one.answers[0] for one in records[0].more["entailment"]] == ["Entailment", " neutral"]
    assert skips.counts == {BAD: 1}
    assert "found `entails`, expected one of entailment, neutral, contradiction" in skips.first[BAD]


def test_relations_of_an_image_with_a_thing_left_out_are_left_out_too(tmp_path: Path) -> None:
    """Their indices would be of other things."""
    images = [IMAGES[0] | {"relations": [[0, "on", 1]]}, IMAGES[1] | {"relations": [[0, "on", 0]]}]
    first = [BOXES[0] | {"id": n, "bbox": [1, 2, 3, 4 * (n > 0)]} for n in (0, 11, 12)]
    file = {"images": images, "annotations": [*first, BOXES[1]]} | TAIL
    records, skips = read(tmp_path / "i.json", json.dumps(file))
    assert [(len(one.objects), len(one.relations)) for one in records] == [(2, 0), (1, 1)]
    assert skips.counts == {BAD: 1, "relations of images with objects that were left out": 1}
