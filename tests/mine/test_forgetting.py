"""What `mine forget` removes is gone from every file of the run, and does not come back."""

import hashlib
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from diptych.cli import run_verb
from diptych_mine import funnel
from diptych_mine.forgetting import forget
from diptych_mine.keep.tars import write_tars
from diptych_mine.layout import RunLayout
from diptych_mine.report import write_page
from diptych_mine.run import Mine
from diptych_mine.settings import MiningSettings

from .conftest import run


def test_what_is_forgotten_goes_and_does_not_come_back(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(mined[0], out)
    lines = [json.loads(line) for path in sorted(out.glob("records/*")) for line in path.read_text().splitlines()]
    host, one = lines[0]["page"].split("/")[2], lines[-1]
    (tmp_path / "list.txt").write_text(f"{host}  # asked us to\n{one['sha256']}\n")
    gone = [line for line in lines if line["page"].split("/")[2] == host or line is one]
    assert forget(out, [tmp_path / "list.txt"]) >= len(gone)
    for line in gone:
        assert not (out / line["image"]).exists()
    assert all(line["sha256"] not in "".join(p.read_text() for p in out.glob("records/*")) for line in gone)
    assert not [row for row in funnel.decisions(RunLayout(out)) if row["sha256"] in {line["sha256"] for line in gone}]
    told = run(out, small_web / "warc")
    assert told["rules"]["refused"]["dropped"] > 0
    after = {json.loads(line)["sha256"] for path in out.glob("records/*") for line in path.read_text().splitlines()}
    assert after.isdisjoint({line["sha256"] for line in gone})


def test_what_is_forgotten_leaves_the_report_and_the_tars(
    mined: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, tars = tmp_path / "out", tmp_path / "tars"
    shutil.copytree(mined[0], out)
    write_page(RunLayout(out), *funnel.again(RunLayout(out)))
    write_tars(tars, RunLayout(out))
    lines = [json.loads(line) for path in sorted(out.glob("records/*")) for line in path.read_text().splitlines()]
    host = lines[0]["page"].split("/")[2]
    gone = {line["sha256"] for line in lines if line["page"].split("/")[2] == host}
    (tmp_path / "hosts").write_text(host)
    before = (out / "report.html").read_text()
    assert host in before
    assert gone <= in_tars(tars)
    assert run_verb(["mine", "forget", str(out), "--hosts", str(tmp_path / "hosts")], False) == 0
    assert "they still have these images; pass --tars" in capsys.readouterr().out
    after = (out / "report.html").read_text()
    assert host not in after
    thumbnails = re.compile('data:image/jpeg;base64,[^"]+')
    assert set(thumbnails.findall(after)) != set(thumbnails.findall(before))
    again = ["mine", "forget", str(out), "--hosts", str(tmp_path / "hosts"), "--tars"]
    assert run_verb([*again, str(tmp_path / "tar")], False) == 2
    assert not (tmp_path / "tar").exists()
    assert run_verb([*again, str(tars)], False) == 0
    assert in_tars(tars).isdisjoint(gone)


def test_bytes_of_forgotten_images_leave_the_folder_for_good(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """They came back when another list changed the plan of the fetches, and stayed where nothing was measured."""
    lines = [json.loads(line) for path in sorted(mined[0].glob("records/*")) for line in path.read_text().splitlines()]
    content = (mined[0] / lines[0]["image"]).read_bytes()
    host = lines[0]["page"].split("/")[2]
    (tmp_path / "images").write_text(f"\ufeff{lines[0]['sha256']}\n")
    (tmp_path / "hosts").write_text(f"\ufeff*.{lines[-1]['page'].split('/')[2]}.:80\n")
    (tmp_path / "other").write_text("site-003.test\n")
    out = tmp_path / "out"
    shutil.copytree(mined[0], out)
    Mine(out, [small_web / "warc"], MiningSettings(offline=True), until="fetch", refuse=[tmp_path / "other"]).run()
    assert sum(content in path.read_bytes() for path in out.glob("work/index/*.blob")) == 2
    (out / "fetched.json").write_text(json.dumps({lines[0]["address"]: "2026", lines[1]["address"]: "2025"}))
    assert forget(out, [tmp_path / "images"]) == 1
    assert not [path for path in out.rglob("*.*") if path.is_file() and content in path.read_bytes()]
    assert json.loads((out / "fetched.json").read_text()) == {lines[1]["address"]: "2025"}
    assert forget(out, [tmp_path / "hosts"]) >= 1
    assert host != lines[-1]["page"].split("/")[2]
    assert run(out, small_web / "warc")["rules"]["refused"]["dropped"] > 0
    assert not [path for path in out.rglob("*.*") if path.is_file() and content in path.read_bytes()]


def test_copies_of_forgotten_images_go_with_them(mined: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    out = Path(shutil.copytree(mined[0], tmp_path / "out"))
    path = next(one for one in out.glob("decisions/*") if sum(row["kept"] is not None for row in rows_of(one)) >= 2)
    rows = rows_of(path)
    one, copy = [row for row in rows if row["kept"] is not None][:2]
    copy["phash"] = one["phash"][:-1] + bytes([one["phash"][-1] ^ 0b1011])
    pq.write_table(pa.Table.from_pylist(rows, pq.read_schema(path)), path)
    (tmp_path / "images").write_text(one["sha256"])
    assert forget(out, [tmp_path / "images"]) >= 2
    for row in (one, copy):
        assert not list(out.glob(f"pictures/*/{row['sha256']}.*"))
        assert row["sha256"] in (out / "forgotten/forgotten.txt").read_text()


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def in_tars(tars: Path) -> set[str]:
    names = set()
    for path in tars.glob("*.tar"):
        with tarfile.open(path) as tar:
            names |= {hashlib.sha256(file.read()).hexdigest() for one in tar if (file := tar.extractfile(one))}
    return names
