"""Folders and tables of others: splits that entries name, lists of captions, and files that are not read."""

import io
import json
import tarfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from diptych.core import Record
from diptych.data.formats.parsing import BAD, Skips
from diptych.data.formats.table import read
from diptych.runtime.errors import DataError
from diptych.vision.image_files import open_pixels

LINES = "captions of several lines (each file is one caption)"
NO_ROW = "images without a row in a table (not read)"


def picture(grey: int = 90) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (grey, grey, grey)).save(file, "PNG")
    return file.getvalue()


def filled(folder: Path, files: dict[str, Any]) -> Path:
    """Write files; None is a picture, and what is neither text nor bytes is JSON."""
    for name, given in files.items():
        path, content = folder / name, picture() if given is None else given
        path.parent.mkdir(parents=True, exist_ok=True)
        content = content if isinstance(content, str | bytes) else json.dumps(content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def tar_of(path: Path, files: dict[str, Any]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, given in files.items():
            content = picture() if given is None else given.encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def taken(path: Path, **options: Any) -> tuple[dict[str, Record], Skips]:
    skips = Skips()
    return {one.key: one for one in read(path, need_pictures=False, skips=skips, **options)}, skips


COCO = {
    "images": [{"id": 1, "file_name": "a.png", "split": "test"}, {"id": 2, "file_name": "b.png", "split": "web"}],
    "annotations": [{"image_id": 1, "caption": "one"}, {"image_id": 2, "caption": "two"}],
}
SPLIT: dict[str, tuple[Any, list[str]]] = {
    "metadata.csv": ("file_name,text,split\na.png,one,test\nb.png,two, web \n", ["a.png", "b.png"]),
    "metadata.jsonl": (
        '{"file_name": "a.png", "text": "one", "split": "test"}\n'
        '{"file_name": "b.png", "text": "two", "split": "web"}',
        ["a.png", "b.png"],
    ),
    "captions.json": (COCO, ["a", "b"]),
    "memes.jsonl": (
        '{"id": 1, "img": "a.png", "text": "one", "label": 0, "split": "test"}\n'
        '{"id": 2, "img": "b.png", "text": "two", "split": "web"}',
        ["a", "b"],
    ),
    "cc.tsv": ("Caption\tUrl\tSplit\none\thttp://x/a.png\ttest\ntwo\thttp://x/b.png\tweb", ["cc/000001", "cc/000002"]),
    "named.tsv": ("link\tsplit\ttitle\nhttp://x/a.png\ttest\tone\nhttp://x/b.png\tweb\ttwo",
                  ["named/000001", "named/000002"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SPLIT)
def test_a_split_that_entries_name_is_the_images_split(name: str, tmp_path: Path) -> None:
    """As with own lines: one that the caller gave is for entries that name none; that is noted where they differ."""
    content, keys = SPLIT[name]
    file = filled(tmp_path, {name: content}) / name
    records, skips = taken(file)
    assert {key: records[key].split for key in keys} == dict(zip(keys, ("test", "web"), strict=True))
    assert skips.counts == {}
    records, skips = taken(file, split="test")
    assert {key: records[key].split for key in keys} == dict(zip(keys, ("test", "web"), strict=True))
    assert skips.counts == {"entries whose split is not the given 'test' (the entry's split is used)": 1}


@pytest.mark.parametrize("name", SPLIT)
def test_an_empty_split_is_none(name: str, tmp_path: Path) -> None:
    content, keys = SPLIT[name]
    text = content if isinstance(content, str) else json.dumps(content)
    filled(tmp_path, {f"with/{name}": text.replace("web", " "), f"without/{name}": text.replace('"web"', "null")})
    drawn = {"test", "train", "val"}
    assert taken(tmp_path / "with" / name)[0][keys[1]].split in drawn
    assert taken(tmp_path / "without" / name)[0][keys[1]].split in drawn | {"web"}


@pytest.mark.parametrize("name", ["metadata.csv", "memes.jsonl"])
def test_two_splits_of_one_image_cost_the_later_entry(name: str, tmp_path: Path) -> None:
    text, keys = SPLIT[name]
    records, skips = taken(filled(tmp_path, {name: text.replace("b.png", "a.png")}) / name)
    assert {key: one.split for key, one in records.items()} == {keys[0]: "test"}
    assert "found `web`, expected `test`, the split of an earlier entry with a.png" in skips.first[BAD]


def test_a_split_that_is_no_text_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, {"metadata.jsonl": {"file_name": "a.png", "text": "one", "split": 3}})
    with pytest.raises(DataError, match=r"line 1: split: found a number.*, expected"):
        taken(tmp_path / "metadata.jsonl")


@pytest.mark.parametrize("key", ["set", "subset", "partition"])
def test_other_names_of_split_in_own_lines_are_noted(key: str, tmp_path: Path) -> None:
    line = {"image": "a.png", "captions": ["one"], key: "test"}
    filled(tmp_path, {"own.jsonl": line, "both.jsonl": line | {"split": "test"}})
    assert taken(tmp_path / "own.jsonl")[1].counts == {f"key {key!r} is not read; did you mean split?": 1}
    assert taken(tmp_path / "both.jsonl")[1].counts == {}


def test_a_text_file_of_several_lines_is_one_caption_and_is_counted(tmp_path: Path) -> None:
    """In tars and in folders, as img2dataset writes captions of pages (its issue 344)."""
    files = {"0.png": None, "0.txt": "a bowl of apples\non a wooden table\n", "1.png": None, "1.txt": "\none line\n",
             "2.png": None, "2.json": '{"caption": "two\\nlines"}'}  # fmt: skip
    filled(tmp_path / "folders" / "00000", files)
    for path in (tar_of(tmp_path / "00000.tar", files), tmp_path / "folders"):
        records, skips = taken(path)
        assert [one.captions for one in records.values()] == [
            ("a bowl of apples\non a wooden table",), ("one line",), ("two\nlines",)
        ]  # fmt: skip
        assert skips.counts == {LINES: 2}
        assert skips.first[LINES].endswith("0.txt")


CELLS = {
    "['a dog', 'a cat']": ("a dog", "a cat"),
    '["a dog", "l\\u00e9a"]': ("a dog", "léa"),
    "['a dog' \"it's\"\n 'a \\d']": ("a dog", "it's", "a \\d"),  # as numpy writes them
    " [ 'a dog' , ] ": ("a dog",),
    "[1, 2]": ("[1, 2]",),
    "['a dog', 3]": ("['a dog', 3]",),
    "[a dog] and [a cat]": ("[a dog] and [a cat]",),
    "['a dog'": ("['a dog'",),
    "[" * 9000 + "]": ("[" * 9000 + "]",),
    "'a dog', 'a cat'": ("'a dog', 'a cat'",),
}


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_with_a_list_of_texts_is_a_list_of_captions(cell: str, tmp_path: Path) -> None:
    quoted = cell.replace('"', '""')
    filled(tmp_path, {"metadata.csv": f'file_name,captions\na.png,"{quoted}"\n'})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert taken(tmp_path / "metadata.csv")[0]["a.png"].captions == CELLS[cell]


def test_an_empty_list_of_captions_is_counted(tmp_path: Path) -> None:
    rows = 'file_name,captions\na.png,one\nb.png,"[]"\nc.png,"[\'\']"\n'
    records, skips = taken(filled(tmp_path, {"metadata.csv": rows}) / "metadata.csv")
    assert (list(records), skips.counts) == (["a.png"], {"empty captions": 2})


def test_all_tables_of_a_folder_and_its_subfolders_are_read(tmp_path: Path) -> None:
    filled(tmp_path, {
        "r.png": None, "train/a.png": None, "test/b.png": None, "val/c.png": None, "val/d.png": None,
        "metadata.csv": "file_name,text\nr.png,root\ntest/b.png,two\ntest/b.png,two\n",
        "metadata.jsonl": {"file_name": "r.png", "text": "further"},
        "train/metadata.jsonl": {"file_name": "a.png", "text": "one"},
        "test/metadata.csv": "file_name,text\nb.png,two\nb.png,more\n",
        "val/metadata.csv": "file_name,text\nc.png,three\n",
        "val/metadata.jsonl": {"file_name": "d.png", "text": "four"},
        ".trash/metadata.csv": "file_name,text\nr.png,gone\n",
    })  # fmt: skip
    records, skips = taken(tmp_path)
    assert {key: one.captions for key, one in records.items()} == {
        "r.png": ("further", "root"), "test/b.png": ("two", "two", "more"), "train/a.png": ("one",),
        "val/c.png": ("three",), "val/d.png": ("four",),
    }  # fmt: skip
    assert skips.counts == {
        "captions that are in two tables (kept once)": 1,
        "images without a split, in data with splits (a random split is used)": 1,  # r.png, in no folder of a split
    }
    assert skips.first["images without a split, in data with splits (a random split is used)"] == "r.png"


def test_an_entry_that_names_another_split_than_its_folder_is_counted(tmp_path: Path) -> None:
    lines = [{"file_name": f"{name}.png", "text": "one", "split": split} for name, split in
             (("a", "test"), ("b", "Train"), ("c", None))]  # fmt: skip
    filled(tmp_path, {f"train/{line['file_name']}": None for line in lines})
    filled(tmp_path, {"train/metadata.jsonl": "\n".join(map(json.dumps, lines))})
    records, skips = taken(tmp_path)
    assert [one.split for one in records.values()] == ["test", "train", "train"]
    assert skips.counts.pop("entries whose split is not that of their folder (the entry's split is used)") == 1
    assert skips.counts == {"images of the split 'Train' (read as 'train')": 1}


def test_what_a_folder_with_tables_has_besides_is_counted(tmp_path: Path) -> None:
    """Not counted: hidden files, images of rows that are left out, both images of a pair, and an archive of images."""
    with zipfile.ZipFile(tmp_path / "in.zip", "w") as archive:
        archive.writestr("z.png", picture())
    filled(tmp_path, {
        "metadata.csv": "file_name,text\na.png,one\nin.zip/z.png,two\nl.png+r.png,both\nempty.png,\n",
        "a.png": None, "l.png": None, "r.png": None, "empty.png": None, "more/b.png": None, "c.heic": "x",
        "metadata.parquet": "PAR1", "test/metadata.parquet": "PAR1", "deep/in/metadata.csv": "x", ".hidden/d.png": None,
        "._a.png": "x", "LICENSE": "x",
    })  # fmt: skip
    records, skips = taken(tmp_path)
    assert list(records) == ["a.png", "in.zip/z.png", "l.png+r.png"]
    counts = {f"files ending in {one} (not read)": 1 for one in (".heic", ".csv", "nothing")}
    counts |= {NO_ROW: 1, "files ending in .parquet (not read)": 2, "empty captions": 1}
    assert skips.counts == counts
    assert skips.first[NO_ROW] == str(tmp_path / "more" / "b.png")


def test_what_tars_and_folders_of_pairs_have_besides_is_counted(tmp_path: Path) -> None:
    pair = {"0.png": None, "0.txt": "one"}
    filled(tmp_path / "tars", {"loose.png": None, "sub/z.png": None, "2.tar.gz": "x", "notes.csv": "x", ".keep": ""})
    tar_of(tmp_path / "tars" / "0.tar", pair | {"1.heic": "x", "a/1.cls": "7", "a/._1.png": "x"})
    filled(tmp_path / "folders", {f"00000/{name}": given for name, given in pair.items()})
    filled(tmp_path / "folders", {"loose.png": None, "loose.txt": "x", "00000/sub/3.png": None, "00000/2.heic": "x"})
    outside = "images outside of the tars or folders (not read)"
    records, skips = taken(tmp_path / "tars")
    endings = {f"files ending in .{one} (not read)": 1 for one in ("heic", "cls", "gz", "csv")}
    assert (list(records), skips.counts) == (["0/0"], endings | {outside: 2})
    records, skips = taken(tmp_path / "folders")
    endings = {f"files ending in .{one} (not read)": 1 for one in ("txt", "heic")}
    assert (list(records), skips.counts) == (["00000/0"], endings | {outside: 2})


FOLDERS = {"test2017": "test", "val_2": "val", "images/test": "test", "data/Validation/dog": "val", "Train": "train",
           "train-01/test": "train", "dogs/testing 3": "test"}  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS)
def test_any_folder_of_the_path_may_name_the_split(folder: str, tmp_path: Path) -> None:
    """With a number at its end, which is noted; several such folders: the outermost."""
    rows = [f"{folder}/{number}.png,one" for number in range(9)]
    records, skips = taken(filled(tmp_path, {"metadata.csv": "\n".join(["file_name,text", *rows])}))
    assert {one.split for one in records.values()} == {FOLDERS[folder]}
    noted = [part for part in folder.split("/") if part[-1].isdigit()]
    assert skips.counts == {
        f"images of the folder {part!r} (read as the split {FOLDERS[folder]!r})": 9 for part in noted
    }


def test_folders_of_other_names_leave_the_split_to_the_draw(tmp_path: Path) -> None:
    rows = [f"eval/2017/tests/{number}.png,one" for number in range(60)]
    records, skips = taken(filled(tmp_path, {"metadata.csv": "\n".join(["file_name,text", *rows, "test,x"])}))
    assert ({one.split for one in records.values()}, skips.counts) == ({"train", "val", "test"}, {})


def test_a_zips_member_that_occurs_twice_is_refused_unless_both_are_equal(tmp_path: Path) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "im.zip", "w") as archive:
        warnings.simplefilter("ignore")
        for name, grey in (("a.png", 1), ("b.png", 2), ("a.png", 3), ("b.png", 2), ("c.png", 4)):
            archive.writestr(name, picture(grey))
    lines = [{"image": f"im.zip/{name}.png", "captions": ["one"]} for name in "abc"]
    filled(tmp_path, {"own.jsonl": "\n".join(map(json.dumps, lines))})
    skips = Skips()
    assert [one.key for one in read(tmp_path / "own.jsonl", skips=skips)] == ["im.zip/b.png", "im.zip/c.png"]
    assert "im.zip: found a.png twice with different contents, expected once" in skips.first[BAD]
    with pytest.raises(DataError, match=r"found a.png twice"):
        open_pixels(tmp_path / "im.zip" / "a.png")


def test_a_plus_in_the_name_of_a_member_is_no_pair(tmp_path: Path) -> None:
    tar_of(tmp_path / "0.tar", {"1+2.png": None, "1+2.txt": "one", "3.png": None, "4.png": None})
    (record,) = taken(tmp_path / "0.tar")[0].values()
    assert record.image is not None
    assert open_pixels(record.image).shape == (8, 8, 3)
    assert open_pixels(tmp_path / "0.tar" / "3.png+4.png").shape[:2] == (8, 16)
