"""Texts from outside are decoded once: by their byte order mark, as UTF-16 if every second byte is NUL, else UTF-8."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from diptych.data.formats.parsing import Skips, first_line, read_lines
from diptych.data.formats.table import read
from diptych.data.store.corpus import Lines
from diptych.data.store.tokens import SPECIAL, Tokens
from diptych.runtime.errors import DataError
from diptych.runtime.files import as_text, opened_text, saved_json, text_of
from diptych.vision.features.profile import NAMED_IN, name_of

MARK = "\ufeff"
ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "UTF-8": lambda text: text.encode(),
    "UTF-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "UTF-16, as Excel and Notepad save it": lambda text: (MARK + text).encode("utf-16-le"),
    "UTF-16, big end first": lambda text: (MARK + text).encode("utf-16-be"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "UTF-16, big end first, without a mark": lambda text: text.encode("utf-16-be"),
    "UTF-32": lambda text: text.encode("utf-32"),
}
TABLES = {  # file -> its text, with a caption of a.jpg and one of b.jpg
    "t.csv": 'image,caption\r\na.jpg,"a café, open"\r\nb.jpg,a dog\r\n',
    "sep.csv": 'sep=,\r\nimage,caption\r\na.jpg,"a café, open"\r\nb.jpg,a dog\r\n',
    "quoted.csv": '"sep=,"\nimage,caption\na.jpg,"a café, open"\nb.jpg,a dog\n',
    "sep.tsv": "sep=\t\r\nimage\tcaption\r\na.jpg\ta café, open\r\nb.jpg\ta dog\r\n",
    "t.tsv": "image\tcaption\r\na.jpg\ta café, open\r\nb.jpg\ta dog\r\n",
    "cr.csv": 'image,caption\ra.jpg,"a café, open"\rb.jpg,a dog\r',
    "metadata.csv": 'sep=,\r\nfile_name,text\r\na.jpg,"a café, open"\r\nb.jpg,a dog\r\n',
    "t.jsonl": '{"image": "a.jpg", "captions": ["a café, open"]}\n{"image": "b.jpg", "captions": ["a dog"]}\n',
    "t.json": '{"images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}], "annotations": '
    '[{"id": 1, "image_id": 1, "caption": "a café, open"}, {"id": 2, "image_id": 2, "caption": "a dog"}]}',
    "t.token": "a.jpg#0\ta café, open\nb.jpg#0\ta dog\n",
}


@pytest.fixture(params=ENCODINGS)
def encode(request: pytest.FixtureRequest) -> Callable[[str], bytes]:
    return ENCODINGS[request.param]


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_read_in_each(tmp_path: Path, name: str, encode: Callable[[str], bytes]) -> None:
    for picture in ("a.jpg", "b.jpg"):
        Image.new("RGB", (8, 8)).save(tmp_path / picture)
    (tmp_path / name).write_bytes(encode(TABLES[name]))
    skips = Skips()
    records = read(tmp_path / name, pictures=tmp_path, skips=skips)
    assert [(Path(str(one.image)).name, one.captions) for one in records] == [
        ("a.jpg", ("a café, open",)),
        ("b.jpg", ("a dog",)),
    ]
    assert not skips.counts


def test_texts_of_commands_are_read_in_each(tmp_path: Path, encode: Callable[[str], bytes]) -> None:
    from diptych_mine.lists import read_entries
    from diptych_mine.pages.texts import Vocabularies

    def saved(name: str, text: str) -> Path:
        (tmp_path / name).write_bytes(encode(text))
        return tmp_path / name

    assert text_of(saved("t", "a\r\nb\rc é\n")) == "a\nb\nc é\n"
    assert as_text(encode("a\r\nb")) == "a\r\nb"
    with opened_text(saved("t", "a\r\né\n")) as file:
        assert list(file) == ["a\n", "é\n"]
    assert saved_json(saved("v.json", '{"é": 1}'), dict) == {"é": 1}
    words = Vocabularies.of(saved("bad", "porn\r\nugly\r\n"), saved("known", "kite\r\nbeach\r\n"))
    assert words == Vocabularies(frozenset({"porn", "ugly"}), frozenset({"kite", "beach"}))
    assert read_entries([saved("hosts", "a.test\r\nb.test\r\n")])["hosts"] == ["a.test", "b.test"]
    assert name_of(saved(NAMED_IN, "an extractor\r\n").parent) == "an extractor"
    vocabulary = saved("vocab.txt", "\r\n".join([*SPECIAL, "dog"]) + "\r\n")
    assert Tokens.from_vocabulary(vocabulary, lowercase=True).encode("dog") == [len(SPECIAL)]


def test_labels_and_lists_of_addresses_are_read_in_each(tmp_path: Path, encode: Callable[[str], bytes]) -> None:
    from diptych_mine.pages import inputs
    from diptych_mine.scorer import labelled

    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    line = json.dumps({"image": "a.png", "statement": "a café", "true": True}, ensure_ascii=False)
    (tmp_path / "labels.jsonl").write_bytes(encode(f"{line}\r\n{line}\r\n"))
    pairs, labels, _ = labelled([tmp_path / "labels.jsonl"])
    assert ([pair.text for pair in pairs], labels) == (["a café"] * 2, [True, True])
    for name, text in (
        ("x.tsv", "url\tcaption\nhttp://a.test/k.jpg\ta café\n"),
        ("x.jsonl", '{"url": "http://a.test/k.jpg", "caption": "a café"}\n'),
    ):
        (tmp_path / name).write_bytes(encode(text))
        assert inputs.recognise([tmp_path / name], None)[0].kind == "pairs"
        (entry,) = inputs.lines(tmp_path / name, "pairs")
        assert (entry.address, entry.texts) == ("http://a.test/k.jpg", ("a café",))
    (tmp_path / "list.txt").write_bytes(encode("http://a.test/x.html\n"))
    assert inputs.recognise([tmp_path / "list.txt"], None)[0].kind == "visit"
    assert [one.address for one in inputs.lines(tmp_path / "list.txt", "visit")] == ["http://a.test/x.html"]


@pytest.mark.parametrize(
    "content",
    [b"caf\xe9", b"\xff\xfea", b"\xef\xbb\xbfcaf\xe9", "a café".encode("utf-16")[:-1], b"\xff\xfe\0\0abc"],
)
def test_other_bytes_are_refused_and_replaced_where_asked(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.txt").write_bytes(content)
    with pytest.raises(UnicodeDecodeError):
        text_of(tmp_path / "t.txt")
    assert text_of(tmp_path / "t.txt", "replace").endswith("\ufffd")


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"", ""), (b"a", "a"), (b"a\0", "a"), (b"\0a", "a"), (b"\xef\xbb\xbf", ""), (b"\xff\xfe", ""),
     (b"\0 a dog", "\0 a dog"), (b"a\0 dog runs", "a\0 dog runs"), (b"a dog" + bytes(90), "a dog" + "\0" * 90),
     (bytes(9), "\0" * 9), (bytes(8), "\0" * 8),
     (("a" + "犬" * 9).encode("utf-16"), "a" + "犬" * 9)],
)  # fmt: skip
def test_short_texts_and_single_nuls(content: bytes, text: str) -> None:
    assert as_text(content) == text


def test_latin_1_in_a_table_costs_its_line_or_the_file(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes('{"image": "à.jpg", "captions": ["é"]}'.encode("latin1"))
    with pytest.raises(DataError, match="bytes that are not UTF-8"):
        read(tmp_path / "t.jsonl", need_pictures=False)


def test_the_line_of_excel_keeps_the_numbers_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"sep=,\r\nimage,caption\r\na.jpg\r\n")
    assert first_line(tmp_path / "t.csv") == ("image,caption", True)
    assert [line.strip() for line in read_lines(tmp_path / "t.csv")] == ["", "image,caption", "a.jpg", ""]
    (tmp_path / "t.csv").write_bytes(b"sep=;\r\nimage;caption\r\na.jpg;a dog\r\n")
    with pytest.raises(DataError, match="has columns separated by semicolons; expected commas"):
        read(tmp_path / "t.csv", need_pictures=False)


def test_a_mark_is_no_part_of_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes("a dog\na cat\n".encode("utf-8-sig"))
    assert [Lines(tmp_path / "t.txt")[n] for n in range(2)] == ["a dog", "a cat"]
