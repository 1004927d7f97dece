"""What the environment of a command may be: odd variables, an output that takes nothing, pipes in place of files."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from diptych.cli import run_verb
from diptych.data.formats.table import read
from diptych.data.store.corpus import Lines
from diptych.data.store.tokens import Tokens
from diptych.runtime.errors import DataError, DiptychError, RecipeError
from diptych.runtime.files import bytes_of, checksum
from diptych.runtime.processes import torchrun_processes
from diptych_mine.lists import lists_of
from diptych_mine.pages.texts import Vocabularies
from diptych_mine.scorer import train_scorer
from tests.support import zygote

TORCHRUN = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


def surround(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE is 'x'"),
        ({"WORLD_SIZE": "-1"}, "WORLD_SIZE is '-1'"),
        ({"RANK": None}, "RANK is None"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT is 'http'"),
        ({"MASTER_ADDR": None}, "MASTER_ADDR is not set"),
    ],
)
def test_half_of_torchrun_s_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, str | None], named: str
) -> None:
    surround(monkeypatch, TORCHRUN)
    assert torchrun_processes() == 2
    surround(monkeypatch, changed)
    with pytest.raises(RecipeError, match=f"{named}; start with torchrun"):
        torchrun_processes()
    surround(monkeypatch, dict.fromkeys(TORCHRUN))
    assert torchrun_processes() == 1


@pytest.mark.parametrize("module", ["diptych", "diptych.cli"])
def test_the_command_line_says_so_too(module: str) -> None:
    done = zygote.run(["-m", module, "recipes"], os.environ | {"WORLD_SIZE": "x"})
    assert done.returncode == 2
    assert "WORLD_SIZE is 'x'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_working_folder_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert run_verb(["extract", "world", "--out", "again", "--detector", "detector"], debug=False) == 1
    assert (
        capsys.readouterr().err
        == "diptych: the folder that this command runs in does not exist any more; change to another folder\n"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a system without /dev/full")
def test_an_output_that_takes_nothing_is_named() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "diptych.cli", "data"],  # an interpreter: its streams as it opens them
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    wanted = "cannot print or write: No space left on device; free disk space and run the same command again"
    assert done.stderr == f"diptych: {wanted}\n"


def test_a_file_that_is_as_large_as_it_may_be_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python would keep the first 1000 bytes of a .pyc
    with (tmp_path / "file").open("r+b") as file:
        for target, name in ((tmp_path / "file", tmp_path / "file"), (file.fileno(), "a file")):
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
            try:
                with monkeypatch.context() as patched:
                    patched.setattr(os, "getcwd", partial(os.truncate, target, 2000))
                    code = run_verb(["data"], debug=False)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            assert code == 1
            assert f"cannot write {name}: File too large; raise the limit" in capsys.readouterr().err


def test_that_no_temporary_folder_can_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc"])
        patched.setattr(tempfile, "tempdir", None)
        patched.setattr(os, "getcwd", tempfile.gettempdir)
        assert run_verb(["data"], debug=False) == 1
    wanted = (
        "No usable temporary directory found in ['/proc'], so no temporary file can be written; set TMPDIR to a folder"
    )
    assert wanted in capsys.readouterr().err


def test_an_output_that_nobody_reads_ends_in_silence() -> None:
    """As in `diptych data | head -1`."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "diptych.cli", "data"],  # an interpreter: its streams as it opens them
        stdout=write, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_output_in_ascii_shows_what_it_cannot_say() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "diptych.cli", "café"],  # an interpreter: encodings
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert rb"No such command 'caf\xe9'" in done.stderr


def test_a_file_as_large_as_it_may_be_is_told(tmp_path: Path) -> None:
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "
    code += "import sys; sys.dont_write_bytecode = True; "  # Python would keep only the first 1,000 bytes of a .pyc
    code += "sys.argv = ['diptych', 'storybook', 'show', '--out', 'a.png']; "
    code += "from diptych.cli import main; main()"
    done = zygote.run(["-c", code], cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot write a.png: File too large; choose another place" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("task", ["vqa", "caption"])
def test_pretrain_does_not_teach_a_task(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pretrain", "vl-bert/small/pretrain", "--data", "store", "--set", f"task={task}"]
    out = tmp_path / "out"
    done = zygote.run(["-m", "diptych.cli", *words, "--out", out])
    assert done.returncode == 2
    assert task in done.stderr
    assert "fault of Diptych" not in done.stderr
    assert not out.exists()


def test_a_pipe_is_no_data(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data.jsonl")
    with pytest.raises(DataError, match=r"data.jsonl is a pipe or a device.*write it to a file"):
        read(tmp_path / "data.jsonl")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "words",
    [
        "score pipe --references other.json",
        "score results.json --references pipe",
        "score results.json --references other.json --training pipe",
        "score results.json --questions pipe --annotations other.json",
        "score results.json --questions other.json --annotations pipe",
        "serve model --token-file pipe",
    ],
)
def test_nobody_waits_for_a_pipe(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    known = {"images": [{"id": 1}], "annotations": [{"image_id": 1, "caption": "a"}]}
    Path("other.json").write_text(
        json.dumps(known | {"questions": [{"image_id": 1, "question_id": 1, "question": "?"}]})
    )
    Path("results.json").write_text(json.dumps([{"image_id": 1, "caption": "a"}]))
    assert run_verb(words.split(), debug=False) in (1, 2)
    told = capsys.readouterr().err
    assert "fault of Diptych" not in told
    assert not Path("out").exists()
    assert "pipe" in told


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "read",
    [
        lambda pipe: Vocabularies.of(pipe, None),
        lambda pipe: Vocabularies.of(None, pipe),
        lambda pipe: lists_of([pipe], 4),
        lambda pipe: train_scorer([pipe], pipe.parent / "out", None, None, 0.9),
        lambda pipe: Tokens.from_vocabulary(pipe, lowercase=True),
        checksum,
        bytes_of,
    ],
)
def test_a_list_that_is_a_pipe_is_refused(read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises((DiptychError, OSError), match="a pipe or a device"):
        read(tmp_path / "pipe")


def test_a_pipe_gets_a_sheet(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert run_verb(["storybook", "show", "--out", str(pipe), "--count", "1"], debug=False) == 0
    reader.join()
    assert read[0].startswith(b"\x89PNG")
    assert pipe.is_fifo()


def test_a_picture_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff\xe0\0\x10JFIF\nwords\n")
    with pytest.raises(DataError, match=r"a.jpg is not text: it contains null bytes"):
        Lines(tmp_path / "a.jpg")
