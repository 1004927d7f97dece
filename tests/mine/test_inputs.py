"""Each form of input by hand; what is bad in one is counted, and every record is accounted for."""

import gzip
import io
import json
import os
import tarfile
import tracemalloc
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from diptych.cli import run_verb
from diptych.runtime.errors import DataError, RecipeError
from diptych_mine.fetch.gathering import from_disk
from diptych_mine.pages import inputs, tars, warc
from diptych_mine.pages.inputs import InputLine
from diptych_mine.pages.tars import tar_lines, tar_pictures
from tests.support.warcs import record

from .conftest import run

KITE = InputLine("http://a.test/k.jpg", ("a red kite over a beach",))


def accounted(counts: dict[str, Any]) -> bool:
    kinds = sum(count for name, count in counts.items() if name.startswith("records "))
    return bool(kinds == counts["records"])


def test_addresses_with_text_are_read_from_each_form(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a red kite over a beach\thttp://a.test/k.jpg\nno address here\n\n")
    (tmp_path / "x.jsonl").write_text(
        '{"url": "http://a.test/k.jpg", "caption": "a red kite over a beach"}\n{"url": 3}\n[]\n{torn\n'
    )
    columns = {"TEXT": ["a red kite over a beach", None], "URL": ["http://a.test/k.jpg", None], "other": [1, 2]}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    for name in ("x.tsv", "x.jsonl"):  # also with a byte order mark, as of Windows
        (tmp_path / f"bom_{name}").write_text((tmp_path / name).read_text(), "utf-8-sig")
        assert next(inputs.lines(tmp_path / f"bom_{name}", "pairs")) == KITE
    found = {name: list(inputs.lines(tmp_path / name, "pairs")) for name in ("x.tsv", "x.jsonl", "x.parquet")}
    assert {name: lines[0] for name, lines in found.items()} == dict.fromkeys(found, KITE)
    assert [line.bad for line in found["x.tsv"]] == ["", "no address"]
    assert [line.bad for line in found["x.jsonl"]] == ["", "no address", "no object", "no JSON"]
    assert [line.bad for line in found["x.parquet"]] == ["", "no address"]


def test_lists_of_other_images_are_other_inputs(tmp_path: Path) -> None:
    """Also if their texts are equal, because names in a list are relative."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.png").write_bytes(name.encode())
        (tmp_path / name / "x.jsonl").write_text(json.dumps({"image": "0.png", "captions": ["a kite"]}))
    lists = [tmp_path / name / "x.jsonl" for name in ("a", "b")]
    both = inputs.recognise(lists, None)
    assert {one.path for one in both} == set(lists)
    (tmp_path / "a" / "0.png").write_bytes(b"b")
    assert len(inputs.recognise(lists, None)) == 1
    (tmp_path / "a" / "0.png").unlink()
    assert len({one.digest for one in (*both, *inputs.recognise(lists, None))}) == 3


def test_lines_of_a_val_or_test_split_are_left_out_and_counted(tmp_path: Path) -> None:
    """All that is mined is for training."""
    splits = (None, "train", "Test", "validation")
    entries = [{"image": f"{n}.png", "captions": ["a kite"], "split": split} for n, split in enumerate(splits)]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, entries)))
    bad = [line.bad for line in inputs.lines(tmp_path / "x.jsonl", "pictures")]
    assert bad == ["", "", "of a val or test split", "of a val or test split"]


def test_parquet_that_is_torn_or_has_other_columns_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="has the columns a; expected `url`"):
        list(inputs.lines(tmp_path / "x.parquet", "pairs"))
    (tmp_path / "y.parquet").write_bytes((tmp_path / "x.parquet").read_bytes()[:-9])
    with pytest.raises(DataError, match="not a complete Parquet file"):
        list(inputs.lines(tmp_path / "y.parquet", "pairs"))


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("pages", record(0), "warc"),
        ("pages", gzip.compress(record(0)), "warc"),
        ("list", b"https://a.test/x.html\n", "visit"),
        ("list", b"\xef\xbb\xbfhttps://a.test/x.html\n", "visit"),
        ("lines", b'\xef\xbb\xbf{"url": "http://a.test/k.jpg", "text": "a kite"}', "pairs"),
        ("list.tsv", b"http://a.test/k.jpg\ta red kite", "pairs"),
        ("lines", b'{"url": "http://a.test/k.jpg", "text": "a kite"}', "pairs"),
        ("lines", b'{"image": "k.jpg", "captions": ["a kite"]}', "pictures"),
    ],
)
def test_a_form_is_told_by_what_is_in_the_file(tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert [source.kind for source in inputs.recognise([tmp_path / name], None)] == [kind]


def test_a_folder_of_pages_needs_their_addresses(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "kite.html").write_text("<p>")
    with pytest.raises(RecipeError, match="--base URL"):
        inputs.recognise([tmp_path], None)
    assert inputs.page_addresses(tmp_path, "http://a.test/b") == {"x/kite.html": "http://a.test/b/x/kite.html"}
    (tmp_path / "addresses.tsv").write_text("x/kite.html\thttp://c.test/k\nno tab\n")
    assert inputs.page_addresses(tmp_path, "") == {"x/kite.html": "http://c.test/k"}


def test_every_page_of_a_folder_is_accounted_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc, "MOST_BODY", 20_000)
    pages = {
        "good": b'<html lang="en"><p>There was not much to do after lunch.</p><img src="k.jpg">',
        "large": b"<p>kite</p>" * 5_000,
        "empty": b"",
        "nul": b"<p>\0\0</p><img src=\0>",
        "deep": b"<b>" * 5_000,
        "lost": b"<p>",
    }
    folder = tmp_path / "html"
    folder.mkdir()
    for name, body in pages.items():
        (folder / f"{name}.html").write_bytes(body)
    told = "".join(f"{name}.html\thttp://a.test/{name}\n" for name in pages if name != "lost")
    (folder / "addresses.tsv").write_text(f"{told}gone.html\thttp://a.test/gone\n")
    counts = run(tmp_path / "out", folder)["inputs"]
    assert {name: counts[f"records {name}"] for name in ("page", "large", "bad")} == {"page": 4, "large": 1, "bad": 1}
    assert counts["bad"] == {"no URL in addresses.tsv": 1}
    assert accounted(counts)


def test_records_of_bad_files_are_accounted_for_by_file(tmp_path: Path) -> None:
    files = {
        "cut.warc": b"".join(record(n) for n in range(3))[:-50],
        "empty.warc": b"",
        "text.warc.gz": b"no WARC at all " * 300,
        "lies.warc": record(3) + record(4, length=10**9) + record(5),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    counts = run(tmp_path / "out", *(tmp_path / name for name in files))["inputs"]
    assert accounted(counts)
    assert counts["records page"] == 4
    assert counts["records bad"] == sum(counts["bad"].values()) >= 4


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps({"image": "k.jpg", "captions": ["a kite"]}))
    (tmp_path / "file").write_text("not a folder")
    command = ["mine", "run", str(tmp_path / "x.jsonl"), "--out", str(tmp_path / "file" / "out"), "--skip-nsfw-check"]
    assert run_verb(command, False) == 1
    assert "Not a directory" in capsys.readouterr().err


def test_a_list_of_others_names_no_file_of_this_disk(tmp_path: Path) -> None:
    """Nor does a text that is none, a nest of brackets or an address that is not a text stop what stands beside it."""
    (tmp_path / "private.png").write_bytes(b"mine")
    here = f"file:{tmp_path / 'private.png'}"
    lines = [{"url": here, "text": "a kite"}, {"url": "http://a.test/k.jpg", "text": 5}, {"url": [here], "text": ["x"]}]
    (tmp_path / "x.jsonl").write_text("\n".join([*map(json.dumps, lines), "[" * 100_000]))
    pq.write_table(pa.table({"TEXT": ["a kite"], "URL": [here]}), tmp_path / "x.parquet")
    (tmp_path / "x.tsv").write_text(f"a kite\t{here}\n")
    bad = InputLine(bad="no address")
    assert list(inputs.lines(tmp_path / "x.jsonl", "pairs")) == [
        bad, InputLine("http://a.test/k.jpg"), bad, InputLine(bad="no JSON")
    ]  # fmt: skip
    assert list(inputs.lines(tmp_path / "x.parquet", "pairs")) == [bad]
    assert list(inputs.lines(tmp_path / "x.tsv", "pairs")) == [bad]


@pytest.mark.parametrize("what", ["pipe", "device", "large", "name"])
def test_a_picture_of_ones_own_is_a_file_of_some_size(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warc, "MOST_BODY", 1_000)
    path = tmp_path / "k.png"
    match what:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path = Path("/dev/zero")
        case "large":
            path.write_bytes(bytes(1_001))
        case _:
            path = tmp_path / "a\0b"
    (row, body) = from_disk(f"file:{path}")
    assert body == b""
    assert row["reason"] == ("too large" if what == "large" else "no file: No such file or directory")


def test_a_tar_in_xz_is_refused_before_its_header_takes_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fuzzing found a file of 50 bytes that asked for 4 GiB."""
    monkeypatch.setattr(tarfile.TarFile, "xzopen", lambda *_, **__: pytest.fail("read as xz"))
    (tmp_path / "x.tar").write_bytes(b"\x09" + b"\xff" * 38 + b"h\nr \x10\x01@\x02t:r%")
    *_, line = tar_lines(tmp_path / "x.tar", "key")
    assert line.bad == "a tar cut short or damaged: ReadError"


def test_a_packed_tar_that_is_damaged_is_told(tmp_path: Path) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for number in range(3):
            member = tarfile.TarInfo(f"{number}.png")
            member.size = 9000
            tar.addfile(member, io.BytesIO(bytes(Random(number).choices(b"abc", k=9000))))
    whole, told = content.getvalue(), []
    for at in range(20, len(whole), 200):
        (tmp_path / "x.tar").write_bytes(whole[:at] + b"\xff" * 9 + whole[at + 9 :])
        *_, line = tar_lines(tmp_path / "x.tar", "key")
        told.append(line.bad)
    assert "a tar cut short or damaged: error" in told, "zlib's own"
    assert sum(why.startswith("a tar cut short") for why in told) > len(told) / 2


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_damaged_place_of_a_tar_costs_what_is_there(mode: str, tmp_path: Path) -> None:
    content, headers = io.BytesIO(), list[int]()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for number in range(12):
            for ending in ("png", "txt"):
                member = tarfile.TarInfo(f"{number}.{ending}")
                member.size = 700
                headers.append(tar.offset)
                tar.addfile(member, io.BytesIO(b"a dog " * 200))
    whole = content.getvalue()

    def read(damage: dict[int, bytes]) -> tuple[list[str], list[str]]:
        damaged = bytearray(whole)
        for at, new in damage.items():
            damaged[at : at + len(new)] = new
        (tmp_path / "x.tar").write_bytes(damaged if mode == "w" else gzip.compress(damaged))
        lines = list(tar_lines(tmp_path / "x.tar", "key"))
        there = {line.address for line in lines if not line.bad}
        assert [len(body) for _, body in tar_pictures(tmp_path / "x.tar", "key", there)] == [700] * len(there)
        return [line.address.rpartition("/")[2] for line in lines if not line.bad], [
            one.bad for one in lines if one.bad
        ]

    assert read({}) == ([f"{number}.png" for number in range(12)], [])
    for at in (0, 6, 12) if mode == "w" else (6, 12):  # a packed file without a header is not known as a tar
        for new in (b"\xff" * 512, b"?" * 1100, b"\x00" * 100):
            pictures, bad = read({headers[at]: new})
            assert len(pictures) == 11
            assert bad == [f"a tar damaged at byte {headers[at]}: its complete files after that are read"]
    pictures, bad = read({headers[at]: b"\xff" * 512 for at in range(2, 12, 2)})
    assert (len(pictures), bad[3:]) == (7, ["a tar damaged at further places"] * 2)


def test_a_tar_is_never_held_whole(tmp_path: Path) -> None:
    count, size = 20, 2**20
    with tarfile.open(tmp_path / "x.tar", "w:gz") as tar:
        for number in range(count):
            for name, content in ((f"{number}.png", bytes(size)), (f"{number}.json", b'{"caption": "a kite"}')):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    tracemalloc.start()
    try:
        lines = list(tar_lines(tmp_path / "x.tar", "key"))
        taken = [len(body) for _, body in tar_pictures(tmp_path / "x.tar", "key", {line.address for line in lines})]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [line.texts for line in lines] == [("a kite",)] * count
    assert taken == [size] * count
    assert peak < 5 * size


def test_a_tar_of_too_many_files_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tars, "MOST_MEMBERS", 2)
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for number in range(3):
            tar.addfile(tarfile.TarInfo(f"{number}.png"), io.BytesIO())
    *read, told = tar_lines(tmp_path / "x.tar", "key")
    assert [line.address for line in read] == [f"file:key/x.tar/{number}.png" for number in range(2)]
    assert told.bad == "a tar of more than 2 files: the others are left out"


def test_a_parquet_that_is_damaged_inside_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"TEXT": ["a kite"] * 9, "URL": ["http://a.test/k.jpg"] * 9}), tmp_path / "x.parquet")
    content = (tmp_path / "x.parquet").read_bytes()
    told = []
    for at in range(4, len(content) // 2, 3):
        (tmp_path / "x.parquet").write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        with suppress(DataError):
            list(inputs.lines(tmp_path / "x.parquet", "pairs"))
            told.append(at)
    assert len(told) < len(content) / 6 - 5
