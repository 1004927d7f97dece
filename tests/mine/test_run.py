"""Whole runs: the sums of the funnel, what comes out, going on, refusing, and the same bytes whoever makes them."""

import hashlib
import io
import json
import shutil
import sys
import tarfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from PIL import Image

from diptych.cli import run_verb
from diptych.data.formats import table as formats
from diptych.runtime.errors import DataError, DiptychError, OutputError, RecipeError
from diptych_mine import funnel
from diptych_mine.fetch.fetching import OPT_OUTS
from diptych_mine.forgetting import forget
from diptych_mine.keep.tars import write_tars
from diptych_mine.layout import RunLayout
from diptych_mine.settings import MiningSettings, changed, checked
from diptych_world.book import Storybook
from diptych_world.render import render
from tests.support.webs import Live

from .conftest import digest, run

OFFLINE = MiningSettings(offline=True)


def test_what_was_dropped_and_what_is_kept_add_up_to_all_that_came_in(mined: tuple[Path, dict[str, Any]]) -> None:
    out, told = mined
    assert told["kept"] > 20
    assert sum(line["dropped"] for line in told["rules"].values()) + told["kept"] == told["pictures"]
    rows = list(funnel.decisions(RunLayout(out)))
    assert len(rows) == told["pictures"]
    assert {row["dropped_by"] for row in rows} - {None} <= set(told["rules"])
    for line in told["rules"].values():
        assert line["only"] <= line["alone"]
        assert line["dropped"] <= min(line["alone"], line["seen"])
    records = told["inputs"]
    kinds = sum(count for name, count in records.items() if name.startswith("records "))
    assert kinds == records["records"]


def test_records_are_read_as_data_and_name_pictures_that_are_there(mined: tuple[Path, dict[str, Any]]) -> None:
    out, told = mined
    records = formats.read(out)
    assert len(records) == told["kept"]
    lines = [json.loads(line) for path in sorted(out.glob("records/*")) for line in path.read_text().splitlines()]
    for record, line in zip(records, lines, strict=True):
        assert record.image == out / line["image"]
        assert hashlib.sha256((out / line["image"]).read_bytes()).hexdigest() == line["sha256"]
        assert record.captions == tuple(line["captions"])
        assert record.split == "train"
    assert {path.relative_to(out).as_posix() for path in out.glob("pictures/*/*")} == {line["image"] for line in lines}


def test_the_truth_of_the_web_is_met_where_rules_are_exact(small_web: Path, mined: tuple[Path, dict[str, Any]]) -> None:
    rows = {(row["page"], row["address"]): row for row in funnel.decisions(RunLayout(mined[0]))}
    exact = {"language", "opt_out", "sides", "ratio", "unreadable", "one_colour", "pixels"}
    seen = list[str]()
    for line in map(json.loads, (small_web / "truth.jsonl").read_text().splitlines()):
        row = rows.get((line["page"], line["address"]))
        if line["dominant"] and line["drop"] in exact and row is not None and "dominant" not in row["fails"]:
            assert row["dropped_by"] == line["drop"], line
            seen.append(line["drop"])
    assert len(seen) >= 8
    assert "opt_out" in seen, "pages with meta tags such as noai"


def test_the_same_again_makes_nothing_and_changes_nothing(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(mined[0], out)
    before, shards = digest(out), {path: path.stat().st_mtime_ns for path in out.glob("work/*/*.parquet")}
    run(out, small_web / "warc")
    assert digest(out) == before
    assert {path: path.stat().st_mtime_ns for path in out.glob("work/*/*.parquet")} == shards


def test_another_early_setting_is_refused_with_the_difference_and_a_later_one_is_not(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(mined[0], out)
    with pytest.raises(RecipeError, match=r"pages.language: 0.9, was 0.8"):
        run(out, small_web / "warc", settings=changed(OFFLINE, ["rules.language=0.9"]))
    pages = {path: path.stat().st_mtime_ns for path in out.glob("work/pages/*")}
    told = run(out, small_web / "warc", settings=changed(OFFLINE, ["rules.sides=400"]))
    assert told["rules"]["sides"]["dropped"] > 10
    assert {path: path.stat().st_mtime_ns for path in out.glob("work/pages/*")} == pages
    assert len(list(out.glob("pictures/*/*"))) == told["kept"]


def test_live_the_hosts_are_treated_as_they_ask_and_each_answer_has_its_verdict(
    small_web: Path, tmp_path: Path
) -> None:
    with Live(small_web, patience=3) as server:
        settings = live(server.port)
        told = run(tmp_path / "out", small_web / "html", settings=settings)
        asked = len(server.log)
        run(tmp_path / "out", small_web / "html", settings=settings)
        assert len(server.log) == asked, "pictures were fetched twice"
        log = list(server.log)
    assert told["kept"] > 20
    assert not [one for one in log if one.path.startswith("/closed/")]
    assert max(one.at_once for one in log) <= 2
    assert all("(+x@a.test)" in one.agent for one in log)
    rows = {(row["page"], row["address"]): row for row in funnel.decisions(RunLayout(tmp_path / "out"))}
    for line in map(json.loads, (small_web / "truth.jsonl").read_text().splitlines()):
        row = rows.get((line["page"], line["address"]))
        if row is not None and line["reason"] is not None and row["status"] is not None:
            assert row["reason"] == line["reason"], line


def test_pictures_with_captions_tars_and_addresses_are_inputs_too(
    mined: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out, told = mined
    layout = RunLayout(out)
    kept = sorted((row for row in funnel.decisions(layout) if row["kept"] is not None), key=lambda row: row["sha256"])
    foreign = tmp_path / "lines" / "records" / "mine.jsonl"
    from_lines = run(tmp_path / "lines", write_lines(out, tmp_path / "mine.jsonl"), tars=tmp_path / "tars-of-lines")
    assert from_lines["kept"] == told["kept"]
    foreign.write_text("no record\n")
    for folder, of in ((tmp_path / "tars", layout), (tmp_path / "tars-of-lines", RunLayout(tmp_path / "lines"))):
        write_tars(folder, of)
        lines = map(json.loads, (of.records / "00000.jsonl").read_text().splitlines())
        with tarfile.open(folder / "00000.tar") as tar:
            written = [json.load(tar.extractfile(name)) for name in tar.getnames() if name.endswith(".json")]
        wanted = [(line["sha256"], line["captions"][0], line["score"]) for line in lines]
        assert [(one["sha256"], one["caption"], one["score"]) for one in written] == wanted
    with tarfile.open(tmp_path / "tars" / "00000.tar") as tar:
        names = tar.getnames()
    assert names[:3] == [f"000000000.{kept[0]['type']}", "000000000.txt", "000000000.json"]
    assert run(tmp_path / "from-tars", tmp_path / "tars")["kept"] == told["kept"]


def write_lines(out: Path, path: Path) -> Path:
    lines = [json.loads(line) for file in sorted(out.glob("records/*")) for line in file.read_text().splitlines()]
    told = [{"image": str(out / line["image"]), "captions": line["captions"]} for line in lines]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in told))
    return path


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [("x.csv", b"a,b", "cannot be mined"), ("x.jsonl", b"{", "not JSON"), ("x.jsonl", b'{"a": 1}', "neither")],
)
def test_inputs_that_cannot_be_are_named(tmp_path: Path, name: str, content: bytes, match: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RecipeError, match=match):
        run(tmp_path / "out", tmp_path / name)


def test_an_extra_that_is_not_there_is_one_sentence(
    small_web: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastwarc.warc", None)
    with pytest.raises(DiptychError, match=r"fastwarc\.warc, of the extra `mine`"):
        run(tmp_path / "out", small_web / "warc")


def test_pages_that_are_listed_are_fetched_and_not_offline(small_web: Path, tmp_path: Path) -> None:
    pages = [line.split("\t")[1] for line in (small_web / "html" / "addresses.tsv").read_text().splitlines()][:12]
    (tmp_path / "pages.txt").write_text("\n".join(pages))
    with pytest.raises(RecipeError, match="leave out --offline"):
        run(tmp_path / "out", tmp_path / "pages.txt")
    with Live(small_web, patience=1) as server:
        told = run(tmp_path / "live", tmp_path / "pages.txt", settings=live(server.port))
        assert {f"http://{one.host}{one.path}" for one in server.log} >= set(pages)
    assert told["inputs"]["pages"] == len(pages)


def test_what_failed_is_fetched_again_when_asked_and_only_what_may_pass(tmp_path: Path) -> None:
    bodies = {f"/{n}.png": png(render(scene, 2)) for n, scene in enumerate(Storybook(0, "web", 2)[:])}
    asked, mended = list[str](), list[bool]()

    class Host(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = bodies.get(self.path, b"")
            status = 503 if self.path == "/1.png" and not mended else 200 if body else 404
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    (tmp_path / "x.tsv").write_text(
        "".join(
            f"http://a.test/{n}.png\ta red kite over a beach, number {word}\n"
            for n, word in enumerate(("one", "two", "three"))
        )
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), Host) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        settings = live(server.server_address[1])
        settings = settings.model_copy(update={"fetch": settings.fetch.model_copy(update={"retries": 0})})

        def again(**more: bool) -> tuple[int, dict[str, int], list[str]]:
            before = len(asked)
            funnel = run(tmp_path / "out", tmp_path / "x.tsv", settings=settings, **more)
            return funnel["kept"], funnel["failures"], sorted(asked[before:])

        first = again()
        paths = sorted(["/robots.txt", *OPT_OUTS, "/0.png", "/1.png", "/2.png"])
        assert first == (1, {"server error": 1, "status 404": 1}, paths)
        assert again() == (*first[:2], [])
        mended.append(True)
        assert again(retry_failed=True) == (2, {"status 404": 1}, ["/1.png"])
        assert again() == (2, {"status 404": 1}, [])
        server.shutdown()


@pytest.mark.parametrize("listed", ["refused", "forgotten"])
def test_a_list_holds_for_where_a_picture_was_at_last_and_for_its_page(tmp_path: Path, listed: str) -> None:
    body, asked = png(render(Storybook(0, "web", 1)[0], 2)), list[str]()

    class Host(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.headers['Host'].partition(':')[0]}{self.path}")
            moves = asked[-1] == "a.test/moves.png"
            self.send_response(302 if moves else 404 if self.path == "/robots.txt" else 200)
            self.send_header("Content-Length", "0" if moves else str(len(body)))
            if moves:
                self.send_header("Location", "http://b.test/k.png")
            self.end_headers()
            self.wfile.write(b"" if moves else body)

        def log_message(self, *_: object) -> None: ...

    lines = [
        {"url": "http://a.test/moves.png", "caption": "a red kite over a beach"},
        {"url": "http://a.test/paged.png", "caption": "two dogs on a beach", "page": "http://b.test/"},
    ]
    (tmp_path / "x.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "list").write_text("b.test\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), Host) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        more = {"settings": live(server.server_address[1])}
        if listed == "forgotten":
            assert run(tmp_path / "out", tmp_path / "x.jsonl", **more)["kept"] == 1, "of two that are the same"
            assert forget(tmp_path / "out", [tmp_path / "list"]) == 1
            assert not list((tmp_path / "out/pictures").glob("*/*"))
        told = run(tmp_path / "out", tmp_path / "x.jsonl", **more, **_refusing(listed, tmp_path))
        server.shutdown()
    assert told["kept"] == 0
    assert told["rules"]["refused"]["dropped"] == 2
    if listed == "refused":
        opt_outs = [f"a.test{path}" for path in OPT_OUTS]
        assert asked == ["a.test/robots.txt", *opt_outs, "a.test/moves.png"]


def _refusing(listed: str, folder: Path) -> dict[str, Any]:
    return {"refuse": [folder / "list"]} if listed == "refused" else {}


def test_tars_of_a_run_with_fewer_records_replace_all_of_the_earlier_ones(tmp_path: Path) -> None:
    layout, line = RunLayout(tmp_path / "out"), {"captions": ["a kite"], "address": "http://a.test/k.png"}
    layout.records.mkdir(parents=True)
    scenes = [png(render(scene, 2)) for scene in Storybook(0, "web", 3)[:]]
    lines = [line | {"sha256": hashlib.sha256(one).hexdigest(), "image": "k.png"} for one in scenes]
    lines = [one | dict.fromkeys(("width", "height", "page", "licence", "score", "by"), 0) for one in lines]
    for one, content in zip(lines, scenes, strict=True):
        path = layout.picture(one["sha256"], "png")
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    tars = tmp_path / "tars"
    for count, left in ((3, ["00000.tar", "00001.tar"]), (1, ["00000.tar"]), (0, [])):
        (layout.records / "00000.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines[:count]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("diptych_mine.keep.tars.IN_A_TAR", 2)
            write_tars(tars, layout)
        assert sorted(path.name for path in tars.glob("*.tar")) == left
    (tars / "00007.tar").write_bytes(b"of the user")
    with pytest.raises(OutputError, match=r"00007\.tar exists, and Diptych did not write it"):
        write_tars(tars, layout)
    assert (tars / "00007.tar").read_bytes() == b"of the user"


def test_tars_of_one_name_keep_each_its_own_pictures(tmp_path: Path) -> None:
    """img2dataset calls every set's first shard 00000.tar."""
    said = {"a": "a red kite over a beach", "b": "two dogs in a garden"}
    made = {}
    for (folder, text), scene in zip(said.items(), Storybook(0, "web", 2)[:], strict=True):
        made[text] = png(render(scene, 2))
        (tmp_path / folder).mkdir()
        with tarfile.open(tmp_path / folder / "00000.tar", "w") as tar:
            for name, content in (("0.png", made[text]), ("0.txt", text.encode())):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    assert run(tmp_path / "out", tmp_path / "a", tmp_path / "b")["kept"] == 2
    for record in formats.read(tmp_path / "out"):
        assert record.image.read_bytes() == made[record.captions[0]]


def png(pixels: Any) -> bytes:
    kept = io.BytesIO()
    Image.fromarray(pixels).save(kept, "PNG")
    return kept.getvalue()


def live(port: int) -> MiningSettings:
    settings = changed(MiningSettings(), ["fetch.rate=50", "fetch.first_byte=1", "fetch.whole=2", "fetch.backoff=0"])
    fetch = settings.fetch.model_copy(update={
        "contact": "x@a.test", "allow": ("127.0.0.0/8",), "rest": 0.0,
        "resolve": ("rebinding.test=10.0.0.1", f"*.test=127.0.0.1:{port}"),
    })  # fmt: skip
    return settings.model_copy(update={"fetch": fetch})


def test_a_folder_of_something_else_is_not_written_to(tmp_path: Path, small_web: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(RecipeError, match="expected an empty folder or one of kind mined; choose another"):
        run(tmp_path, small_web / "warc")


def test_damaged_work_is_named_with_the_way_out(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(mined[0], out)
    next(out.glob("work/pages/*.parquet")).write_bytes(b"PAR1 torn")
    with pytest.raises(DataError, match="remove it"):
        run(out, small_web / "warc")


def test_a_picture_of_one_colour_and_a_bomb_are_told_by_hand() -> None:
    from diptych_mine.judge.decode import measure

    def png(image: Image.Image) -> bytes:
        kept = io.BytesIO()
        image.save(kept, "PNG")
        return kept.getvalue() + b"\0" * 3000

    rules = MiningSettings().pictures
    assert measure(png(Image.new("RGB", (301, 400), "red")), rules)[1] == ["one_colour"]
    assert measure(png(Image.new("L", (300, 400))), rules)[1] == ["sides"]
    assert measure(png(Image.new("L", (301, 903))), rules)[1] == ["one_colour"], "of the ratio that is allowed"
    assert measure(png(Image.new("L", (301, 904))), rules)[1] == ["ratio"]
    assert measure(png(Image.new("1", (12_000, 12_000))), rules)[1] == ["pixels"]
    assert measure(b"<html>" * 900, rules)[1] == ["unreadable"]
    assert measure(b"x", rules)[1] == ["small_file", "unreadable"]


def test_sentences_nearby_count_only_if_asked_for(
    mined: tuple[Path, dict[str, Any]], small_web: Path, tmp_path: Path
) -> None:
    assert mined[1]["rules"]["kinds"]["dropped"] > 0
    assert "near" not in mined[1]["kinds"]
    values = checked(MiningSettings(offline=True).model_dump() | {"keep": {"kinds": ["near", "alt"]}})
    counts = run(shutil.copytree(mined[0], tmp_path / "out"), small_web / "warc", settings=values)
    assert set(counts["kinds"]) == {"near", "alt"}
    with pytest.raises(RecipeError, match=r"kinds.*'figcaption', 'alt', 'title', 'caption' or 'near'"):
        checked(MiningSettings().model_dump() | {"keep": {"kinds": ["body"]}})


def test_set_wins_over_the_default_of_an_option(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a red kite over a beach\thttp://a.test/k.jpg\n")
    given = ("--offline", "--skip-nsfw-check", "--until", "pages", "--set", "rules.licence=cc", "--texts", "alt,title")
    assert run_verb(["mine", "run", str(tmp_path / "x.tsv"), "--out", str(tmp_path / "out"), *given], False) == 0
    keep = json.loads((tmp_path / "out" / "mine.json").read_text())["keep"]
    assert (keep["licence"], keep["kinds"], keep["host_pairs"]) == ("cc", ["alt", "title"], None)
