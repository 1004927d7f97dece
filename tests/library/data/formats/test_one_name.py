"""One file has one name in every reader, and its split does not depend on how its path is written."""

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from diptych.api.dataset import Dataset
from diptych.core import Record
from diptych.data.formats.coco import LEFT
from diptych.data.formats.names import OTHERWISE
from diptych.data.formats.parsing import BAD, Skips
from diptych.data.formats.splits import drawn_split
from diptych.data.formats.table import read
from diptych.runtime.errors import DataError

CAFE = "p/café.png"
FORMS = {  # {kind: another form of p/a.png or p/café.png}
    "dot": "./p/a.png",
    "dot within": "p/./a.png",
    "two slashes": "p//a.png",
    "up and down": "p/../p/a.png",
    "backslash": "p\\a.png",
    "NFD": normalize("NFD", CAFE),
    "link": "p/link.png",
    "link to the folder": "q/a.png",
    "hard link": "p/hard.png",
}


def texts(form: Callable[[str, int], Any]) -> Callable[[list[str]], str]:
    return lambda names: "\n".join(json.dumps(form(name, number)) for number, name in enumerate(names))


def _coco(names: list[str]) -> str:
    images = [{"id": number, "file_name": name, "width": 8, "height": 8} for number, name in enumerate(names)]
    notes = [{"id": number, "image_id": number, "caption": f"a dog {number}"} for number in range(len(names))]
    return json.dumps({"images": images, "annotations": notes})


def _karpathy(names: list[str]) -> str:
    parts = [(name.rpartition("/"), number) for number, name in enumerate(names)]
    images = [
        {"filepath": folder, "filename": file, "split": "train", "sentences": [{"raw": f"a dog {number}"}]}
        for (folder, _, file), number in parts
    ]
    return json.dumps({"images": images})


def _table(between: str) -> Callable[[list[str]], str]:
    rows = (("image", "caption"),)
    return lambda names: "\n".join(between.join(row) for row in (*rows, *((name, "a dog") for name in names)))


FILES: dict[str, Callable[[list[str]], str]] = {
    "lines.jsonl": texts(lambda name, n: {"image": name, "captions": [f"a dog {n}"]}),
    "table.csv": _table(","),
    "table.tsv": _table("\t"),
    "c.token": lambda names: "\n".join(f"{name}#{number}\ta dog" for number, name in enumerate(names)),
    "metadata.jsonl": texts(lambda name, n: {"file_name": name, "text": f"a dog {n}"}),
    "metadata.csv": lambda names: "\n".join(["file_name,text", *(f"{name},a dog {n}" for n, name in enumerate(names))]),
    "memes.jsonl": texts(lambda name, n: {"id": n, "img": name, "text": "a dog", "label": 1}),
    "nlvr.jsonl": texts(lambda name, n: {"identifier": f"i-{n}", "sentence": "a", "label": "True", "image": name}),
    "vcr.jsonl": texts(
        lambda name, n: {
            "annot_id": f"train-{n}", "img_fn": name, "objects": [], "question": ["why"],
            "answer_choices": [["a"], ["b"], ["c"], ["d"]], "answer_label": 0,
        }
    ),
    "captions.json": _coco,
    "dataset_flickr8k.json": _karpathy,
}  # fmt: skip
ONCE = {"captions.json": (BAD, LEFT), "dataset_flickr8k.json": (BAD,)}  # these refuse an image's second entry


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p").mkdir()
    for shade, name in enumerate(("p/a.png", CAFE)):
        Image.fromarray(np.full((8, 8, 3), 90 * shade, np.uint8)).save(tmp_path / name)
    (tmp_path / "p/link.png").symlink_to("a.png")
    (tmp_path / "q").symlink_to("p")
    os.link(tmp_path / "p/a.png", tmp_path / "p/hard.png")
    return tmp_path


def form_of(kind: str, folder: Path) -> tuple[str, str]:
    """Return an image's usual name and another form of it."""
    return (CAFE, FORMS[kind]) if kind == "NFD" else ("p/a.png", FORMS.get(kind, f"{folder}/p/a.png"))


KINDS = (*FORMS, "absolute")
# The test divides the names of Karpathy's file at `/`.
CELLS = [(file, kind) for file in FILES for kind in KINDS if (file[:7], kind) != ("dataset", "backslash")]


@pytest.mark.parametrize(("file", "kind"), CELLS)
def test_one_file_is_one_image_whatever_form_its_name_has(file: str, kind: str, folder: Path) -> None:
    usual, other = form_of(kind, folder)
    (folder / file).write_text(FILES[file]([usual, other]), "utf-8")
    skips = Skips()
    (record,) = read(folder / file, skips=skips)
    assert record.image is not None
    assert record.image.samefile(usual)
    assert skips.counts == {OTHERWISE: 1} | dict.fromkeys(ONCE.get(file, ()), 1)
    (folder / file).write_text(FILES[file]([other]), "utf-8")
    (alone,) = read(folder / file)
    if "link" not in kind:
        assert (alone.key, alone.split) == (record.key, record.split)


def test_files_whose_names_differ_only_in_form_stay_two_images(folder: Path) -> None:
    nfd = normalize("NFD", CAFE)
    for shade, name in enumerate((nfd, "p\\a.png", "b\\c.png")):
        Image.fromarray(np.full((8, 8, 3), 10 * shade, np.uint8)).save(folder / name)
    names = ["p\\a.png", nfd, "p/a.png", CAFE, "b\\c.png"]
    (folder / "o.jsonl").write_text(FILES["lines.jsonl"](names), "utf-8")
    skips = Skips()
    records = read(folder / "o.jsonl", skips=skips)
    assert ([one.key for one in records], [one.image for one in records]) == (names, [folder / name for name in names])
    assert not skips.counts


@pytest.mark.parametrize(
    "name", ["/etc/hosts.png", "../out.png", "p/../../out.png", "..\\out.png", "p/\ud800.png", "\0"]
)
def test_a_name_outside_of_the_folder_is_refused_still(name: str, folder: Path) -> None:
    Image.new("RGB", (8, 8)).save(folder / "out.png")
    (folder / "p" / "o.jsonl").write_text(FILES["lines.jsonl"]([name, "a.png"]), "utf-8")
    skips = Skips()
    assert [one.key for one in read(folder / "p" / "o.jsonl", skips=skips)] == ["a.png"]
    assert skips.counts == {BAD: 1}


def splits_of(records: tuple[Record, ...] | list[Record]) -> dict[str, str]:
    return {str(record.image).rpartition("/")[2]: record.split for record in records}


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_the_split_does_not_depend_on_how_a_path_is_written(
    where: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s/{number:03}.png" for number in range(300)]
    (folder / "s").mkdir()
    for number, name in enumerate(names):
        Image.new("RGB", (8, 8), (number % 256, number // 256, 0)).save(folder / name)
    wanted = {name.rpartition("/")[2]: drawn_split(name, 0) for name in names}
    if where == "elsewhere":  # the common folder of the images is theirs, so the names have no folder
        (folder / "far").mkdir()
        monkeypatch.chdir(folder / "far")
        wanted = {name: drawn_split(name, 0) for name in wanted}
        paths = [f"../{name}" for name in names]
    else:
        paths = names
        for form in ("{}", "./{}", f"{folder}/{{}}", "s/../{}"):
            written = [form.format(name) for name in names]
            for file in ("lines.jsonl", "table.csv", "table.tsv", "metadata.csv"):
                Path(file).write_text(FILES[file](written))
                assert splits_of(read(Path(file))) == wanted
    for given in (paths, [f"./{one}" for one in paths], [f"{folder}/{one}" for one in names]):
        rows = [{"image": name, "caption": "a dog"} for name in given]
        for form in (rows, pd.DataFrame(rows), [{"image": Path(one["image"]), "caption": "a dog"} for one in rows]):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert splits_of(Dataset.from_rows(form).records) == wanted


def test_two_data_sets_do_not_join_two_images_that_have_one_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("far", "out"):
        (folder / name).mkdir()
    Image.new("RGB", (8, 8), "red").save(folder / "out" / "a.png")
    monkeypatch.chdir(folder / "far")
    first, second, same = (
        Dataset.from_rows([{"image": folder / name / "a.png", "caption": "a dog", "split": "train"}])
        for name in ("p", "out", "q")
    )
    assert [one.record.key for one in (*first, *second, *same)] == ["a.png"] * 3
    assert (first + same)[0].captions == ("a dog", "a dog")
    with pytest.raises(DataError, match="found one key of two images"):
        first + second


def test_two_rows_of_one_link_are_one_image_and_ids_of_questions_stay_unique(folder: Path) -> None:
    rows = [
        {"image": one, "question": "what?", "answer": "dog"} for one in ("p/a.png", "p/link.png", str(folder / CAFE))
    ]
    with pytest.warns(UserWarning, match="named in more than one way"):
        first, second = Dataset.from_rows(rows)
    assert [one.key for one in first.questions] == ["p/a.png/0/0", "p/a.png/1/0"]
    assert (second.record.key, [one.key for one in second.questions]) == (CAFE, [f"{CAFE}/2/0"])
