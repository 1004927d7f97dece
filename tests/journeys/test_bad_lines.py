"""Everything that can be wrong with a user's own data: a message with the way out, the right exit code, nothing written.

Each case changes one thing in a folder that is right and runs one command there.
"""

# ruff: noqa: E501  a table is read by its columns

from __future__ import annotations

import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.journeys.conftest import Result
from tests.support.given_features import given

SEEN = "extract mine.jsonl --out out --detector demo"
GIVEN = "extract mine.jsonl --out out --detector given --features features"
COCO = "extract mine.json --out out --detector demo"
TUNED = "finetune caption --data mine.jsonl --model demo --out out"
ANSWERED = "finetune vqa --data mine.jsonl --model demo --out out"
AGAIN = "finetune vqa --data mine.jsonl --model out --out"
GOOD = [{"image": f"{n}.png", "captions": ["a dog"], "split": "train"} for n in range(3)]
IMAGES = [{"id": 0, "file_name": "0.png", "width": 64, "height": 64}]


def lines(*content: Any, encoding: str = "utf-8") -> Callable[[], None]:
    """mine.jsonl, from objects or from lines as they are."""
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in content)
    return lambda: Path("mine.jsonl").write_text(text, encoding) and None


def line(**changes: Any) -> Callable[[], None]:
    """The second of three lines changed."""
    return lines(GOOD[0], {**GOOD[1], **changes}, GOOD[2])


def coco(**changes: Any) -> Callable[[], None]:
    file = {"images": IMAGES, "annotations": [{"id": 0, "image_id": 0, "caption": "a dog"}]} | changes
    return lambda: Path("mine.json").write_text(json.dumps(file)) and None


def npz(**changes: Any) -> Callable[[], None]:
    """The features of one picture are wrong."""
    return lambda: given(Path("features/1.npz"), **changes)


def every_npz(**changes: Any) -> Callable[[], None]:
    def write() -> None:
        for number in range(3):
            given(Path(f"features/{number}.npz"), **changes)

    return write


def file(name: str, content: bytes) -> Callable[[], None]:
    return lambda: Path(name).write_bytes(content) and None


def cut(name: str, share: float = 0.5) -> Callable[[], None]:
    def write() -> None:
        content = Path(name).read_bytes()
        Path(name).write_bytes(content[: int(len(content) * share)])

    return write


def pickled_member() -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (Path("exploded"),)

    given(Path("features/1.npz"), scores=None)
    with zipfile.ZipFile("features/1.npz", "a") as archive:
        archive.writestr("scores.npy", pickle.dumps(Bomb()))


def huge_header() -> None:
    """A few bytes that say they are 40 TB."""
    with zipfile.ZipFile("features/1.npz", "w") as archive:
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (10000000, 1000000), }".ljust(117) + b"\n"
        archive.writestr("features.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


def store_of_others() -> None:
    """A store whose features have another size than the model was trained on."""
    from diptych.data.formats.table import read
    from diptych.data.store.store import StoreWriter
    from diptych.vision.detectors.given import GivenRegions

    records = read(Path("mine.jsonl"))
    detector = GivenRegions.of(Path("features"), records)
    with StoreWriter(Path("given"), detector.contract) as store:
        for record, regions in zip(records, detector.detect([], records), strict=True):
            store.add(type(record)(record.key, captions=record.captions, regions=regions))


def nothing() -> None:
    pass


NAN, INF = float("nan"), float("inf")
BOXES = np.array([[0, 0, 80, 80]] * 5, np.float64)

# what is wrong, the command, exit code, what the message holds
CASES: list[tuple[str, Callable[[], None], str, int, str]] = [
    # lines
    ("two objects in a line", lines('{"a": 1}{"b": 2}'), SEEN, 1, "line 1: found no JSON (Extra data"),
    ("null", lines("null"), SEEN, 1, "found null, expected an object"),
    ("nested too deep", lines("[" * 100_000), SEEN, 1, "nested too deep"),
    ("a name twice", lines('{"image": "0.png", "image": "1.png"}'), SEEN, 1, "line 1: found the name `image` twice"),
    ("empty file", lines(), TUNED, 1, "mine.jsonl: found nothing to train on (no lines)"),
    ("objects alone", lines({"image": "0.png", "objects": [{"kind": "dog", "box": [1, 1, 9, 9]}]}), TUNED, 1, "(no texts)"),
    ("blank lines alone", lines("", "  ", ""), SEEN, 1, "found nothing to train on"),
    ("not UTF-8", lines('{"image": "é.png"}', '{"image": "à.png"}', encoding="latin1"), SEEN, 1, "not UTF-8 (at character"),
    ("UTF-16 cut short", file("mine.jsonl", json.dumps(GOOD[0]).encode("utf-16")[:-1]), SEEN, 1, "iconv"),
    ("zero bytes", file("mine.jsonl", b"\0" * 100), SEEN, 1, "line 1: found no JSON"),
    ("a picture posing as lines", lambda: shutil.copy("0.png", "mine.jsonl") and None, SEEN, 1, "not UTF-8"),
    ("no image", lines({"captions": ["a dog"]}), SEEN, 1, "expected one with `image`"),
    ("nothing said", lines({"image": "0.png"}), SEEN, 1, "line 1: found an object with `image`, expected one with `captions`"),
    ("question without answers", lines({"image": "0.png", "question": "what?"}), ANSWERED, 1, "expected one with `answers`"),
    ("answers no list", lines({"image": "0.png", "question": "what?", "answers": "dog"}), ANSWERED, 1, "answers: found a text"),
    ("question empty", lines({"image": "0.png", "question": " ", "answers": ["dog"]}), ANSWERED, 1, "question: found an empty text"),
    ("all captions empty", lines(*({**one, "captions": [""]} for one in GOOD)), TUNED, 1, "empty captions: 3 (the first: mine.jsonl line 1"),
    ("all answers empty", lines({"image": "0.png", "question": "what?", "answers": [""]}), ANSWERED, 1, "questions with no answers: 1"),
    ("questions for captions", lines({"image": "0.png", "question": "what?", "answers": ["dog"], "split": "train"}), TUNED, 1, "caption needs captions, but split 'train' of mine.jsonl has none"),
    ("captions for questions", lines(*GOOD), ANSWERED, 1, "vqa needs questions with answers, but split 'train' of mine.jsonl has none"),
    ("nothing to train on", lines(*({**one, "split": "test"} for one in GOOD)), TUNED, 1, "no records in split 'train'; it has test (3)"),
    # pictures
    ("no picture can be read", lambda: [Path(f"{n}.png").write_bytes(b"x") for n in range(3)] and None, SEEN, 1, "no record was extracted"),
    ("pictures of 2 pixels", lambda: [Image.new("RGB", (2, 2)).save(f"{n}.png") for n in range(3)] and None, SEEN, 1, "expected 4 or more per side"),
    # COCO
    ("COCO cut short", cut("mine.json"), COCO, 1, "mine.json: found no JSON"),
    ("COCO absurd width", coco(images=[{**IMAGES[0], "width": 10**9}]), COCO, 1, "images[0].width: found 1000000000, expected 1 to"),
    ("COCO no width", coco(images=[{**IMAGES[0], "width": 0}]), COCO, 1, "images[0].width: found 0"),
    ("COCO width a text", coco(images=[{**IMAGES[0], "width": "64"}]), COCO, 1, "expected a whole number"),
    ("COCO unknown id", coco(annotations=[{"id": 0, "image_id": 9, "caption": "x"}]), COCO, 1, "the image id 9"),
    ("COCO missing picture", coco(images=[{**IMAGES[0], "file_name": "no.png"}]), COCO, 1, "images[0]: found no image no.png"),
    # features
    ("no features for any", lambda: shutil.rmtree("features"), GIVEN, 1, "found nothing at features, expected features: npz"),
    ("given without a folder", nothing, "extract mine.jsonl --out out --detector given", 2, "--features PATH"),
    ("a folder without given", nothing, f"{SEEN} --features features", 2, "belong together"),
    ("features of text", every_npz(features=np.array([["a"]])), GIVEN, 1, "`features` of type <U1, expected numbers"),
    ("class names too few", file("features/classes.txt", b"dog\nbird\n"), GIVEN, 1, "found 2 names, expected one for each of the 3"),
    ("names not UTF-8", file("features/classes.txt", b"\xff\xff"), GIVEN, 1, "not UTF-8"),
    # models
    ("features of another size", store_of_others, "finetune caption --data given --model demo --out out", 1, "feature_size: 16, not 12"),
    ("and the command that mends it", store_of_others, "finetune caption --data given --model demo --out out", 1, "extract them again: diptych extract DATA --out OUT --detector"),
    ("no store, no detector", nothing, "pretrain unified-vlp/small/pretrain --data mine.jsonl --out out", 2, "--model or --detector"),
    ("no data", nothing, "finetune caption --data no.jsonl --model demo --out out", 1, "nothing at no.jsonl; expected a store"),
    ("unknown form", file("mine.csv", b"a,b"), "finetune caption --data mine.csv --model demo --out out", 1, "mine.csv, with `a`, `b`, is not data that Diptych reads"),
    ("split to score", nothing, "evaluate --model demo --data mine.jsonl --split tset", 1, "no records in split 'tset'; it has train (3)"),
    ("seed no number", nothing, f"{TUNED} --seed many", 2, "--seed"),
    ("no picture given", nothing, "caption --model demo", 2, "IMAGE"),
    ("no beams", nothing, "caption 0.png --model demo --beams 0", 2, "--beams"),
    ("a beam wider than the vocabulary", nothing, "caption 0.png --model demo --top-k 99999", 2, "diptych: --top-k 99999 is more than the"),
    ("drawn and searched", nothing, "caption 0.png --model demo --top-k 5 --beams 3", 2, "set --beams 1, and --num-captions N"),
    ("misspelt set", nothing, "data cocoo none", 2, "no public set 'cocoo'; did you mean coco"),
    ("empty folder", lambda: Path("none").mkdir(), "caption none --model demo", 1, "no images in none"),
    ("empty question", nothing, "ask 0.png EMPTY --model demo", 1, "was not trained for vqa"),
    ("a file where the run should be", file("out", b""), TUNED, 2, "out exists and is not a folder; choose a new or empty folder"),
    ("a file where the store should be", file("out", b""), SEEN, 2, "out exists and is not a folder; choose a new or empty folder"),
    ("a file where pictures should be shown", file("shown", b""), "caption 0.png --model demo --show shown", 2, "shown exists and is not a folder; choose a new or empty folder"),
    ("file in a missing folder", nothing, "caption 0.png --model demo --out no/captions.txt", 1, "cannot write no/captions.txt"),
]  # fmt: skip


@pytest.fixture
def folder(with_detector: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("demo").symlink_to(with_detector)
    lines(*GOOD)()
    coco()()
    Path("features").mkdir()
    for number in range(3):
        Image.new("RGB", (64, 64), ("red", "green", "blue")[number]).save(f"{number}.png")
        given(Path(f"features/{number}.npz"), seed=number)
    return tmp_path


def clean(result: Result, folder: Path) -> None:
    assert "Traceback" not in result.error
    assert "fault of Diptych" not in result.error
    assert not list(folder.rglob("*partial*"))
    assert not (folder / "exploded").exists()


@pytest.mark.parametrize(("wrong", "command", "code", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_it_is_named_and_nothing_is_written(
    wrong: Callable[[], None], command: str, code: int, wanted: str, folder: Path, run: Callable[..., Result]
) -> None:
    wrong()
    result = run(*(word.replace("EMPTY", " ") for word in command.split()))
    assert (result.code, wanted in " ".join(result.error.split())) == (code, True), result.error
    clean(result, folder)
    assert not (folder / "out" / "model").exists()
    assert not (folder / "out" / "store.json").exists()


# one picture of three is wrong: it is left out by name, the others are kept
LEFT_OUT: list[tuple[str, Callable[[], None], str, str]] = [
    ("picture cut short", cut("1.png"), SEEN, "1.png: cannot read the image"),
    ("no picture", file("1.png", b"hello"), SEEN, "1.png does not hold an image"),
    ("empty picture", file("1.png", b""), SEEN, "1.png does not hold an image"),
    ("no npz", lambda: Path("features/1.npz").unlink(), GIVEN, "found no features of '1.png' in features"),
    ("npz cut short", cut("features/1.npz"), GIVEN, "features/1.npz: not a readable npz file"),
    ("npz empty", file("features/1.npz", b""), GIVEN, "not a readable npz file"),
    ("no zip", file("features/1.npz", b"hello" * 100), GIVEN, "not a readable npz file"),
    ("pickled objects", npz(features=np.array([[{"a": 1}]], dtype=object)), GIVEN, "which is a pickle that could run code"),
    ("a pickle as a member", pickled_member, GIVEN, "1.npz"),
    ("says 40 TB", huge_header, GIVEN, "10000000, 1000000"),
    ("no boxes", npz(boxes=None), GIVEN, "expected also boxes"),
    ("no classes, others have", npz(classes=None), GIVEN, "found no `classes`"),
    ("another feature size", npz(features=np.ones((5, 7))), GIVEN, "found `features` of shape (5, 7), expected (5, 12)"),
    ("one axis", npz(features=np.ones(12)), GIVEN, "found `features` of shape (12,), expected 2 axes"),
    ("three axes", npz(boxes=BOXES[None]), GIVEN, "expected 2 axes"),
    ("boxes of another number", npz(boxes=BOXES[:3]), GIVEN, "found `boxes` of shape (3, 4), expected (5, 4)"),
    ("boxes of three", npz(boxes=BOXES[:, :3]), GIVEN, "found `boxes` of shape (5, 3)"),
    ("no regions", npz(features=np.ones((0, 12)), boxes=BOXES[:0], classes=None, scores=None), GIVEN, "found 0 regions"),
    ("NaN box", npz(boxes=BOXES * NAN), GIVEN, "`boxes` with numbers that are not finite"),
    ("infinite feature", npz(features=np.full((5, 12), INF)), GIVEN, "`features` with numbers that are not finite"),
    ("feature beyond half precision", npz(features=np.full((5, 12), 1e6)), GIVEN, "`features` up to 1e+06, expected at most 65504"),
    ("box upside down", npz(boxes=BOXES[:, ::-1]), GIVEN, "found the box [80.0, 80.0, 0.0, 0.0]"),
    ("box outside", npz(boxes=BOXES + 500), GIVEN, "x1 y1 x2 y2 inside the image of 160 x 160 pixels"),
    ("scores beyond 1", npz(scores=np.arange(5)), GIVEN, "`scores` from 0 to 4, expected 0 to 1"),
    ("width of nothing", npz(width=0), GIVEN, "`width` 0"),
    ("absurd width", npz(width=10**12), GIVEN, "`width` 1000000000000"),
    ("width a list", npz(width=[1, 2]), GIVEN, "`width` [1, 2]"),
    ("complex features", npz(features=np.ones((5, 12), complex)), GIVEN, "expected numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "command", "wanted"), [c[1:] for c in LEFT_OUT], ids=[c[0] for c in LEFT_OUT])
def test_one_that_is_wrong_is_left_out_by_name(
    wrong: Callable[[], None], command: str, wanted: str, folder: Path, run: Callable[..., Result]
) -> None:
    wrong()
    result = run(*command.split())
    assert (result.code, result.out) == (0, "2 extracted, 1 failed; out\n"), result.error
    assert wanted in result.error, result.error
    failed = [json.loads(one) for one in (folder / "out" / "failures.jsonl").read_text().splitlines()]
    assert [one["key"] for one in failed] == ["1.png"]
    clean(result, folder)


# one entry is invalid: it is skipped and named, and N images are extracted
PASSED_OVER: list[tuple[str, Callable[[], None], str, int, str]] = [
    ("no JSON", lines(GOOD[0], "{image: 1}"), SEEN, 1, "mine.jsonl line 2: found no JSON"),
    ("half a line", lines(GOOD[0], '{"image": "1.png", "capt'), SEEN, 1, "mine.jsonl line 2: found no JSON"),
    ("not an object", lines(GOOD[0], "[1, 2]"), SEEN, 1, "line 2: found a list, expected an object with `image`"),
    ("captions misspelt", line(captions=None, caption=["x"]), SEEN, 2, "line 2: captions: found null, expected a list"),
    ("captions no list", line(captions="a dog"), SEEN, 2, "line 2: captions: found a text, expected a list"),
    ("a caption no text", line(captions=["a dog", 5]), SEEN, 3, "line 2: captions[1]: found a number, expected a text"),
    ("captions in captions", line(captions=[["a dog"]]), SEEN, 2, "line 2: captions[0]: found a list, expected a text"),
    ("half a surrogate", line(captions=["\ud800"]), SEEN, 2, "half a surrogate pair"),
    ("image no text", line(image=7), SEEN, 2, "line 2: image: found a number, expected a text"),
    ("image empty", line(image=" "), SEEN, 2, "line 2: image: found an empty text"),
    ("split no text", line(split=1), SEEN, 2, "line 2: split: found a number"),
    ("two splits", lines(GOOD[0], {**GOOD[0], "split": "val"}), SEEN, 1, "line 2: split: found `val`, expected `train`"),
    ("missing picture", line(image="no.png"), SEEN, 2, "mine.jsonl line 2: found no image no.png"),
    ("picture elsewhere", line(image="../0.png"), SEEN, 2, "line 2: found the image name '../0.png', expected a path inside"),
    ("absolute name", line(image="/etc/passwd"), SEEN, 2, "line 2: found the image name '/etc/passwd'"),
    ("a folder as picture", line(image="features"), SEEN, 2, "line 2: found no image features"),
    ("a name of 5,000 letters", line(image="a" * 5000), SEEN, 2, "line 2: found no image"),
    ("a name with a zero byte", line(image="0\0.png"), SEEN, 2, "line 2: found the image name"),
    ("COCO id twice", coco(images=IMAGES * 2), COCO, 1, "found the image id 0 a second time"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "command", "count", "wanted"), [c[1:] for c in PASSED_OVER], ids=[c[0] for c in PASSED_OVER]
)
def test_an_entry_that_makes_no_sense_costs_itself(
    wrong: Callable[[], None], command: str, count: int, wanted: str, folder: Path, run: Callable[..., Result]
) -> None:
    wrong()
    result = run(*command.split())
    assert (result.code, result.out) == (0, f"{count} extracted; out\n"), result.error
    assert "invalid entries: 1 (the first: " in " ".join(result.error.split())
    assert wanted in " ".join(result.error.split()), result.error
    clean(result, folder)


def test_many_that_make_no_sense_are_an_error_unless_they_may_be_skipped(
    folder: Path, run: Callable[..., Result]
) -> None:
    lines(*["{"] * 11, *GOOD)()
    result = run(*SEEN.split())
    assert (result.code, "11 of 14 entries are invalid" in result.error) == (1, True), result.error
    assert run(*SEEN.split(), "--skip-bad").out == "3 extracted; out\n"
    scoring = ["evaluate", "--model", "demo", "--data", "mine.jsonl", "--split", "tset"]
    assert "11 of 14 entries are invalid" in run(*scoring).error
    result = run(*scoring, "--skip-bad")
    assert "invalid entries: 11" in " ".join(result.error.split())
    assert "no records in split 'tset'; it has train (3)" in " ".join(result.error.split())


def test_a_byte_order_mark_and_windows_lines_are_read(folder: Path, run: Callable[..., Result]) -> None:
    text = "\r\n".join(map(json.dumps, GOOD))
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le"):
        shutil.rmtree("out", ignore_errors=True)
        (folder / "mine.jsonl").write_bytes(text.encode(encoding))
        assert run(*SEEN.split()).out == "3 extracted; out\n"


def test_what_teaches_nothing_is_counted(folder: Path, run: Callable[..., Result]) -> None:
    """Empty captions by the reader, answers that the model cannot give by the run."""
    asked = [{"image": f"{n}.png", "question": "what?", "answers": ["dog"], "split": "train"} for n in range(3)]
    one_step = ["--set", "training.steps=1", "--set", "data.max_words=16"]
    lines(*asked, {**GOOD[0], "captions": ["", "a dog"]})()
    result = run(*ANSWERED.split(), *one_step)
    assert (result.code, "empty captions: 1 (the first: mine.jsonl line 4" in result.error) == (0, True), result.error
    lines(asked[0], {**asked[1], "answers": ["cat"]}, {**asked[2], "answers": ["cow"]})()
    result = run(*AGAIN.split(), "again", *one_step)
    assert (result.code, "2 of 3 questions" in result.error) == (0, True), result.error
    lines(*({**one, "answers": ["cat"]} for one in asked))()
    result = run(*AGAIN.split(), "third", *one_step)
    assert (result.code, "nothing to train on" in result.error) == (1, True), result.error
    clean(result, folder)
