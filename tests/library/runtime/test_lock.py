"""One command at a time in a folder; and commands that are stopped keep what they did."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from diptych import cli
from diptych.runtime.errors import DiptychError
from diptych.runtime.files import MARKER
from diptych.runtime.lock import FILE, held
from tests.support import zygote

HOLDS = "import sys, time; from pathlib import Path; from diptych.runtime.lock import held\n" + (
    "with held(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(600)\n"
)
WRITE = ["-m", "diptych.cli", "storybook", "write", "--out"]


def test_a_lock_that_leads_elsewhere_empties_nothing(tmp_path: Path) -> None:
    """As an unpacked folder of others may hold one."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / FILE).symlink_to(tmp_path / "precious")
    with pytest.raises(DiptychError, match="not a plain file"), held(tmp_path / "run"):
        pass
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_pipe_as_a_lock_is_refused_and_waited_for_by_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(DiptychError, match="not a plain file, so it cannot lock"), held(tmp_path):
        pass
    assert (tmp_path / FILE).is_fifo()


def test_the_second_hears_who_holds_the_folder_until_that_one_dies(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with zygote.Popen(["-c", HOLDS, folder], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DiptychError, match=rf"process {other.pid} of .* is writing to "), held(folder):
            pass
        told = zygote.run([*WRITE, folder, "--web", "1"])
        assert (told.returncode, told.stdout) == (1, "")
        assert "is writing to" in told.stderr
        other.kill()
    for _ in range(2):
        with held(folder):
            assert (folder / FILE).read_text().startswith(f"process {os.getpid()} of ")
        assert not (folder / FILE).exists()


def test_of_the_ranks_of_a_run_the_first_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held_by_another(tmp_path):
        monkeypatch.setenv("RANK", "1")
        with held(tmp_path):
            pass
        assert (tmp_path / FILE).exists()


@contextmanager
def held_by_another(folder: Path) -> Iterator[None]:
    """A thread of its own holds the folder: one that holds it already may go on."""
    with ThreadPoolExecutor(1) as thread:
        holding = held(folder)
        thread.submit(holding.__enter__).result()
        try:
            yield
        finally:
            thread.submit(holding.__exit__, None, None, None).result()


WRITES = {  # verb -> its arguments; FOLDER is what it writes
    "demo": "--out FOLDER --fast",
    "pretrain": "unified-vlp/small/pretrain --data nothing --out FOLDER",
    "import": "unified-vlp nothing --out FOLDER --vocab nothing",
    "import detector": "nothing --out FOLDER",
    "rank": "--model nothing --data nothing --pairs FOLDER",
    "mine run": "nothing --skip-nsfw-check --out FOLDER",
    "mine forget": "FOLDER --hosts nothing",
    "mine scorer": "nothing --out FOLDER",
    "mine judge": "nothing --out FOLDER",
    "storybook write": "--out FOLDER",
    "storybook web": "--out FOLDER",
    "storybook detector": "--out FOLDER",
}


@pytest.mark.parametrize("verb", WRITES)
def test_no_verb_writes_to_a_folder_that_another_writes_to(
    tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, before = tmp_path / "out", (tempfile.tempdir, signal.getsignal(signal.SIGTERM))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["diptych", *verb.split(), *WRITES[verb].replace("FOLDER", str(folder)).split()])
    folder.mkdir()
    with held_by_another(folder), pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert f"process {os.getpid()} of " in told
    assert f" is writing to {folder}; " in told
    assert [path.name for path in folder.iterdir()] in ([], [MARKER])
    assert list(tmp_path.iterdir()) == [folder], "nothing else was written"
    assert (tempfile.tempdir, signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize("verb", ["import", "import detector", "mine run"])
def test_the_lock_is_not_in_the_way_of_its_own_command(
    tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """These three want a folder that is not there, or empty; what they hear is that `nothing` is not there."""
    before = tempfile.tempdir, signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["diptych", *verb.split(), *WRITES[verb].replace("FOLDER", "out").split()])
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        tempfile.tempdir = before[0]
        signal.signal(signal.SIGTERM, before[1])
    assert ended.value.code in (1, 2)
    said = capsys.readouterr().err
    assert "nothing" in said
    assert "exists already" not in said
    assert "empty --out" not in said


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """What a shell starts in the background ignores SIGINT, and so would all that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_keeps_what_was_drawn_and_the_command_goes_on(tmp_path: Path, number: int, code: int) -> None:
    """The signal goes to the whole group, SIGTERM twice, as batch systems and uv send it."""
    sizes = ["--web", "300", "--train", "0", "--val", "0", "--test", "0", "--test-rare", "0", "--processes", "2"]
    command = [*WRITE, tmp_path / "world", *sizes]
    with zygote.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as writing:
        deadline = time.monotonic() + 300  # against hanging: a busy machine takes long to start Python
        while not list(tmp_path.glob("world/pictures/web/*.png")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(writing.pid, number)
        if number == signal.SIGTERM:
            writing.send_signal(number)
        assert writing.stderr is not None
        said = writing.stderr.read()
    assert writing.returncode == code, said
    assert "Traceback" not in said
    drawn = len(list(tmp_path.glob("world/pictures/web/*.png")))
    assert 0 < drawn < 300
    assert [path.name for path in tmp_path.rglob(".*")] == [MARKER]


def test_a_command_that_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    command = ["-m", "diptych.cli", "mine", "run", tmp_path / "none.warc", "--out", tmp_path / "a"]
    told = zygote.run([*command, "--skip-nsfw-check"])
    assert (told.returncode, list(tmp_path.iterdir())) == (2, []), told.stderr
