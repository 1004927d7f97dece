"""Rows whose columns disagree or hold unusual values: each is read as it was meant, counted, or refused."""

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.api.dataset import Dataset
from diptych.data.formats.splits import drawn_split
from diptych.runtime.errors import DataError, DiptychError

VQA = {"question": "what is it?", "split": "train"}


@pytest.fixture(autouse=True)
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for number in range(4):
        Image.fromarray(np.full((8, 12, 3), 40 * number, np.uint8)).save(f"{number}.png")
    return [f"{number}.png" for number in range(4)]


def silent(rows: Any, **names: str) -> Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Dataset.from_rows(rows, **names)


def captions(cell: object) -> tuple[str, ...]:
    return silent([{"image": "0.png", "caption": cell, "split": "train"}])[0].captions


def answers(cell: object) -> tuple[str, ...]:
    return silent([{"image": "0.png", "answer": cell, **VQA}])[0].questions[0].answers


def parts_of(**parts: list[dict[str, Any]]) -> Any:
    import datasets  # large, in each worker if at the top

    return datasets.DatasetDict({name: datasets.Dataset.from_list(rows) for name, rows in parts.items()})


def test_the_split_of_a_row_wins_over_the_part_of_the_dict_and_conflicts_are_counted(images: list[str]) -> None:
    own = ("train", "val", "train", "test")
    rows = [{"image": image, "caption": "a", "split": split} for image, split in zip(images, own, strict=True)]
    conflict = r"rows of 'test' with the split 'train' \(.*\): 2 \(the first: row 0 \| row 2\); .*'val' \(.*\): 1 "
    with pytest.warns(UserWarning, match=conflict) as caught:
        data = Dataset.from_rows(parts_of(test=rows))
    assert ([one.record.split for one in data], len(caught), caught[0].filename) == ([*own], 1, __file__)
    named = [{"image": row["image"], "caption": "a", "fold": row["split"]} for row in rows]
    with pytest.warns(UserWarning, match="rows of 'test' with the split 'train'"):
        assert Dataset.from_rows(parts_of(test=named), split="fold").splits == {"train": 2, "val": 1, "test": 1}
    with pytest.raises(DataError, match=r"row 0 has no column 'set' \(split=\)"):
        Dataset.from_rows(parts_of(test=named), split="set")


def test_a_part_gives_its_split_to_rows_that_have_none_or_the_same_by_another_name(images: list[str]) -> None:
    own = (None, " ", "train", "Train")
    rows = [{"image": image, "caption": "a", "split": split} for image, split in zip(images, own, strict=True)]
    assert silent(parts_of(train=rows)).splits == {"train": 4}
    with pytest.warns(UserWarning, match="images of the split 'validation'"):
        data = Dataset.from_rows(parts_of(validation=[{"image": "0.png", "caption": "a", "split": "val"}]))
    assert data.splits == {"val": 1}


def test_questions_of_one_image_in_two_parts_have_different_keys() -> None:
    rows = [{"image": "0.png", "answer": "dog", **VQA}]
    with pytest.warns(UserWarning, match="rows of 'test' with the split 'train'"):
        data = Dataset.from_rows(parts_of(train=rows, test=rows))
    assert len({question.key for question in data[0].questions}) == 2


def test_a_row_with_two_splits_is_refused() -> None:
    with pytest.raises(DataError, match="row 0 has the splits test, train, expected one"):
        Dataset.from_rows([{"image": "0.png", "caption": "a", "split": ["test", "train"]}])


def several(questions: object, answers: object) -> list[tuple[str, tuple[str, ...]]]:
    data = silent([{"image": "0.png", "question": questions, "answers": answers, "split": "train"}])
    return [(one.text, one.answers) for one in data[0].questions]


@pytest.mark.parametrize(
    "given",
    [
        [["yes"], ["no", "red"]],
        np.array([np.array(["yes"], object), np.array(["no", "red"], object)], object),
        [{"answer": ["yes"]}, [{"answer": "no"}, {"answer": "red"}]],
        {"answer": [["yes"], ["no", "red"]]},
        ["yes", ["no", "red"]],
    ],
)
def test_a_list_of_answers_for_each_question_is_paired(given: object) -> None:
    assert several(["is it red?", "is it blue?"], given) == [("is it red?", ("yes",)), ("is it blue?", ("no", "red"))]


def test_an_empty_question_takes_its_answers_with_it() -> None:
    assert several(["", "is it blue?"], [["yes"], ["no"]]) == [("is it blue?", ("no",))]
    with pytest.raises(DataError, match=r"row 0 .* has a question but no answer"):
        several(["is it red?", "is it blue?"], [["yes"], None])


@pytest.mark.parametrize(
    ("questions", "given"),
    [
        (["is it red?", "is it blue?"], ["yes", "no"]),
        (["is it red?", "is it blue?"], np.array(["yes", "no"])),
        (["is it red?", "is it blue?"], [{"answer": "yes"}, {"answer": "no"}]),
        (["is it red?", "is it blue?"], ["yes", None]),
        (["is it red?", "is it blue?"], ["yes", "no", "red"]),
        (["is it red?", "is it blue?"], [["yes", "no"]]),
        (["is it red?", "is it blue?"], [["yes"], ["no"], ["red"]]),
        (["is it red?", None], ["yes", "no"]),
    ],
)
def test_answers_that_may_belong_to_any_of_the_questions_are_refused(questions: object, given: object) -> None:
    with pytest.raises(
        DataError, match=r"row 0 \(0.png\) has .* questions? and .* answers?: .* may have the answers .* or "
    ) as error:
        several(questions, given)
    assert "'is it red?' may have the answers ('yes',) or ('yes'" in str(error.value)
    assert "such as [['yes'], ['no']]; write that, or make one row for each question" in str(error.value)


def test_one_question_with_many_answers_and_many_questions_with_one_answer_are_plain() -> None:
    assert several("what?", ["dog", "cat", None]) == [("what?", ("dog", "cat"))]
    assert several(["what?", None], ["dog", None]) == [("what?", ("dog",))]
    assert several(["what?"], [["dog", "cat"]]) == [("what?", ("dog", "cat"))]
    assert several(["what?", "which?"], "dog") == [("what?", ("dog",)), ("which?", ("dog",))]


@pytest.mark.parametrize("kind", [bytes, np.bytes_, bytearray, memoryview, np.array])
def test_bytes_are_texts_in_utf_8(kind: Any) -> None:
    assert captions(kind("a dög".encode())) == ("a dög",)
    assert captions([kind(b"a dog"), "a cat"]) == ("a dog", "a cat")
    assert answers(kind(b"dog")) == ("dog",)
    assert silent([{"image": "0.png", "caption": "a", "split": kind(b"test")}]).splits == {"test": 1}
    with pytest.raises(DataError, match=r"row 0 has bytes that are not UTF-8 \(at byte 3\), expected a text; decode"):
        captions(kind("a dög".encode("latin1")))


def test_of_two_columns_of_one_meaning_no_text_is_lost_unless_counted() -> None:
    row = {"image": "0.png", "split": "train"}
    both = row | {"caption": ["a", "d"], "captions": ["a", "b"]}
    with pytest.warns(UserWarning, match=r"rows with `caption` and other texts in `captions` \(read: both\): 2"):
        assert Dataset.from_rows([both, both])[0].captions == ("a", "b", "d") * 2
    ten = row | {"question": "what?", "answer": "dog", "answers": ["dog", "cat"] * 5}
    with pytest.warns(UserWarning, match=r"rows with `answer` and other texts in `answers` \(read: `answers`\): 1"):
        assert Dataset.from_rows([ten])[0].questions[0].answers == ("dog", "cat") * 5
    assert silent([both], caption="caption")[0].captions == ("a", "d")
    assert silent([ten], answer="answer")[0].questions[0].answers == ("dog",)
    assert silent([row | {"caption": None, "captions": ["a"]}])[0].captions == ("a",)
    assert silent([row | {"caption": "a", "captions": []}])[0].captions == ("a",)
    assert silent([row | {"caption": "a", "captions": ["a"]}])[0].captions == ("a",)


def test_two_spellings_of_a_path_are_one_image(tmp_path: Path) -> None:
    spelled = ("0.png", "./0.png", f"{tmp_path}/0.png", "cache/../0.png")
    (tmp_path / "cache").mkdir()
    with pytest.warns(UserWarning, match=r"images named in more than one way \(each is one image\): 2 "):
        data = Dataset.from_rows([{"image": one, "caption": one, "split": "train"} for one in spelled])
    assert [(one.record.key, one.captions) for one in data] == [("0.png", spelled)]
    parts = {split: [{"image": one, "caption": "a"}] for one, split in (("0.png", "train"), ("./0.png", "test"))}
    for rows in (parts_of(**parts), [row | {"split": split} for split, (row,) in parts.items()]):
        with pytest.raises(DataError, match="this image has the splits train and test, expected one split"):
            Dataset.from_rows(rows)


def test_a_folder_behind_a_link_is_not_taken_for_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "far" / "deep").mkdir(parents=True)
    (tmp_path / "far" / "0.png").write_bytes(Path("1.png").read_bytes())
    (tmp_path / "link").symlink_to(tmp_path / "far" / "deep")
    rows = [{"image": one, "caption": one, "split": "train"} for one in ("0.png", "link/../0.png")]
    assert [one.record.key for one in silent(rows)] == ["0.png", "link/../0.png"]


def test_numbers_and_arrays_of_no_dimensions_are_read_with_their_own_digits() -> None:
    assert captions(np.array("a dog")) == ("a dog",)
    assert type(captions(np.array("a dog"))[0]) is str
    for cell, text in (
        (np.float32(0.1), "0.1"), (np.float16(0.1), "0.1"), (np.float64(0.1), "0.1"), (np.float32(3), "3"),
        (np.array(0.1, np.float32), "0.1"), (np.array([0.1], np.float32), "0.1"), (torch.tensor(0.1), "0.1"),
        (torch.tensor([7]), "7"), (np.array({"answer": "dog"}, object), "dog"), (0.1, "0.1"),
    ):  # fmt: skip
        assert answers(cell) == (text,)
    with pytest.raises(DataError, match="row 0 has True where a text is expected"):
        answers(np.array(True))


def test_one_image_under_two_names_of_its_split_is_in_one_split(images: list[str]) -> None:
    rows = [{"image": images[0], "caption": text, "split": split} for text, split in (("a", "Train"), ("b", "train"))]
    with pytest.warns(UserWarning, match="images of the split 'Train' \\(read as 'train'\\): 1"):
        (one,) = Dataset.from_rows(rows)
    assert (one.record.split, one.captions) == ("train", ("a", "b"))


def test_a_row_without_a_split_has_that_of_its_image_and_other_draws_are_counted(images: list[str]) -> None:
    splits = ("web", None, float("nan"), "")
    rows = [{"image": image, "caption": "a", "split": split} for image, split in zip(images, splits, strict=True)]
    rows.append({"image": images[0], "caption": "b", "split": None})
    counted = r"images without a split, in data with splits \(a random split is used\): 3 \(the first: 1.png\)"
    with pytest.warns(UserWarning, match=counted):
        data = Dataset.from_rows(rows)
    assert [one.record.split for one in data] == ["web", *(drawn_split(image, 0) for image in images[1:])]
    assert data[0].captions == ("a", "b")
    assert len(silent([{"image": image, "caption": "a"} for image in images])) == 4


@pytest.mark.parametrize("cell", ['["one", "two"]', "['one', 'two']", "['one' 'two']", ["one", "two"]])
def test_a_text_that_holds_a_list_is_its_texts(cell: object) -> None:
    """As tables keep lists in a cell."""
    assert captions(cell) == answers(cell) == ("one", "two")


def test_a_text_in_brackets_that_is_no_list_is_one_text() -> None:
    assert captions("[laughs] and [cries]") == ("[laughs] and [cries]",)
    for text in ("[['yes'], ['no']]", "['yes', 3]"):
        with pytest.warns(UserWarning, match=r"texts that look like lists \(each is one text\): 1 \(.*row 0"):
            (one,) = Dataset.from_rows([{"image": "0.png", "answer": text, **VQA}])
        assert one.questions[0].answers == (text,)


def test_a_cache_that_cannot_hold_the_images_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    rows = [{"image": Image.new("RGB", (12, 8)), "caption": "a", "split": "train"}]
    with pytest.raises(
        DiptychError, match=r"^cannot make /dev/null/diptych/images, .*; set XDG_CACHE_HOME to a folder"
    ):
        Dataset.from_rows(rows)


def test_rows_that_take_long_are_counted(images: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("diptych.runtime.progress.SPARSE_SECONDS", 0.0)
    said: list[str] = []

    class Slow(list[dict[str, str]]):
        def __iter__(self) -> Iterator[dict[str, str]]:
            for row in super().__iter__():
                yield row
                said.append(capsys.readouterr().err)  # before the next row

    assert len(silent(Slow({"image": name, "caption": "a dog", "split": "train"} for name in images))) == 4
    assert re.fullmatch(r"reading 1/4 rows, \d+ s left, until .*\n", said[0])
