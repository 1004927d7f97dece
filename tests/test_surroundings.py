"""What the environment of a command may be: odd variables, an output that takes nothing, pipes in place of files."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from diptych.errors import DataError, RecipeError
from diptych.loading.corpus import Lines
from diptych.processes import started_together
from diptych.sources.formats import read

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
    assert started_together() == 2
    surround(monkeypatch, changed)
    with pytest.raises(RecipeError, match=f"{named}; torchrun sets it"):
        started_together()
    surround(monkeypatch, dict.fromkeys(TORCHRUN))
    assert started_together() == 1


def test_the_command_line_says_so_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "diptych.cli", "recipes"],
        env=os.environ | {"WORLD_SIZE": "x"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "WORLD_SIZE is 'x'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a system without /dev/full")
def test_an_output_that_takes_nothing_is_named() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "diptych.cli", "recipes"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "diptych: what is printed or written cannot be: No space left on device; make room and run the same command "
        "again\n"
    )


def test_a_pipe_is_no_data(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data.jsonl")
    with pytest.raises(DataError, match=r"data.jsonl is a pipe or a device.*write them to a file"):
        read(tmp_path / "data.jsonl")


def test_a_picture_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff\xe0\0\x10JFIF\nwords\n")
    with pytest.raises(DataError, match=r"a.jpg is no text: it holds zero bytes"):
        Lines(tmp_path / "a.jpg")
