"""Whole runs: the sums of the funnel, what comes out, going on, refusing, and the same bytes whoever makes them."""

import errno
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from PIL import Image

from diptych.errors import DataError, DiptychError, RecipeError
from diptych.mining import funnel
from diptych.mining.layout import Layout
from diptych.mining.settings import Settings, changed
from diptych.mining.writing import write_tars
from diptych.sources import formats
from diptych.sources.storybook import Storybook, render
from diptych.sources.storybook.web.serve import Live

from .conftest import run

OFFLINE = Settings(offline=True)


def digest(out: Path) -> str:
    """Of records, verdicts and the funnel."""
    told = hashlib.sha256()
    for path in sorted([*out.glob("records/*"), *out.glob("decisions/*"), out / "funnel.json"]):
        told.update(f"{path.relative_to(out)}\0".encode() + path.read_bytes())
    return told.hexdigest()


def test_what_was_dropped_and_what_is_kept_add_up_to_all_that_came_in(mined: tuple[Path, dict[str, Any]]) -> None:
    out, told = mined
    assert told["kept"] > 20
    assert sum(line["dropped"] for line in told["rules"].values()) + told["kept"] == told["pictures"]
    rows = list(funnel.decisions(Layout(out)))
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
    rows = {(row["page"], row["address"]): row for row in funnel.decisions(Layout(mined[0]))}
    exact = {"language", "opt_out", "sides", "ratio", "unreadable", "one_colour", "pixels"}
    seen = 0
    for line in map(json.loads, (small_web / "truth.jsonl").read_text().splitlines()):
        row = rows.get((line["page"], line["address"]))
        if line["dominant"] and line["drop"] in exact and row is not None and "dominant" not in row["fails"]:
            assert row["dropped_by"] == line["drop"], line
            seen += 1
    assert seen >= 8


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
    with pytest.raises(RecipeError, match=r"pages.language: 0.8 before, 0.9 now"):
        run(out, small_web / "warc", settings=changed(OFFLINE, ["rules.language=0.9"]))
    pages = {path: path.stat().st_mtime_ns for path in out.glob("work/pages/*")}
    told = run(out, small_web / "warc", settings=changed(OFFLINE, ["rules.sides=400"]))
    assert told["rules"]["sides"]["dropped"] > 10
    assert {path: path.stat().st_mtime_ns for path in out.glob("work/pages/*")} == pages
    assert len(list(out.glob("pictures/*/*"))) == told["kept"]


def split(small_web: Path, folder: Path) -> list[Path]:
    """The one WARC in three, cut between records."""
    import zlib

    content = next((small_web / "warc").glob("*")).read_bytes()
    ends, at = [], 0
    while at < len(content):
        reader = zlib.decompressobj(31)
        reader.decompress(content[at:])
        at = len(content) - len(reader.unused_data)
        ends.append(at)
    first, second = ends[len(ends) // 3], ends[2 * len(ends) // 3]
    parts = [content[:first], content[first:second], content[second:]]
    paths = [folder / f"{n}.warc.gz" for n in range(3)]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(part)
    return paths


def test_processes_and_the_order_of_inputs_give_the_same_bytes(small_web: Path, tmp_path: Path) -> None:
    parts = split(small_web, tmp_path)
    run(tmp_path / "one", *parts)
    run(tmp_path / "two", *reversed(parts), workers=2)
    run(tmp_path / "three", parts[1], parts[2], parts[0], workers=3)
    assert digest(tmp_path / "one") == digest(tmp_path / "two") == digest(tmp_path / "three")


def test_a_great_file_in_parts_gives_the_same_records(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diptych.mining.warc.PART", 500_000)
    summary = run(tmp_path / "out", small_web / "warc")
    assert len(list((tmp_path / "out" / "decisions").iterdir())) > 2
    assert summary == mined[1]
    for folder in ("records", "pictures"):
        assert tree(tmp_path / "out" / folder) == tree(mined[0] / folder)


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


BY_ENGINE = """
import os
import signal
import sys
from pathlib import Path

from diptych import engine
from diptych.mining import run
from diptych.mining.settings import Settings

out, name, *given = sys.argv[1:]
mark = Path(out).with_suffix(".killed")


class KilledOnce:
    def __init__(self, work):
        self.work = work

    def __call__(self, name):
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.work(name)


if __name__ == "__main__":
    if name == "ray":
        run.run_shards = lambda work, *others: engine.run(KilledOnce(work), *others)
    run.Mine(Path(out), [Path(one) for one in given], Settings(offline=True), engine=name, workers=2).run()
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["daft", "ray"])
def test_engines_give_the_same_bytes(small_web: Path, tmp_path: Path, engine: str) -> None:
    """Under Ray a worker is killed at its first shard."""
    parts = split(small_web, tmp_path)
    run(tmp_path / "one", *parts)
    (tmp_path / "by_engine.py").write_text(BY_ENGINE)
    subprocess.run(
        [sys.executable, tmp_path / "by_engine.py", tmp_path / "two", engine, *parts], check=True, timeout=250
    )
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
    assert (tmp_path / "two.killed").exists() == (engine == "ray")


COMMAND = [sys.executable, "-m", "diptych.cli", "mine", "run", "--no-nsfw", "--offline", "--processes", "1", "--out"]


@pytest.mark.parametrize("stage", ["pages", "index", "measured", "joined", "decisions"])
def test_killed_in_any_stage_the_same_command_ends_with_the_same_bytes(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path, stage: str
) -> None:
    """SIGKILL when the first file of the stage appears, whole or not."""
    out = tmp_path / "out"
    folder = out / "decisions" if stage == "decisions" else out / "work" / stage
    started = subprocess.Popen([*COMMAND, str(out), str(small_web / "warc")], stdout=subprocess.DEVNULL)
    wait(lambda: folder.is_dir() and any(folder.iterdir()), started)
    started.send_signal(signal.SIGKILL)
    started.wait()
    if folder.name == "decisions":  # what a kill in the midst of a write leaves, whether or not it hit one
        (folder / f".torn.parquet.{started.pid}.partial").write_bytes(b"torn")
    told = run(out, small_web / "warc")
    assert told["kept"] == mined[1]["kept"]
    assert digest(out) == digest(mined[0])
    assert not [*out.glob("records/.*"), *out.glob("decisions/.*")]


def test_a_signal_stops_it_in_time_and_the_same_command_goes_on(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    started = subprocess.Popen([*COMMAND, str(out), str(small_web / "warc")], stderr=subprocess.PIPE, text=True)
    wait((out / "mine.json").exists, started)
    os.kill(started.pid, signal.SIGTERM)
    _, said = started.communicate(timeout=20)
    assert started.returncode == 75, said
    assert "the same command goes on" in said
    run(out, small_web / "warc")
    assert digest(out) == digest(mined[0])


def wait(ready: Callable[[], bool], process: subprocess.Popen[Any]) -> None:
    end = time.monotonic() + 60
    while not ready():
        assert process.poll() is None, "it ended before"
        assert time.monotonic() < end
        time.sleep(0.002)


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
    rows = {(row["page"], row["address"]): row for row in funnel.decisions(Layout(tmp_path / "out"))}
    for line in map(json.loads, (small_web / "truth.jsonl").read_text().splitlines()):
        row = rows.get((line["page"], line["address"]))
        if row is not None and line["reason"] is not None and row["status"] is not None:
            assert row["reason"] == line["reason"], line


def test_pictures_with_captions_tars_and_addresses_are_inputs_too(
    mined: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out, told = mined
    layout = Layout(out)
    kept = sorted((row for row in funnel.decisions(layout) if row["kept"] is not None), key=lambda row: row["sha256"])
    from_lines = run(tmp_path / "lines", write_lines(out, tmp_path / "mine.jsonl"))
    assert from_lines["kept"] == told["kept"]
    write_tars(tmp_path / "tars", layout, [row | {"blob": "", "offset": 0} for row in kept], "x")
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
    [("x.csv", b"a,b", "nothing that can be mined"), ("x.jsonl", b"{", "no JSON"), ("x.jsonl", b'{"a": 1}', "neither")],
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


def test_a_full_disk_is_named_and_the_same_command_goes_on(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("diptych.mining.gathering.os.fsync", full)
        with pytest.raises(DiptychError, match="the disk is full"):
            run(tmp_path / "out", small_web / "warc")
    run(tmp_path / "out", small_web / "warc")
    assert digest(tmp_path / "out") == digest(mined[0])


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
        Thread(target=server.serve_forever).start()
        settings = live(server.server_address[1])
        settings = settings.model_copy(update={"fetch": settings.fetch.model_copy(update={"retries": 0})})

        def again(**more: bool) -> tuple[int, dict[str, int], list[str]]:
            before = len(asked)
            funnel = run(tmp_path / "out", tmp_path / "x.tsv", settings=settings, **more)
            return funnel["kept"], funnel["failures"], sorted(asked[before:])

        first = again()
        assert first == (1, {"server error": 1, "status 404": 1}, ["/0.png", "/1.png", "/2.png", "/robots.txt"])
        assert again() == (*first[:2], [])
        mended.append(True)
        assert again(retry_failed=True) == (2, {"status 404": 1}, ["/1.png"])
        assert again() == (2, {"status 404": 1}, [])
        server.shutdown()


def png(pixels: Any) -> bytes:
    kept = io.BytesIO()
    Image.fromarray(pixels).save(kept, "PNG")
    return kept.getvalue()


def live(port: int) -> Settings:
    settings = changed(Settings(), ["fetch.rate=50", "fetch.first_byte=1", "fetch.whole=2", "fetch.backoff=0"])
    fetch = settings.fetch.model_copy(update={
        "contact": "x@a.test", "allow": ("127.0.0.0/8",), "rest": 0.0,
        "resolve": ("rebinding.test=10.0.0.1", f"*.test=127.0.0.1:{port}"),
    })  # fmt: skip
    return settings.model_copy(update={"fetch": fetch})


def test_a_folder_of_something_else_is_not_written_to(tmp_path: Path, small_web: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(RecipeError, match="empty --out"):
        run(tmp_path, small_web / "warc")


def test_damaged_work_is_named_with_the_way_out(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(mined[0], out)
    next(out.glob("work/pages/*.parquet")).write_bytes(b"PAR1 torn")
    with pytest.raises(DataError, match="take it away"):
        run(out, small_web / "warc")


def test_a_picture_of_one_colour_and_a_bomb_are_told_by_hand() -> None:
    from diptych.mining.decode import measure

    def png(image: Image.Image) -> bytes:
        kept = io.BytesIO()
        image.save(kept, "PNG")
        return kept.getvalue() + b"\0" * 3000

    rules = Settings().pictures
    assert measure(png(Image.new("RGB", (301, 400), "red")), rules)[1] == ["one_colour"]
    assert measure(png(Image.new("L", (300, 400))), rules)[1] == ["sides"]
    assert measure(png(Image.new("L", (301, 904))), rules)[1] == ["ratio"]
    assert measure(png(Image.new("1", (12_000, 12_000))), rules)[1] == ["pixels"]
    assert measure(b"<html>" * 900, rules)[1] == ["unreadable"]
    assert measure(b"x", rules)[1] == ["small_file", "unreadable"]
