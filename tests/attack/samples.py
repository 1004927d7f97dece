"""Good files of every form that Diptych reads, small, and what reads them."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from tests.attack.folders import own, png, weights
from tests.attack.fuzz import Fuzzer
from tests.attack.parsers import parsers

LINE = {
    "image": "1.png", "captions": ["a dog", "a red dog"], "question": "is it red", "answers": ["yes", "no"],
    "objects": [{"kind": "dog", "box": [1, 2, 3, 4]}], "expression": "the dog", "box": [1, 2, 3, 4], "split": "train",
    "statement": "there is a dog", "true": True, "choices": ["a", "b", "c", "d"], "answer": 0,
    "rationales": ["e", "f", "g", "h"], "rationale": 1, "width": 64, "height": 48,
}  # fmt: skip
LAYOUTS = ("butd_tsv", "lxmert_tsv", "vlp_h5", "vlp_npy", "xmodaler_npz", "mmf/npy", "hf_datasets", "milvlg_npz",
           "vl_bert_json/val2014_resnet101_faster_rcnn_genome.zip")  # fmt: skip
PAGE = b"""<html lang=en><head><title>A page</title><meta name="robots" content="all">
<script type="application/ld+json">{"@type":"ImageObject","contentUrl":"b.png","license":"http://a.test/l"}</script></head><body><h1>Dogs</h1><figure>
<img src=a.png alt='a red dog on the beach' srcset="c.png 2x"><figcaption>A dog runs on the beach</figcaption></figure>
<p>The dog ran and ran over the long beach until it was night there.</p></body></html>"""


def fuzzers(world: Path) -> Iterator[Fuzzer]:
    """What reads records, features, the web, weights, and what Diptych wrote itself, of the attack's world."""
    yield from without_world()
    yield from own(world)


def without_world() -> Iterator[Fuzzer]:
    """The readers of what others wrote."""
    yield from _records()
    yield from _features()
    yield from _web()
    yield from weights()
    yield from parsers()


def _records() -> Iterator[Fuzzer]:
    from tests.support.public_sets import SETS, made

    yield Fuzzer("lines", _lines, lambda folder: _read(folder / "mine.jsonl"))
    for name in ("coco", "flickr8k", "flickr30k-entities", "vqa2", "gqa", "vcr", "refcocog", "visual-genome", "nlvr2",
                 "snli-ve", "cc3m"):  # fmt: skip
        assert name in SETS
        yield Fuzzer(name, partial(_set, made, name), lambda folder: _read(folder / "set.json"))
    yield Fuzzer("instances", _instances, lambda folder: _read(folder / "instances.json"))
    yield Fuzzer("tsv", lambda folder: (folder / "cc.tsv").write_text("a dog\thttp://x/a.jpg\nb\thttp://x/b.jpg\n"),
                 lambda folder: _read(folder / "cc.tsv"))  # fmt: skip
    yield Fuzzer("results", _results, _read_results)


def _read(path: Path) -> object:
    from diptych.data.formats.table import read

    return list(read(path, need_pictures=False))


def _lines(folder: Path) -> None:
    (folder / "mine.jsonl").write_text("".join(json.dumps(LINE | {"image": f"{n}.png"}) + "\n" for n in range(3)))


def _set(made: Callable[[str, Path], object], name: str, folder: Path) -> None:
    made(name, folder)


def _instances(folder: Path) -> None:
    from tests.support.public_files import INSTANCES

    (folder / "instances.json").write_text(json.dumps(INSTANCES))


def _results(folder: Path) -> None:
    (folder / "captions.json").write_text(json.dumps([{"image_id": n, "caption": "a dog"} for n in range(3)]))
    (folder / "answers.json").write_text(json.dumps([{"question_id": n, "answer": "red"} for n in range(3)]))
    (folder / "references.json").write_text(
        json.dumps({"annotations": [{"image_id": n, "caption": "a dog"} for n in range(3)], "images": []})
    )


def _read_results(folder: Path) -> None:
    from diptych.metrics.results import read_answer_results, read_caption_results, read_references

    read_caption_results(folder / "captions.json", ["0", "1", "2"], allow_missing=True)
    read_answer_results(folder / "answers.json", ["0", "1", "2"], allow_missing=True)
    read_references(folder / "references.json")


def _features() -> Iterator[Fuzzer]:
    from tests.support.feature_files import FILES, IDS, read

    yield Fuzzer("npz", _npz, _read_npz)
    for layout in LAYOUTS:
        source = FILES / layout
        if source.exists():
            yield Fuzzer(
                f"features, {layout.partition('/')[0]}",
                partial(_copied, source),
                lambda folder, name=source.name: read(folder / name, IDS[0], (64, 48)),  # type: ignore[misc]
                100,
            )


def _copied(source: Path, folder: Path) -> None:
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, folder / source.name)


def _npz(folder: Path) -> None:
    boxes = np.array([[0, 0, 2, 2]] * 3, np.float32)
    np.savez(folder / "a.npz", features=np.ones((3, 4), np.float32), boxes=boxes, width=64, height=48)


def _read_npz(folder: Path) -> None:
    from diptych.vision.features.npz import read_npz

    read_npz(folder / "a.npz", "a.npz")


def _web() -> Iterator[Fuzzer]:
    yield Fuzzer("WARC", _warc, _read_warc)
    yield Fuzzer("pages", lambda folder: (folder / "a.html").write_bytes(PAGE), _read_page)
    yield Fuzzer("addresses with texts", _addresses, _read_addresses)
    yield Fuzzer("robots.txt", _robots, _read_robots)
    yield Fuzzer("pictures", _pictures, _read_pictures, 100)
    yield Fuzzer("lists", lambda folder: (folder / "l.txt").write_text(f"a.test\n{'a' * 64}\n# x\nhttp://a.test/b\n"),
                 _read_lists)  # fmt: skip


def _warc(folder: Path) -> None:
    body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + PAGE
    records = [
        b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.test/%d\r\nContent-Type: application/http\r\n"
        b"Content-Length: %d\r\n\r\n%s\r\n\r\n" % (n, len(body), body)
        for n in range(4)
    ]
    (folder / "a.warc").write_bytes(b"".join(records))
    (folder / "b.warc.gz").write_bytes(b"".join(map(gzip.compress, records)))


def _read_warc(folder: Path) -> None:
    from diptych_mine.pages.warc import parts, read

    for path in sorted(folder.iterdir()):
        list(read(path))
        parts(path)


def _read_page(folder: Path) -> None:
    from diptych_mine.pages.pages import read_page, settle
    from diptych_mine.pages.texts import Vocabularies
    from diptych_mine.settings import MiningSettings

    settings = MiningSettings(offline=True)
    body = (folder / "a.html").read_bytes()
    for charset in (None, "utf-16", "no such"):
        page = read_page(
            "http://a.test/x", body, settings, Vocabularies.of(None, None), charset, [("X-Robots-Tag", "é")]
        )
        settle([page], settings, Vocabularies.of(None, None))


def _addresses(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    line = {"url": "http://a.test/k.jpg", "caption": "a red kite over a beach", "page": "http://a.test"}
    (folder / "a.jsonl").write_text(json.dumps(line) + "\n" + json.dumps(line) + "\n")
    (folder / "b.tsv").write_text("a red kite over a beach\thttp://a.test/k.jpg\nno address here\n")
    pq.write_table(pa.table({"TEXT": ["a kite", None], "URL": ["http://a.test/k.jpg", None]}), folder / "c.parquet")
    picture = png()
    import tarfile

    with tarfile.open(folder / "d.tar", "w") as tar:
        for name, content in (("1.png", picture), ("1.txt", b"a dog"), ("1.json", json.dumps(line).encode())):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def _read_addresses(folder: Path) -> None:
    from diptych_mine.pages import inputs
    from diptych_mine.pages.tars import tar_lines

    inputs.recognise([folder / "a.jsonl"], None)
    for path in sorted(folder.iterdir()):
        for kind in () if path.suffix == ".tar" else ("pairs", "visit", "pictures"):
            if path.suffix != ".parquet" or kind == "pairs":
                list(inputs.lines(path, kind))
    list(tar_lines(folder / "d.tar", "key"))


def _robots(folder: Path) -> None:
    (folder / "robots.txt").write_text("User-agent: *\nDisallow: /a*b$\nCrawl-delay: 3\nAllow: /a\n\nSitemap: x\n")


def _read_robots(folder: Path) -> None:
    from diptych.runtime.files import as_text
    from diptych_mine.fetch.hosts import Robots, seconds_of

    text = as_text((folder / "robots.txt").read_bytes(), "replace")
    robots = Robots(text, "diptych")
    robots.allows("http://a.test/ab")
    assert robots.delay >= 0
    seconds_of(text[:50])


def _pictures(folder: Path) -> None:
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "AVIF"):
        (folder / f"a.{kind.lower()}").write_bytes(png(kind))


def _read_pictures(folder: Path) -> None:
    from diptych.runtime.errors import DataError
    from diptych.vision.pictures import open_picture
    from diptych_mine.judge.decode import measure
    from diptych_mine.settings import MiningSettings

    for path in sorted(folder.iterdir()):
        measure(path.read_bytes(), MiningSettings(offline=True).pictures)
        try:
            open_picture(path)
        except DataError:
            continue


def _read_lists(folder: Path) -> None:
    from diptych_mine.lists import lists_of

    lists_of([folder / "l.txt"], 4).refuse("http://a.test/b")
