"""What goes to a file or a pipe is never wrapped, coloured or animated, whatever the environment says."""

import os
import pty
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from diptych.runtime.progress import advancing, bar, tell, time_left
from diptych.runtime.terminal import WIDE, columns, heading, make_console
from tests.support import zygote

ROOT = Path(__file__).parents[3]
# Wider than any window, with what rich reads as markup, an emoji, a number and a link.
LONG = Path("/data", *("a folder with a long name [bold] :dog:" for _ in range(20)), "http://x/120.safetensors")


def in_a_pipe(monkeypatch: pytest.MonkeyPatch, say: Callable[[], object]) -> str:
    """What comes out of it; the environment asks for movement and a small window."""
    for name, value in {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1", "COLUMNS": "40"}.items():
        monkeypatch.setenv(name, value)
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        say()
    with os.fdopen(reading) as out:
        return out.read()


def test_a_long_path_stays_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    told = in_a_pipe(monkeypatch, lambda: make_console().print(f"{LONG}: 120 loaded"))
    assert told == f"{LONG}: 120 loaded\n"


def test_a_table_and_its_notes_stay_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table("score", "such as")
    table.add_row(Text("error", style="red"), str(LONG))
    told = in_a_pipe(monkeypatch, lambda: make_console().print(Group(Text(f"of {LONG}", style="bold"), table)))
    first, *rows = told.splitlines()
    assert first == f"of {LONG}"
    assert f"│ error │ {LONG} │" in rows
    assert "\x1b" not in told


def test_a_bar_does_not_move_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def say() -> None:
        with bar("pictures") as progress:
            progress.advance(progress.add_task("extracting", total=3), 3)
        make_console().print("done")

    assert in_a_pipe(monkeypatch, say) == "done\n"


def test_a_terminal_is_one() -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "stderr", terminal)
        assert columns(sys.stderr) is None
        assert make_console().is_terminal
        make_console().print(Text("red", style="red"))
    assert b"\x1b[" in os.read(leader, 1 << 16)
    os.close(leader)


def test_colours_are_printed_to_a_pipe_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    told = in_a_pipe(monkeypatch, lambda: make_console().print(Text(str(LONG), style="red")))
    assert told == f"\x1b[31m{LONG}\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert in_a_pipe(monkeypatch, lambda: make_console().print(Text("red", style="red"))) == "red\n"


def test_help_in_a_pipe_is_a_line_an_option() -> None:
    environment = os.environ | {"COLUMNS": "40", "FORCE_COLOR": "1"}
    told = zygote.run(["-m", "diptych.cli", "rank", "--help"], environment, check=True).stdout
    assert "\x1b" not in told
    (model,) = [line for line in told.splitlines() if line.lstrip().startswith("--model")]
    assert model.endswith("[required]")
    assert len(max(told.splitlines(), key=len)) < WIDE


def test_consoles_are_made_in_one_place() -> None:
    """But those that say nothing, for a run within another."""
    for path in (ROOT / "src").rglob("*.py"):
        made = re.findall(r"\bConsole\((?!quiet=True\))", path.read_text())
        assert not made or path.name == "terminal.py", path


def test_a_log_file_is_told_now_and_then_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("diptych.runtime.progress.time.monotonic", lambda: clock[0])

    def work() -> None:
        with bar("pictures") as progress:
            task = progress.add_task("captioning", total=100)
            for _ in range(100):
                clock[0] += 1
                progress.advance(task)

    lines = in_a_pipe(monkeypatch, work).splitlines()
    assert [line.split(" pictures, ")[0] for line in lines] == [f"captioning {n}/100" for n in (10, 30, 70)]
    assert re.fullmatch(r"captioning 30/100 pictures, .* left, until \d\d:\d\d", lines[1])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(12, "12 s"), (89, "89 s"), (95, "2 min"), (5400, "1.5 h"), (172_799, "48.0 h"), (432_000, "5.0 days")],
)
def test_a_time_left_is_said_in_what_it_is_counted_in(seconds: float, words: str) -> None:
    until = r"\d\d:\d\d" if seconds < 86_400 else r"\d\d \w+ \d\d:\d\d"  # a time of another day has its date
    assert re.fullmatch(rf"{words} left, until {until}", time_left(seconds))


def test_a_heading_in_a_pipe_is_no_line_of_ten_thousand_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_a_pipe(monkeypatch, lambda: heading(make_console(), "train detector")) == "train detector\n"


def test_the_time_left_is_known_from_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches a minute apart: rich drops what is older than 30 s."""
    clock = [1000.0]
    for name in ("diptych.runtime.progress.time.monotonic", "rich.console.monotonic"):
        monkeypatch.setattr(name, lambda: clock[0])

    def work() -> None:
        with advancing("extracting", 640) as advance:
            for _ in range(2):
                clock[0] += 60
                advance(64)

    first, second = in_a_pipe(monkeypatch, work).splitlines()
    assert re.fullmatch(r"extracting 64/640 pictures, 9 min left, until \d\d:\d\d", first)
    assert re.fullmatch(r"extracting 128/640 pictures, 8 min left, until \d\d:\d\d", second)


@pytest.mark.parametrize(("rank", "wanted"), [(None, "a note\n"), ("0", "a note\n"), ("1", "")])
def test_notes_are_printed_by_the_first_process_alone(
    rank: str | None, wanted: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if rank is None:
        monkeypatch.delenv("RANK", raising=False)
    else:
        monkeypatch.setenv("RANK", rank)
    tell(make_console(), "a note")
    assert capsys.readouterr().err == wanted
