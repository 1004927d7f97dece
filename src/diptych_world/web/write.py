"""Write the test web to disk in three forms, with its ground truth: WARC files, a folder of HTML, and files to serve.

warc/00000.warc.gz     500 pages per file, with their pictures, except those of hosts with simulated faults
html/HOST/....html     the same pages; html/addresses.tsv has their URLs
files/HOST/...         pictures that the server sends
serving.json           URL -> fault that the server simulates for it
web.json               number of pages, and the seed
truth.jsonl            a line per picture: whether it is the page's dominant picture, its texts, the rule to drop it
"""

import gzip
import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from diptych.runtime.claims import claim_settings
from diptych.runtime.files import saved_json, write_atomically
from diptych.runtime.processes import map_in_processes
from diptych_world.captions import captions
from diptych_world.facts import Facts
from diptych_world.layout import scene
from diptych_world.web.pages import IN_GALLERY, html_of, picture_address
from diptych_world.web.pictures import file_of, original_of, scene_file
from diptych_world.web.plan import PICTURES, REASONS, PageCase, plan

IN_A_WARC = 500
SETTINGS = "web.json"
DATE = "2026-01-15T12:00:00Z"
FAULTS = frozenset(REASONS) | {"chain_5"}  # kinds of pictures that the server does not send as plain files


def write(
    folder: Path, pages: int, seed: int = 0, processes: int = 1, progress: Callable[[int], object] | None = None
) -> None:
    """Write the first `pages` pages. Equal seeds give equal bytes. Raises RecipeError for a folder with others.

    `progress` is called with the number of pages just written.
    """
    claim_settings(folder, SETTINGS, "web", {"pages": pages, "seed": seed}, "another test web")
    firsts = range(0, pages, IN_A_WARC)
    truth: list[str] = []
    listed: list[str] = []
    serving: dict[str, str] = {}
    parts = map_in_processes(partial(_part, folder, pages, seed), firsts, processes, (__name__,))
    for first, (lines, addresses, faults) in zip(firsts, parts, strict=True):
        truth += lines
        listed += addresses
        serving |= faults
        if progress is not None:
            progress(min(IN_A_WARC, pages - first))
    write_atomically(folder / "html" / "addresses.tsv", "".join(listed).encode())
    write_atomically(folder / "serving.json", json.dumps(serving, sort_keys=True).encode())
    write_atomically(folder / "truth.jsonl", "".join(truth).encode())


def settings_of(folder: Path) -> dict[str, int] | None:
    """Return the number of pages and the seed of a test web in a folder, or None if there is none."""
    return saved_json(folder / SETTINGS, dict) if (folder / SETTINGS).exists() else None


def _part(folder: Path, pages: int, seed: int, start: int) -> tuple[list[str], list[str], dict[str, str]]:
    """Write the pages of one WARC file.

    Return the lines of truth.jsonl, the lines of addresses.tsv, and {URL: the fault that the test server shows}.
    """
    warc = [_record("warcinfo", "", b"software: diptych storybook web\r\n", "application/warc-fields")]
    truth: list[str] = []
    listed: list[str] = []
    serving: dict[str, str] = {}
    for number in range(start, min(start + IN_A_WARC, pages)):
        case = plan(seed, number)
        html = html_of(case, seed).encode()
        path = folder / "html" / case.host / case.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(html)
        listed.append(f"{path.relative_to(folder / 'html').as_posix()}\t{case.address}\n")
        warc.append(_record("request", case.address, b"GET / HTTP/1.1\r\n\r\n", "application/http; msgtype=request"))
        warc.append(_page(case, html))
        for address, body, media in _files(seed, case):
            parts = urlsplit(address)
            file = folder / "files" / f"{parts.hostname}{parts.path}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(body)
            if case.picture in FAULTS:
                serving[address] = case.picture
            else:
                warc.append(_response(address, body, media))
        truth += [f"{json.dumps(line, sort_keys=True)}\n" for line in _truth(seed, case)]
    (folder / "warc").mkdir(exist_ok=True)
    write_atomically(folder / "warc" / f"{start // IN_A_WARC:05d}.warc.gz", b"".join(warc))
    return truth, listed, serving


def _files(seed: int, case: PageCase) -> list[tuple[str, bytes, str]]:
    """Return the URL, bytes and media type of each picture of a page."""
    if case.page == "no_picture":
        return []
    if case.page == "gallery":
        return [(picture_address(case, n), *scene_file(seed, plan(seed, case.number + n))) for n in range(IN_GALLERY)]
    return [(picture_address(case), *file_of(seed, case))]


def _truth(seed: int, case: PageCase) -> list[dict[str, Any]]:
    """Return a line of truth.jsonl for each picture in the content of a page: what mining should decide about it."""
    line = {
        "page": case.address, "number": case.number, "template": case.template, "held_out": case.held_out,
        "kind": case.page, "language": case.language, "declared": case.declared, "picture": case.picture,
        "source": case.source, "text": case.text, "drop": case.drop, "reason": REASONS.get(case.picture),
    }  # fmt: skip
    if case.page == "no_picture":
        return [line | {"address": None, "dominant": False, "texts": []}]
    if case.page == "gallery":
        return [line | {"address": picture_address(case, n), "dominant": False, "texts": []} for n in range(IN_GALLERY)]
    shown = original_of(seed, case) if case.picture in ("copy", "resized") else case.scene
    natural = PICTURES[case.picture][1] != "realism"
    texts = [
        {"kind": kind, "text": text, "right": right and shown == case.scene, "rule": rule}
        for kind, (text, right, rule) in case.texts.items()
    ]
    true_texts = list(captions(Random(f"truth {seed} {shown}"), Facts(scene(seed, "web", shown)))) if natural else []
    leading = {"address": picture_address(case), "dominant": True, "texts": texts}
    return [line | leading | {"shows": shown, "captions": true_texts}]


def _page(case: PageCase, html: bytes) -> bytes:
    """Return the WARC record of a page's HTTP response, which is plain, chunked or compressed."""
    headers = "Content-Type: text/html; charset=utf-8\r\n"
    if case.number % 5 == 1:
        html = gzip.compress(html, 6, mtime=0)
        headers += "Content-Encoding: gzip\r\n"
    if case.number % 5 == 2:
        html = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (html[:700], html[700:])) + b"0\r\n\r\n"
        headers += "Transfer-Encoding: chunked\r\n"
    else:
        headers += f"Content-Length: {len(html)}\r\n"
    http = f"HTTP/1.1 200 OK\r\n{headers}\r\n".encode() + html
    return _record("response", case.address, http, "application/http; msgtype=response")


def _response(address: str, body: bytes, media: str) -> bytes:
    """Return the WARC record of a picture's HTTP response."""
    http = f"HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    return _record("response", address, http, "application/http; msgtype=response")


def _record(kind: str, address: str, block: bytes, media: str) -> bytes:
    """Return a compressed WARC record. Its id is a digest of kind and URL, so that equal input gives equal bytes."""
    name = hashlib.sha256(f"{kind} {address}".encode()).hexdigest()
    uuid = f"{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:32]}"
    target = f"WARC-Target-URI: {address}\r\n" if address else ""
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{uuid}>\r\nWARC-Date: {DATE}\r\n{target}"
        f"Content-Type: {media}\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return gzip.compress(head.encode() + block + b"\r\n\r\n", 6, mtime=0)
