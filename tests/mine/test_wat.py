"""A WAT file of Common Crawl, which has metadata instead of pages, is read as pages of metas and images."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from diptych.runtime.errors import RecipeError
from diptych_mine import funnel
from diptych_mine.layout import RunLayout
from diptych_mine.pages import warc
from diptych_mine.pages.inputs import recognise
from diptych_mine.settings import MiningSettings, changed

from .conftest import run

PAGE = "https://boats.test/harbour/"
METAS = [{"name": "description", "content": "Boats"}, {"property": "og:image", "content": "/boat.jpg"}]
LINKS = [
    {"path": "IMG@/src", "url": "/boat.jpg", "alt": 'A red boat near the "old" harbour'},
    {"path": "IMG@/src", "url": "dog.jpg", "alt": "A dog that sleeps on the warm stones of a quay"},
    {"path": "IMG@/src", "url": "plain.jpg"},
    {"path": "A@/href", "url": "/next", "text": "Next page"},
]


def envelope(status: object = "200", links: Any = LINKS, metas: Any = METAS, **headers: Any) -> dict[str, Any]:
    """Return the JSON of a response as ia-web-commons writes it."""
    head = {"Metas": metas, "Title": "Boats & dogs", "Base": "https://pictures.test/a/"}
    http = {
        "Response-Message": {"Status": status, "Version": "HTTP/1.1", "Reason": "OK"},
        "Headers": {"Content-Type": "text/html", **headers}, "HTML-Metadata": {"Head": head, "Links": links},
    }  # fmt: skip
    return {"Envelope": {"Payload-Metadata": {"HTTP-Response-Metadata": http}, "Format": "WARC/1.0"}}


def wat(*contents: Any) -> bytes:
    records = []
    for content in contents:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        head = (
            f"WARC/1.0\r\nWARC-Type: metadata\r\nWARC-Target-URI: {PAGE}\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
            "WARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-000000000000>\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        records.append(gzip.compress(head.encode() + body + b"\r\n\r\n"))
    return b"".join(records)


def mined(folder: Path, *contents: Any, **rules: Any) -> dict[str, Any]:
    """Mine offline, and return the verdict on each image by the last part of its URL."""
    path = folder / "a.warc.wat.gz"
    path.write_bytes(wat(*contents))
    settings = changed(MiningSettings(offline=True), [f"rules.{name}={value}" for name, value in rules.items()])
    run(folder / "out", path, settings=settings)
    return {row["address"].rpartition("/")[2]: row for row in funnel.decisions(RunLayout(folder / "out"))}


def test_the_image_of_the_page_leads_and_urls_begin_at_its_base(tmp_path: Path) -> None:
    rows = mined(tmp_path, envelope())
    assert {row["page"] for row in rows.values()} == {PAGE}
    boat = rows["boat.jpg"]
    assert boat["address"] == "https://pictures.test/boat.jpg"
    assert rows["dog.jpg"]["address"] == "https://pictures.test/a/dog.jpg"
    assert [text["text"] for text in boat["texts"]] == ['A red boat near the "old" harbour']
    assert boat["title"] == "Boats & dogs"
    assert "dominant" in rows["dog.jpg"]["fails"]
    assert "dominant" not in boat["fails"]


def test_without_a_dominant_image_each_alt_is_kept(tmp_path: Path) -> None:
    rows = mined(tmp_path, envelope(), dominant="off")
    assert {name: len(row["texts"]) for name, row in rows.items()} == {"boat.jpg": 1, "dog.jpg": 1, "plain.jpg": 0}


@pytest.mark.parametrize(
    ("metas", "headers"),
    [
        ([{"name": "robots", "content": "noai"}], {}),
        ([], {"X-Robots-Tag": "noimageai"}),
        ([], {"X-Robots-Tag": ["all", "noai"]}),
        ([], {"tdm-reservation": "1"}),
    ],
)
def test_an_opt_out_holds(metas: Any, headers: dict[str, Any], tmp_path: Path) -> None:
    rows = mined(tmp_path, envelope(metas=metas, **headers))
    assert all("opt_out" in row["fails"] for row in rows.values())
    assert len(rows) == 3


@pytest.mark.parametrize(
    "content",
    [
        envelope("404"), envelope(200), b"[]", {"Envelope": []}, {"Envelope": {"Payload-Metadata": 3}},
        {"Envelope": {"Payload-Metadata": {"HTTP-Request-Metadata": {}}}},
    ],
)  # fmt: skip
def test_other_metadata_are_counted_and_not_read(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.warc.wat.gz"
    path.write_bytes(wat(content, envelope()))
    assert [record.kind for record in warc.read(path)] == ["metadata", "page"]


@pytest.mark.parametrize("content", [b"{", b"\xff", b""])
def test_metadata_that_are_not_json_are_bad(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.warc.wat.gz"
    path.write_bytes(wat(content, envelope()))
    assert [(record.kind, record.why) for record in warc.read(path)] == [
        ("bad", "metadata that are not JSON"), ("page", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["a.wacz", "a.arc", "b.ARC.GZ"])
def test_files_to_be_converted_first_are_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "z.warc.wat.gz").write_bytes(wat(envelope()))
    (tmp_path / name).write_bytes(b"PK\3\4 not read")
    with pytest.raises(RecipeError, match=rf"{name} cannot be mined; expected WARC or WAT files \(unpack a .wacz"):
        recognise([tmp_path], None)


@pytest.mark.parametrize("rule", ["top=0.3", "score=0.5"])
def test_rules_about_scores_need_a_scorer(rule: str, tmp_path: Path) -> None:
    settings = changed(MiningSettings(offline=True), [f"rules.{rule}"])
    with pytest.raises(RecipeError, match="compare scores of pairs; pass --scorer"):
        run(tmp_path / "out", tmp_path, settings=settings)


@pytest.mark.parametrize("links", [None, 3, ["x"], [{"path": 3}], [{"path": "IMG@/src", "url": 5, "alt": ["x"]}]])
@pytest.mark.parametrize("metas", [None, "x", [3], [{"name": 4, "content": None}]])
def test_links_and_metas_of_another_kind_are_left_out(links: Any, metas: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.warc.wat.gz"
    path.write_bytes(wat(envelope(links=links, metas=metas, Other=None)))
    (record,) = warc.read(path)
    assert record.kind == "page"
    assert b"boat" not in record.body


def test_markup_in_a_text_stays_text(tmp_path: Path) -> None:
    alt = '"><img src=/other.jpg alt="A second image of the quay">'
    rows = mined(tmp_path, envelope(links=[{"path": "IMG@/src", "url": "/boat.jpg", "alt": f"A boat {alt}"}]))
    assert [*rows] == ["boat.jpg"]
