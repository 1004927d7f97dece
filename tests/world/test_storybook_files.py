"""Storybook on disk: the public forms, read back as they were; stopped and gone on with; a contact sheet."""

import io
import json
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from diptych.core import Record
from diptych.data.formats.storybook import read
from diptych.runtime.errors import DataError, OutputError
from diptych_world import files as files_module
from diptych_world import official
from diptych_world.book import record
from diptych_world.files import write
from diptych_world.layout import scene
from diptych_world.render import render
from diptych_world.sheet import show
from tests.attack.outputs import contents


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("storybook")
    write(folder, {"train": 30, "web": 20, "test_rare": 5}, seed=4)
    return folder


def without_keys(one: Record) -> Record:
    """Public forms number captions, questions and expressions in their own way."""
    return replace(
        one,
        caption_ids=(),
        questions=tuple(replace(question, key="") for question in one.questions),
        expressions=tuple(replace(expression, key="") for expression in one.expressions),
    )


@pytest.mark.parametrize(("split", "count"), [("train", 30), ("web", 20), ("test_rare", 5)])
def test_what_is_written_is_read(folder: Path, split: str, count: int) -> None:
    found = read(folder, split)
    assert len(found) == count
    for number, one in enumerate(found):
        assert one.image is not None
        wanted = record(scene(4, split, number), one.image)
        assert without_keys(one) == without_keys(wanted)
        assert np.array_equal(np.asarray(Image.open(one.image)), render(scene(4, split, number)))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # theirs
def test_pycocotools_reads_it(folder: Path) -> None:
    with redirect_stdout(io.StringIO()):
        instances = COCO(folder / "coco" / "instances_train.json")
        captions = COCO(folder / "coco" / "captions_train.json")
    assert len(instances.getImgIds()) == 30
    assert len(captions.getAnnIds(imgIds=[0])) == 5
    assert instances.annToMask(instances.loadAnns(instances.getAnnIds(imgIds=[0]))[0]).sum() > 0


def modified(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_second_call_changes_nothing_and_a_larger_one_adds(tmp_path: Path) -> None:
    write(tmp_path, {"val": 3})
    before = modified(tmp_path)
    heard: list[int] = []
    write(tmp_path, {"val": 3}, progress=heard.append)
    assert modified(tmp_path) == before
    assert sum(heard) == 3
    (tmp_path / "pictures" / "val" / "000001.png").unlink()
    write(tmp_path, {"val": 3})
    assert modified(tmp_path).keys() == before.keys()
    before = modified(tmp_path)
    write(tmp_path, {"val": 5})
    after = modified(tmp_path)
    assert all(after[name] == before[name] for name in before if name.endswith(".png"))
    assert [one.key for one in read(tmp_path, "val")] == [f"val/{number:06d}" for number in range(5)]


@pytest.mark.slow
def test_texts_changed_by_hand_are_not_replaced(tmp_path: Path) -> None:
    write(tmp_path / "a", {"train": 4, "val": 2})
    (captions := tmp_path / "a/coco/captions_train.json").write_text("mine")
    write(tmp_path / "a", {"train": 4, "val": 3})  # does not write this file
    with pytest.raises(OutputError, match=r"changed after Diptych wrote them \(coco/captions_train.json\)"):
        write(tmp_path / "a", {"train": 5, "val": 4})
    assert captions.read_text() == "mine"
    captions.unlink()
    write(tmp_path / "a", {"train": 5, "val": 4})
    write(tmp_path / "b", {"train": 5, "val": 4})
    assert captions.read_bytes() == (tmp_path / "b/coco/captions_train.json").read_bytes()


def test_a_larger_call_that_was_stopped_between_two_texts_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a", {"train": 4})
    before, made = (tmp_path / "a/coco/captions_train.json").read_bytes(), official.questions

    def stopped(records: list[Record], split: str) -> object:
        if len(records) == 5:
            raise KeyboardInterrupt
        return made(records, split)

    with monkeypatch.context() as patched:
        patched.setattr(official, "questions", stopped)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / "a", {"train": 5})
    assert (tmp_path / "a/coco/captions_train.json").read_bytes() == before, "stopped after the first text"
    write(tmp_path / "a", {"train": 5})
    write(tmp_path / "b", {"train": 5})
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_two_processes_write_what_one_does(tmp_path: Path) -> None:
    splits, heard = {"web": 130, "val": 5}, list[int]()
    write(tmp_path / "one", splits)
    write(tmp_path / "two", splits, progress=heard.append, processes=2)
    one, two = (modified(tmp_path / name) for name in ("one", "two"))
    assert one.keys() == two.keys()
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes() for name in one)
    assert sum(heard) == 135


def test_a_stopped_call_leaves_whole_files_and_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def stops(one, zoom=1):  # type: ignore[no-untyped-def]
        if len(drawn) == 2:
            raise KeyboardInterrupt
        drawn.append(one.index)
        return render(one, zoom)

    monkeypatch.setattr(files_module, "render", stops)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, {"val": 4})
    assert len(list(tmp_path.rglob("*.png"))) == 2
    assert not list(tmp_path.rglob("*.json"))
    monkeypatch.undo()
    write(tmp_path, {"val": 4})
    assert not list(tmp_path.rglob("*.partial"))
    assert len(read(tmp_path, "val")) == 4


def test_two_worlds_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path, {"val": 1}, seed=1)
    with pytest.raises(DataError, match="world 1 and seed 1, expected world 1 and seed 2; pass another folder"):
        write(tmp_path, {"val": 1}, seed=2)


def test_a_wrong_split_or_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Storybook has no split `trian`.*did you mean train"):
        write(tmp_path, {"trian": 1})
    with pytest.raises(DataError, match="found -1 scenes for the split val, expected 0 or more"):
        write(tmp_path, {"val": -1})


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"file exists and is not a folder; choose a new or empty folder"):
        write(tmp_path / "file", {"val": 1})


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    (tmp_path / ".diptych").write_text("diptych world\n")
    (tmp_path / "storybook.json").write_text(json.dumps({"world": 1}))
    with pytest.raises(DataError, match=r"storybook.json: found an object with `world`, expected one with `seed`"):
        write(tmp_path, {"val": 1})


@pytest.mark.slow
def test_a_contact_sheet(tmp_path: Path) -> None:
    show([scene(0, "train", number) for number in range(5)], tmp_path / "sheet.png")
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    assert sheet.shape[0] > 2 * 320
    assert sheet.shape[1] > 4 * 320
    assert len(np.unique(sheet.reshape(-1, 3), axis=0)) > 1000
