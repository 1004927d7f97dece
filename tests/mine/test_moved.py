"""Redirects and revisit records of WARC files are followed; a run that yields nothing gives the reason."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from pathlib import Path

import pytest
from PIL import Image

from diptych.cli import run_verb
from diptych_mine import funnel
from diptych_mine.layout import RunLayout


def picture(seed: int) -> bytes:
    """A JPEG of 640 x 480 pixels, unlike those of other seeds."""
    file = io.BytesIO()
    noise = hashlib.shake_256(str(seed).encode()).digest(3 * 8 * 6)
    Image.frombytes("RGB", (8, 6), noise).resize((640, 480)).save(file, "JPEG")
    return file.getvalue()


def record(
    kind: str, address: str, body: bytes, media: str = "application/http; msgtype=response", **more: str
) -> bytes:
    head = {"WARC-Type": kind, "WARC-Date": "2024-05-01T00:00:00Z", "WARC-Target-URI": address, "Content-Type": media,
            "Content-Length": str(len(body))}  # fmt: skip
    head |= {name.replace("_", "-"): value for name, value in more.items()}
    return b"WARC/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items()).encode() + b"\r\n" + body + b"\r\n\r\n"


def http(body: bytes = b"", media: str = "image/jpeg", status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


def page(host: str, image: str) -> bytes:
    """A page about one image, in English."""
    text = "This is a long and plain English paragraph about the harbour and the people who work there every day. " * 3
    html = (
        f'<html lang="en"><title>The harbour of {host}</title><body><p>{text}</p><figure><img src="{image}" width="640"'
    )
    html += f' height="480" alt="fishing boats of {host} in the harbour at dawn"></figure><p>{text}</p></body></html>'
    return record("response", f"http://{host}.test/", http(html.encode(), "text/html; charset=utf-8"))


def moved(to: str) -> bytes:
    return http(media="text/html", status="301 Moved Permanently", more=f"Location: {to}\r\n")


def sha1(body: bytes) -> str:
    return "sha1:" + base64.b32encode(hashlib.sha1(body).digest()).decode()


REVISIT = b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n\r\n"
A, B, C, D = map(picture, range(4))
FILES = {
    "first.warc": [
        page("a", "http://a.test/a.jpg"),  # a redirect to a redirect, to https
        record("response", "http://a.test/a.jpg", moved("/b.jpg")),
        record("response", "http://a.test/b.jpg", moved("https://a.test/b.jpg")),
        record("response", "https://a.test/b.jpg", http(A)),
        page("b", "http://b.test/x.jpg"),  # a revisit that names the address, whose content is in the other file
        record("revisit", "http://b.test/x.jpg", REVISIT, WARC_Refers_To_Target_URI="http://store.test/b.jpg"),
        page("c", "http://c.test/x.jpg"),  # a revisit with a digest alone
        record("revisit", "http://c.test/x.jpg", REVISIT, WARC_Payload_Digest=sha1(C)),
        record("response", "http://store.test/c.jpg", http(C), WARC_Payload_Digest=sha1(C)),
        page("d", "http://d.test/x.jpg"),  # redirects in a circle
        record("response", "http://d.test/x.jpg", moved("/y.jpg")),
        record("response", "http://d.test/y.jpg", moved("/x.jpg")),
        page("e", "http://e.test/x.jpg"),  # a redirect out of the files
        record("response", "http://e.test/x.jpg", moved("http://other.test/")),
        page("f", "http://f.test/x.jpg"),  # a redirect of another crawl; the image itself is there
        record("response", "http://f.test/x.jpg", moved("/none.jpg")),
    ],
    "second.warc": [
        record("response", "http://store.test/b.jpg", http(B)),
        record("response", "http://f.test/x.jpg", http(D)),
    ],
}


def test_redirects_and_revisits_are_followed_inside_the_files(tmp_path: Path) -> None:
    for name, records in FILES.items():
        (tmp_path / name).write_bytes(b"".join(records))
    words = ["mine", "run", str(tmp_path / "first.warc"), str(tmp_path / "second.warc"), "--out", str(tmp_path / "out")]
    assert run_verb([*words, "--skip-nsfw-check", "--offline"], debug=False) == 0
    layout = RunLayout(tmp_path / "out")
    rows = {row["page"][7]: row for row in funnel.decisions(layout) if row["page"]}
    assert {host: row["reason"] or None for host, row in rows.items()} == {
        "a": None, "b": None, "c": None, "d": "offline", "e": "offline", "f": None,
    }  # fmt: skip
    wanted = {"a": A, "b": B, "c": C, "f": D}
    assert {host: rows[host]["sha256"] for host in wanted} == {
        h: hashlib.sha256(b).hexdigest() for h, b in wanted.items()
    }
    finals = {"a": "https://a.test/b.jpg", "b": "http://store.test/b.jpg", "c": "http://store.test/c.jpg"}
    assert {host: rows[host]["final"] for host in finals} == finals


WET = record("conversion", "http://a.test/", b"The harbour at dawn", "text/plain")
WAT = record("metadata", "http://a.test/", json.dumps({"Envelope": {}}).encode(), "application/json")
PAGE = record("response", "http://a.test/", http(b"<html>The harbour at dawn</html>", "text/html"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (WET, "records: 1 text; WET files (text) have no pages; pass WARC"),
        (WAT, "no picture was found; records: 1 metadata; pass pages that have images"),
        (PAGE, "no picture was found; records: 1 page; pass pages that have images"),
        (page("a", "http://a.test/a.jpg"), "no record is left of 1 picture; by rule: fetch 1; leave out --offline"),
    ],
)
def test_a_run_that_yields_nothing_gives_the_reason(
    content: bytes, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.warc").write_bytes(content)
    words = ["mine", "run", str(tmp_path / "a.warc"), "--out", str(tmp_path / "out"), "--skip-nsfw-check", "--offline"]
    assert run_verb(words, debug=False) == 1
    assert reason in " ".join(capsys.readouterr().err.split())
