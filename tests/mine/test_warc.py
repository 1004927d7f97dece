"""A bad record costs itself, not its file, and every record is accounted for."""

import gzip
import random
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from diptych_mine import funnel
from diptych_mine.layout import RunLayout
from diptych_mine.pages import warc
from diptych_mine.settings import MiningSettings, changed
from tests.support.warcs import HTML, record

from .conftest import run


def kinds(path: Path, content: bytes) -> list[tuple[str, str]]:
    path.write_bytes(content)
    return [(found.kind, found.address.rpartition("/")[2]) for found in warc.read(path)]


GOOD = [("page", str(n)) for n in range(4)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.warc.gz"


def test_plain_members_and_one_member_read_alike(file: Path) -> None:
    parts = [record(n) for n in range(4)]
    assert kinds(file, b"".join(parts)) == GOOD
    assert kinds(file, b"".join(map(gzip.compress, parts))) == GOOD
    assert kinds(file, gzip.compress(b"".join(parts))) == GOOD


def test_bodies_are_unpacked(file: Path) -> None:
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(HTML), HTML)
    file.write_bytes(
        record(0, gzip.compress(HTML), "Content-Encoding: gzip\r\n")
        + record(1, chunked, "Transfer-Encoding: chunked\r\n")
    )
    assert [found.body for found in warc.read(file)] == [HTML, HTML]


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize("headers", [
    "Transfer-Encoding: chunked\r\n", "Content-Encoding: gzip\r\n", "Content-Encoding: br\r\n",
    "Content-Encoding: deflate\r\n", "Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n",
])  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_bodies_saved_decoded_under_the_headers_that_were_sent_are_read(file: Path, headers: str, packed: bool) -> None:
    parts = [record(0, headers=headers), record(1)]
    file.write_bytes(b"".join(map(gzip.compress, parts) if packed else parts))
    assert [(found.kind, found.body) for found in warc.read(file)] == [("page", HTML)] * 2


@pytest.mark.parametrize("body", [zlib.compress(HTML), raw_deflate(HTML)])
def test_deflate_comes_with_a_header_or_without(file: Path, body: bytes) -> None:
    file.write_bytes(record(0, body, "Content-Encoding: deflate\r\n"))
    assert [found.body for found in warc.read(file)] == [HTML]


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_body_that_is_neither_text_nor_as_encoded_is_one_bad_record(file: Path, coding: str, packed: bool) -> None:
    parts = [record(0, bytes(range(256)) * 4, f"Content-Encoding: {coding}\r\n"), record(1)]
    found = kinds(file, b"".join(map(gzip.compress, parts) if packed else parts))
    assert found == [("bad", "0"), ("page", "1")]


@pytest.mark.parametrize(
    ("media", "body", "kind"),
    [
        ("application/octet-stream", b"\xff\xd8\xff\xe0 kite", "picture"),
        ("", b"\x89PNG\r\n kite", "picture"),
        ("", HTML, "page"),
        ("application/octet-stream", b"PK\3\4", "other"),
        ("application/pdf", b"\xff\xd8\xff\xe0 kite", "other"),
    ],
)
def test_untyped_bodies_are_known_by_content(file: Path, media: str, body: bytes, kind: str) -> None:
    assert kinds(file, record(0, body, media=media)) == [(kind, "0")]


def test_headers_of_answers_may_end_in_line_feeds_alone(file: Path) -> None:
    """As in ClueWeb: the body was taken for headers, and its page for something else."""
    file.write_bytes(
        record(0).replace(b"200 OK\r\nContent-Type: text/html\r\n\r\n", b"200 OK\nContent-Type: text/html\n\n   ")
    )
    assert [(found.kind, found.body.strip()) for found in warc.read(file)] == [("page", HTML)]


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_cut_short_tells_of_its_last_record(file: Path, packed: bool) -> None:
    parts = [gzip.compress(record(n)) if packed else record(n) for n in range(4)]
    assert kinds(file, b"".join(parts)[:-40]) == [*GOOD[:3], ("bad", "3")]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("length", [20, 900, 10**9])
def test_a_length_that_lies_costs_its_record_alone(file: Path, packed: bool, length: int) -> None:
    parts = [record(0), record(1, length=length), record(2), record(3)]
    found = kinds(file, b"".join(gzip.compress(part) if packed else part for part in parts))
    assert [one for one in found if one[0] == "page"] == [GOOD[0], GOOD[2], GOOD[3]]
    assert ("bad", "1") in found


@pytest.mark.parametrize("packed", [False, True])
def test_several_faults_and_a_cut_each_cost_their_own_record(file: Path, packed: bool) -> None:
    every = [record(n, length=10**9 if n in (1, 4) else None) for n in range(8)]
    found = kinds(file, b"".join(gzip.compress(one) if packed else one for one in every)[:-40])
    assert [one for one in found if one[0] == "page"] == [("page", str(n)) for n in (0, 2, 3, 5, 6)]
    assert [one for one in found if one[0] == "bad" and one[1]] == [("bad", str(n)) for n in (1, 4, 7)]


def test_rubbish_between_records_is_passed_over_and_told(file: Path) -> None:
    found = kinds(file, record(0) + record(1) + b"rubbish\r\n" * 9 + record(2) + record(3))
    assert [one for one in found if one[0] == "page"] == GOOD
    assert [one for one in found if one[0] == "bad"] == [("bad", "")]


def test_a_damaged_member_costs_itself(file: Path) -> None:
    parts = [bytearray(gzip.compress(record(n))) for n in range(4)]
    parts[2][40:60] = bytes(random.Random(0).randbytes(20))
    with pytest.raises(zlib.error):
        zlib.decompress(parts[2], 31)
    found = kinds(file, b"".join(parts))
    assert {GOOD[0], GOOD[3]} <= set(found)
    assert any(kind == "bad" for kind, _ in found)


@pytest.mark.parametrize(
    "content",
    [b"", b"no WARC at all" * 200, gzip.compress(b"no WARC either" * 200), b"\x1f\x8b\x08 torn"],
    ids=["empty", "text", "gzip", "torn"],
)
def test_what_is_no_warc_is_one_bad_record(file: Path, content: bytes) -> None:
    assert [kind for kind, _ in kinds(file, content)] == ["bad"]


def test_a_body_over_the_limit_is_told_and_not_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc, "MOST_BODY", 1000)
    file.write_bytes(record(0, b"\0" * 5000) + record(1))
    assert [(found.kind, len(found.body) <= 1001) for found in warc.read(file)] == [("large", True), ("page", True)]


@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_great_file_is_cut_between_records_and_its_parts_hold_them_all(
    file: Path, monkeypatch: pytest.MonkeyPatch, packed: bool, bad: bool
) -> None:
    fake = b"\r\n\r\n" + record(99) + gzip.compress(record(98), 0)  # a page that holds what looks like records
    every = [record(n, HTML + fake if n == 2 else HTML, length=900 if bad and n == 5 else None) for n in range(9)]
    content = b"".join(gzip.compress(one, 0) if packed else one for one in every)
    whole = kinds(file, content)
    monkeypatch.setattr(warc, "PART", len(content) // 5)
    parts = warc.parts(file)
    assert len(parts) >= (2 if bad else 3)
    assert [parts[0][0], parts[-1][1]] == [0, len(content)]
    read = [(found.kind, found.address.rpartition("/")[2]) for part in parts for found in warc.read(file, part=part)]
    assert read == whole
    assert {f"page {n}" for n in range(9) if n != 5} <= {f"{kind} {name}" for kind, name in read}


def test_a_file_that_is_one_member_is_not_cut(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds(file, gzip.compress(b"".join(record(n) for n in range(4)), 0))
    monkeypatch.setattr(warc, "PART", 500)
    assert warc.parts(file) == [(0, file.stat().st_size)]


def test_real_files_are_read(data_folder: Path) -> None:
    folder = data_folder / "web"
    files = [folder / "whirlwind.warc.gz", *sorted(folder.glob("warc_edge_cases/*.gz"))]
    assert len(files) == 8
    for path in files:
        assert "bad" not in {found.kind for found in warc.read(path)}, path


def test_a_picture_that_opts_out_or_is_too_large_is_not_taken(tmp_path: Path) -> None:
    """Its verdict is that of a fetch; the page that shows it is read all the same."""
    names = ("good", "asks", "huge")
    page = "".join(f'<article><img src="/{name}.jpg" alt="a red kite over a beach"></article>' for name in names)
    parts = [record(0, f'<html lang="en">{page}'.encode())]
    for name in names:
        body = b"k" * (warc.MOST_BODY + 1 if name == "huge" else 3000)
        headers = "X-Robots-Tag: noai\r\n" if name == "asks" else ""
        parts.append(record(f"{name}.jpg", body, headers, media="image/jpeg"))
    (tmp_path / "x.warc").write_bytes(b"".join(parts))
    out = tmp_path / "out"
    run(out, tmp_path / "x.warc", settings=changed(MiningSettings(offline=True), ["rules.dominant=off"]))
    rows = {row["address"].rpartition("/")[2]: row for row in funnel.decisions(RunLayout(out))}
    assert {name: rows[f"{name}.jpg"]["reason"] for name in names} == {
        "good": "", "asks": "opt-out", "huge": "too large",
    }  # fmt: skip


@pytest.mark.parametrize("told", [-1000, -(10**6), 10**30])
@pytest.mark.parametrize("packed", [False, True])
def test_a_length_that_cannot_be_ends(file: Path, told: int, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One below nothing led back to records before it, without an end."""
    monkeypatch.setattr(warc, "PART", 100)
    parts = [record(0), record(1, length=told), record(2)]
    found = kinds(file, b"".join(map(gzip.compress, parts) if packed else parts))
    assert found[0] == ("page", "0")
    assert len(found) <= 4
    ends = [end for _, end in warc.parts(file)]
    assert ends == sorted(set(ends))
    assert ends[-1] == file.stat().st_size


def zstd(body: bytes) -> bytes:
    return pa.compress(body, codec="zstd", asbytes=True)


@pytest.mark.parametrize("headers", ["Content-Encoding: zstd\r\n", "", "Content-Encoding: gzip\r\n"])
def test_a_body_of_zstd_is_read_whatever_its_header(file: Path, headers: str) -> None:
    file.write_bytes(record(0, zstd(HTML), headers) + record(1, zstd(HTML)[:-9], headers))
    assert [(found.kind, found.body) for found in warc.read(file)] == [("page", HTML), ("bad", b"")]


def test_a_body_of_zstd_is_bounded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc, "MOST_BODY", 1000)
    assert kinds(file, record(0, zstd(b"\0" * 10**7), "Content-Encoding: zstd\r\n")) == [("large", "0")]


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        (f"Content-Range: bytes 0-{len(HTML) - 1}/{len(HTML)}\r\n", "page"),
        (f"Content-Range: bytes 0-{len(HTML) - 1}/*\r\n", "other"),
        (f"Content-Range: bytes 0-{len(HTML) - 1}/{len(HTML) + 1}\r\n", "other"),
        (f"Content-Range: bytes 7-{len(HTML) + 6}/{len(HTML) + 7}\r\n", "other"),
        ("", "other"),
    ],
)
def test_a_part_that_is_the_whole_is_read(file: Path, headers: str, kind: str) -> None:
    assert kinds(file, record(0, headers=headers).replace(b"200 OK", b"206 OK")) == [(kind, "0")]


@pytest.mark.parametrize(
    ("media", "body", "kind"),
    [("text/html", HTML, "page"), ("", HTML, "page"), ("text/plain", HTML, "other"), ("text/html", zstd(HTML), "page")],
)  # fmt: skip
def test_resources_are_read(file: Path, media: str, body: bytes, kind: str) -> None:
    head = (
        f"WARC/1.0\r\nWARC-Type: resource\r\nWARC-Target-URI: http://a.test/0\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
        f"WARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-000000000000>\r\nContent-Type: {media}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    assert kinds(file, head.encode() + body + b"\r\n\r\n") == [(kind, "0")]
