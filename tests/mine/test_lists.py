"""Lists of images with texts give the captions alone, and nothing of a val or test split."""

import io
import json
import tarfile
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from diptych_mine.pages import inputs
from diptych_mine.pages.inputs import InputLine
from diptych_mine.pages.tars import tar_lines

URL = "http://a.test/k.jpg"
KITE = InputLine(URL, ("a red kite",))
LEFT_OUT = InputLine(bad="of a val or test split")
SPLITS = ("test", "Validation ", "dev", "testA", "TestB", "testdev", "val2014", "restval", "train", None)


def tabbed(folder: Path, *rows: tuple[str, ...]) -> list[InputLine]:
    (folder / "x.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    return list(inputs.lines(folder / "x.tsv", "pairs"))


def parquet(folder: Path, **columns: list[object]) -> list[InputLine]:
    pq.write_table(pa.table(columns), folder / "x.parquet")
    return list(inputs.lines(folder / "x.parquet", "pairs"))


def packed(folder: Path, *entries: dict[str, object]) -> list[InputLine]:
    with tarfile.open(folder / "x.tar", "w") as tar:
        for number, entry in enumerate(entries):
            for ending, content in (("jpg", b"jpg"), ("json", json.dumps(entry).encode())):
                member = tarfile.TarInfo(f"{number}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return list(tar_lines(folder / "x.tar", "key"))


def test_every_form_leaves_out_the_same_splits(tmp_path: Path) -> None:
    count = len(SPLITS)
    entries = [{"url": URL, "caption": "a red kite", "Split": split} for split in SPLITS]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, entries)))
    read = {
        "json": list(inputs.lines(tmp_path / "x.jsonl", "pairs")),
        "tsv": tabbed(tmp_path, ("url", "caption", "split"), *((URL, "a red kite", one or "") for one in SPLITS)),
        "parquet": parquet(tmp_path, Split=[*SPLITS], URL=[URL] * count, TEXT=["a red kite"] * count),
    }
    assert read == dict.fromkeys(read, [LEFT_OUT] * 7 + [KITE] * 3)
    assert [line.bad for line in packed(tmp_path, *entries)] == [line.bad for line in read["json"]]


def test_a_list_of_captions_gives_each(tmp_path: Path) -> None:
    two = ["a red kite", "it's a kite"]
    assert parquet(tmp_path, url=[URL], caption=[[*two, ""]]) == [InputLine(URL, tuple(two))]
    for written in (json.dumps(two), str(two)):
        assert parquet(tmp_path, url=[URL], captions=[written]) == [InputLine(URL, tuple(two))]
        assert tabbed(tmp_path, ("url", "caption"), (URL, written)) == [InputLine(URL, tuple(two))]
    for texts in (two, str(two)):
        (line,) = packed(tmp_path, {"caption": texts, "url": "http://a.test/"})
        assert (line.texts, line.page) == (tuple(two), "http://a.test/")


def test_captions_of_bytes_are_decoded_and_empty_ones_left_out(tmp_path: Path) -> None:
    read = parquet(tmp_path, url=[URL.encode(), URL.encode()], caption=["a red kité".encode(), None])
    assert read == [InputLine(URL, ("a red kité",)), InputLine(URL)]


@pytest.mark.parametrize(
    "rows",
    [
        [("a red kite", URL, "kite,sky", "/m/01,/m/02", "0.9,0.8")],
        [(URL, "a red kite", "kite,sky")],
        [("7", "a red kite", URL)],
        [(URL, "http://a.test/page.html", "a red kite")],
        [("url", "caption", "labels"), (URL, "a red kite", "kite, sky, sea, sand")],
        [("labels", "TEXT", "Image_URL", "id"), ("kite, sky", "a red kite", URL, "7")],
        [("id", "caption", "photo"), ("7", "a red kite", URL)],
        [("description_of_it", "link"), ("a red kite", URL)],
        [("score", "url", "split", "sentence"), ("0.9", URL, "train", "a red kite")],
    ],
)
def test_of_a_tsv_the_caption_alone_is_read(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    assert tabbed(tmp_path, *rows) == [KITE]


def test_a_caption_may_begin_with_an_address_and_a_label_is_no_caption(tmp_path: Path) -> None:
    caption = "http://a.test/page is a page of kites"
    assert tabbed(tmp_path, (caption, URL)) == [InputLine(URL, (caption,))]
    assert tabbed(tmp_path, ("", URL, "kite, sky")) == [InputLine(URL)]
    assert tabbed(tmp_path, ("url", "caption"), (URL, "a", "kite")) == [InputLine(bad="other columns than the header")]


def written(path: Path, header: bool) -> None:
    texts = [f"a réd kite, {number}" for number in range(10)]
    rows = [f"{URL}\t{text}" for text in texts]
    match path.suffix:
        case ".parquet":
            pq.write_table(pa.table({"url": [URL] * 10, "caption": texts}), path, row_group_size=4)
        case ".tsv":
            path.write_bytes("\r\n \r\n".join([*["url\tcaption"] * header, *rows]).encode("utf-16"))
        case ".jsonl":
            entries = [json.dumps({"url": URL, "caption": text}, ensure_ascii=False) for text in texts]
            path.write_bytes("\r".join(entries).encode("utf-8-sig"))


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("name", ["x.parquet", "x.tsv", "x.jsonl"])
def test_the_shards_of_a_list_together_read_each_entry_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, header: bool
) -> None:
    """A shard that reads the whole list makes a list of millions take weeks."""
    monkeypatch.setattr(inputs, "IN_A_SHARD", 3)
    written(tmp_path / name, header)
    (source,) = inputs.recognise([tmp_path / name], None)
    plans = source.shards()
    assert len({plan["key"] for plan in plans}) == len(plans) == 4
    made, of = [], inputs._line
    monkeypatch.setattr(inputs, "_line", lambda *given: made.append(given) or of(*given))
    read = [[*islice(inputs.lines(tmp_path / name, source.kind, plan["start"]), plan["count"])] for plan in plans]
    assert list(map(len, read)) == [3, 3, 3, 1]
    assert [line.texts[0][-1] for shard in read for line in shard] == list("0123456789")
    assert len(made) == 10
