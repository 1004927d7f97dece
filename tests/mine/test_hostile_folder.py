"""The folder of a run that an enemy made or changed: one sentence, nothing outside of it touched, nobody waits."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from diptych.runtime.errors import DiptychError
from diptych_mine import funnel
from diptych_mine.cli import mine_report
from diptych_mine.forgetting import forget, forget_records
from diptych_mine.judge.labelling import labels_in, sample
from diptych_mine.layout import RunLayout
from diptych_mine.rules import VERSION
from diptych_mine.settings import MiningSettings

from .conftest import run

PICTURE = "data:image/jpeg"
OUTSIDE = "../../../../outside/letter"


@pytest.fixture
def out(mined: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "letter.blob").write_text("dear")
    return Path(shutil.copytree(mined[0], tmp_path / "out"))


def forge(path: Path, column: str, value: Any, where: Callable[[dict[str, Any]], object] = lambda row: True) -> None:
    table = pq.read_table(path)
    rows = table.to_pylist()
    for row in rows:
        if where(row):
            row[column] = value
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)


def first(out: Path, pattern: str, needed: str = "") -> Path:
    """The first table, of those that have something in this column."""
    found = sorted(out.glob(pattern))
    return next(p for p in found if not needed or any(row[needed] is not None for row in pq.read_table(p).to_pylist()))


def texts(**changed: Any) -> list[dict[str, Any]]:
    return [{"kind": "alt", "text": "a kite", "fails": [], "score": None} | changed]


def is_left(row: dict[str, Any]) -> bool:
    return not row["fails"]


TABLES: dict[str, tuple[str, str, Any, str]] = {
    "a hash that is a path": ("measured", "sha256", OUTSIDE[6:], f"`sha256` has the unknown value '{OUTSIDE[6:]}'"),
    "a hash that is a path, joined": ("joined", "sha256", "/" + "a" * 63, "`sha256` has the unknown value '/aaa"),
    "a type that is a path": ("joined", "type", "jpg/../../../x", "`type` has the unknown value 'jpg/"),
    "bodies elsewhere": ("joined", "blob", OUTSIDE, "`blob` has the unknown value '../"),
    "a picture without a hash": ("joined", "sha256", None, "`sha256` is missing"),
    "a length below zero": ("index", "length", -5, "`length` is negative"),
    "more than there is": ("joined", "length", 10**18, "cut short or damaged"),
    "the body of another": ("joined", "sha256", "0" * 64, "is not the one that was measured"),
    "a verdict that is not a rule": ("joined", "fails", ["__class__"], "`fails` has the unknown value '__class__'"),
    "a kind of text that is none": ("joined", "texts", texts(kind="x" * 10**6), "`kind` has the unknown value 'xxx"),
    "a score that is none": ("joined", "texts", texts(score=float("nan")), "a `score` of a text is not finite"),
    "a text without words": ("joined", "texts", texts(text=None), "lacks its `kind`, `text`"),
    "no address": ("pages", "address", None, "`address` is missing"),
}


@pytest.mark.parametrize("what", TABLES)
def test_a_table_that_says_what_no_stage_writes_is_refused(what: str, small_web: Path, out: Path) -> None:
    stage, column, value, match = TABLES[what]
    for path in out.glob("pictures/*/*"):
        path.unlink()  # so that all are taken from their bodies again
    for path in out.glob(f"work/{stage}/*.parquet"):
        forge(path, column, value, is_left if stage == "joined" else lambda row: True)
    with pytest.raises(DiptychError) as raised:
        run(out, small_web / "warc")
    assert match in str(raised.value)
    assert len(str(raised.value)) < 1_000
    assert [path.name for path in out.parent.rglob("letter*")] == ["letter.blob"]


def test_a_table_of_other_columns_a_pipe_and_text_that_is_none_are_refused(small_web: Path, out: Path) -> None:
    path = first(out, "work/pages/*.parquet")
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["address"]), path)
    with pytest.raises(DiptychError, match="it does not have the expected columns"):
        run(out, small_web / "warc")
    torn = pa.array([b"\xff"] * len(table), pa.binary()).view(pa.string())
    pq.write_table(table.set_column(table.schema.get_field_index("address"), "address", torn), path)
    with pytest.raises(DiptychError, match="UTF8"):
        run(out, small_web / "warc")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DiptychError, match="a pipe or a device"):
        run(out, small_web / "warc")


SAID: dict[str, tuple[str, Any, str]] = {
    "settings that are a list": ("mine.json", [], r"mine\.json is damaged \(found list, expected dict\)"),
    "settings of another version": ("mine.json", {"rules": "1" * 10**6}, rf'rules: "{VERSION}", was "111+…'),
    "counts without numbers": ("work/pages/*.json", {"bad": {"x": "1e9"}, "held": []}, "bad.x: Input should be"),
    "counts with a list": ("work/pages/*.json", {"bad": {}, "held": [], "pages": []}, "pages: Input should be"),
    "parts that are none": ("parts", {"parts": [[0, -1]]}, "parts.0.1: Input should be greater"),
    "tries without end": ("work/retries.json", {"retries": 10**18}, "retries: Input should be less"),
}


@pytest.mark.parametrize("what", SAID)
def test_a_file_that_says_something_else_is_refused(what: str, small_web: Path, out: Path) -> None:
    name, value, match = SAID[what]
    paths = sorted(out.glob("work/plan/*.json" if name == "parts" else name)) or [out / name]
    if name == "parts":
        paths = [path for path in paths if "parts" in json.loads(path.read_text())]
    paths[0].write_text(json.dumps(value))
    with pytest.raises(DiptychError, match=match) as raised:
        run(out, small_web / "warc", settings=MiningSettings(offline=not name.endswith("retries.json")))
    assert len(str(raised.value)) < 2_000


def test_plans_of_others_are_not_followed(small_web: Path, out: Path) -> None:
    before = {path: path.read_bytes() for path in out.glob("work/plan/*.json")}
    for path, content in before.items():
        if "parts" not in (plan := json.loads(content)):
            path.write_text(json.dumps(dict.fromkeys(plan, OUTSIDE)))
    shutil.rmtree(out / "work" / "pages")
    shutil.rmtree(out / "work" / "measured")
    run(out, small_web / "warc")
    assert {path: path.read_bytes() for path in before} == before
    assert [path.name for path in out.parent.rglob("letter*")] == ["letter.blob"]


def test_inputs_that_were_moved_since_are_read_where_they_lie(small_web: Path, tmp_path: Path) -> None:
    for place in ("here", "there"):
        shutil.copytree(small_web / "warc", tmp_path / place)
        told = run(tmp_path / "out", tmp_path / place)
        shutil.rmtree(tmp_path / place)
        shutil.rmtree(tmp_path / "out" / "work" / "pages")
        shutil.rmtree(tmp_path / "out" / "work" / "index")
    assert told["kept"] > 20


@pytest.mark.parametrize("link", ["pictures/00", "records/00001.jsonl", "work/found.partial", "report.html"])
def test_links_out_of_the_folder_are_refused_and_what_they_lead_to_stays(small_web: Path, out: Path, link: str) -> None:
    shutil.rmtree(out / link, ignore_errors=True)
    (out / link).unlink(missing_ok=True)
    (out / link).symlink_to(out.parent / "outside" if link == "pictures/00" else out.parent / "outside" / "letter.blob")
    words = out.parent / "words.txt"
    words.write_text("a.test")
    for verb in (lambda: run(out, small_web / "warc"), lambda: forget(out, [words])):
        with pytest.raises(DiptychError, match="is a link that leads out of"):
            verb()
    assert (out.parent / "outside" / "letter.blob").read_text() == "dear"


def test_forgetting_writes_in_its_own_folder_alone(out: Path) -> None:
    row = next(row for row in funnel.decisions(RunLayout(out)) if row["kept"] is not None)
    (words := out.parent / "words.txt").write_text(row["sha256"])
    for path in out.glob("work/measured/*.parquet"):
        (out / "work" / "plan" / f"{path.stem}.json").write_text(json.dumps({"index": OUTSIDE}))
    with pytest.raises(DiptychError, match="found the shard name"):
        forget(out, [words])
    assert (out.parent / "outside" / "letter.blob").read_text() == "dear"


def test_lines_are_cut_at_line_feeds_alone(tmp_path: Path) -> None:
    """JSON may hold U+2028 as it is, where splitlines() cuts too."""
    layout = RunLayout(tmp_path)
    layout.records.mkdir()
    lines = [json.dumps({"sha256": one, "captions": ["a\u2028b"]}, ensure_ascii=False) for one in ("x", "y")]
    (layout.records / "0.jsonl").write_text("".join(f"{line}\n" for line in lines))
    forget_records(layout, {"x"})
    assert (layout.records / "0.jsonl").read_text() == f"{lines[1]}\n"
    pair = {"image": "a.jpg", "statement": "a\u2028b", "true": True}
    (tmp_path / "labels.jsonl").write_text(json.dumps(pair, ensure_ascii=False) + "\n")
    assert labels_in(tmp_path / "labels.jsonl") == {("a.jpg", "a\u2028b"): pair}


def test_forgetting_that_was_stopped_goes_on(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(row for row in funnel.decisions(RunLayout(out)) if row["kept"] is not None)
    (words := out.parent / "words.txt").write_text(row["sha256"])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("diptych_mine.forgetting.erase", killed)
        with pytest.raises(KeyboardInterrupt):
            forget(out, [words])
    assert forget(out, [words]) == 1
    blobs = b"".join(path.read_bytes() for path in out.glob("work/index/*.blob"))
    places = [row for path in out.glob("work/index/*.parquet") for row in pq.read_table(path).to_pylist()]
    assert len(blobs) >= max(place["length"] for place in places)
    lines = "".join(path.read_text() for path in out.glob("records/*"))
    assert row["sha256"] not in lines


@pytest.mark.parametrize(
    ("column", "value", "match"),
    [
        ("kept", 10**6, "`kept` is not the index of a text of the image"),
        ("sha256", None, "`sha256` is missing in a row that is kept"),
        ("dropped_by", "__init__", "`dropped_by` has the unknown value '__init__'"),
    ],
)
def test_verdicts_of_others_are_not_believed(out: Path, column: str, value: Any, match: str) -> None:
    path = first(out, "decisions/*.parquet", "kept")
    forge(path, column, value, lambda row: row["kept"] is not None)
    with pytest.raises(DiptychError, match=match):
        sample(out, 10, out.parent / "labels.jsonl")


def test_what_a_finished_run_was_told_is_looked_at_before_anything_is_forgotten(out: Path) -> None:
    (words := out.parent / "words.txt").write_text("a.test")
    (out / "funnel.json").write_text(json.dumps({"inputs": {}, "about": {"judges": ["x"]}}))
    with pytest.raises(DiptychError, match=r"about\."):
        forget(out, [words])
    assert not (out / "forgotten").exists()


@pytest.mark.parametrize("content", [b"ARROW1 torn", None])
def test_a_report_of_a_folder_without_good_bodies_has_no_pictures_of_them(
    out: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = out / "work" / "found.arrow"
    mine_report(out=out)
    before = (out / "report.html").read_text().count(PICTURE)
    if content is None:
        table = pa.ipc.open_file(path).read_all()
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema.remove(0)) as writer:
            writer.write_table(table.drop_columns([table.schema.names[0]]))
    else:
        path.write_bytes(content)
    mine_report(out=out)
    assert "kept" in capsys.readouterr().out
    assert 0 < (out / "report.html").read_text().count(PICTURE) < before  # those that are kept lie in the folder
