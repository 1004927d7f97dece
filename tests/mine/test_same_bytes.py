"""The same bytes whoever makes them, in whatever order, and however often it is stopped on the way."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diptych.runtime.errors import DiptychError
from tests.support import zygote

from .conftest import digest, run


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
    monkeypatch.setattr("diptych_mine.pages.warc.PART", 500_000)
    summary = run(tmp_path / "out", small_web / "warc")
    assert len(list((tmp_path / "out" / "decisions").iterdir())) > 2
    assert summary == mined[1]
    for folder in ("records", "pictures"):
        assert tree(tmp_path / "out" / folder) == tree(mined[0] / folder)


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


BY_RAY = """
import sys
from pathlib import Path

from diptych.runtime import engine
from diptych_mine import run
from diptych_mine.settings import MiningSettings
from tests.support.killed import KilledOnce

out, *given = sys.argv[1:]

if __name__ == "__main__":
    run.run_shards = lambda work, *others: engine.run(KilledOnce(work, Path(out).with_suffix(".killed")), *others)
    run.Mine(Path(out), [Path(one) for one in given], MiningSettings(offline=True), engine="ray", workers=2).run()
"""


@pytest.mark.thorough
def test_ray_gives_the_same_bytes(small_web: Path, tmp_path: Path) -> None:
    """A worker is killed at its first shard."""
    parts = split(small_web, tmp_path)
    run(tmp_path / "one", *parts)
    (tmp_path / "by_ray.py").write_text(BY_RAY)
    here = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}  # of `tests`, for Ray's workers too
    script = tmp_path / "by_ray.py"
    command = [sys.executable, script, tmp_path / "two", *parts]  # an interpreter: Ray starts others like it
    subprocess.run(command, check=True, timeout=800, env=here)
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
    assert (tmp_path / "two.killed").exists()


COMMAND = ["-m", "diptych.cli", *["mine", "run", "--skip-nsfw-check", "--offline", "--processes", "1", "--out"]]


@pytest.mark.parametrize("stage", ["pages", "index", "measured", "joined", "decisions"])
def test_killed_in_any_stage_the_same_command_ends_with_the_same_bytes(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path, stage: str
) -> None:
    """SIGKILL when the first file of the stage appears, whole or not."""
    out = tmp_path / "out"
    folder = out / "decisions" if stage == "decisions" else out / "work" / stage
    started = zygote.Popen([*COMMAND, out, small_web / "warc"], stdout=subprocess.DEVNULL)
    wait(lambda: folder.is_dir() and any(folder.iterdir()), started)
    started.send_signal(signal.SIGKILL)
    started.wait()
    if folder.name == "decisions":  # what a kill in the midst of a write leaves, whether or not it hit one
        (folder / f".torn.parquet.diptych-{started.pid}.partial").write_bytes(b"torn")
    told = run(out, small_web / "warc")
    assert told["kept"] == mined[1]["kept"]
    assert digest(out) == digest(mined[0])
    assert not [*out.glob("records/.*"), *out.glob("decisions/.*")]


def test_a_signal_stops_it_in_time_and_the_same_command_goes_on(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with zygote.Popen([*COMMAND, out, small_web / "warc"], stderr=subprocess.PIPE) as started:
        wait((out / "mine.json").exists, started)
        started.terminate()
        assert started.stderr is not None
        said = started.stderr.read()
    assert started.wait() == 75, said
    assert "the same command resumes" in said
    run(out, small_web / "warc")
    assert digest(out) == digest(mined[0])


def wait(ready: Callable[[], bool], process: zygote.Popen) -> None:
    end = time.monotonic() + 60
    while not ready():
        assert process.poll() is None, "it ended before"
        assert time.monotonic() < end
        time.sleep(0.002)


def test_a_full_disk_is_named_and_the_same_command_goes_on(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("diptych_mine.fetch.gathering.os.fsync", full)
        with pytest.raises(DiptychError, match="the disk is full"):
            run(tmp_path / "out", small_web / "warc")
    run(tmp_path / "out", small_web / "warc")
    assert digest(tmp_path / "out") == digest(mined[0])
