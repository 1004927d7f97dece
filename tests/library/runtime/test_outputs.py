"""What may be written, and what is replaced: the rules of `diptych.runtime.outputs`."""

from __future__ import annotations

import os
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import pytest

from diptych.cli import run_verb
from diptych.cli.outputs import OutFile, guarded
from diptych.runtime import outputs
from diptych.runtime.errors import DiptychError, OutputError
from diptych.runtime.files import MARKER, sweep, write_atomically
from tests.attack.outputs import contents


def whole(target: Path, **files: str) -> None:
    with outputs.whole_folder(target, "programs") as temporary:
        for name, text in files.items():
            (temporary / name).write_text(text)


def test_a_folder_is_claimed_if_it_is_new_or_empty_or_of_the_same_kind(tmp_path: Path) -> None:
    made = outputs.claim(tmp_path / "a" / "b", "run")
    assert made == [tmp_path / "a" / "b", tmp_path / "a"]
    assert outputs.claim(tmp_path / "a" / "b", "run") == []
    (tmp_path / "a" / "b" / "metrics.jsonl").touch()
    assert outputs.claim(tmp_path / "a" / "b", "run") == []
    with pytest.raises(OutputError, match="b is a folder of kind run, expected an empty folder or one of kind store"):
        outputs.claim(tmp_path / "a" / "b", "store")
    with pytest.raises(OutputError, match=r"exists already \(metrics.jsonl\)"):
        outputs.refuse_folder(tmp_path / "a" / "b", None)
    (tmp_path / ".env").write_text("KEY=1")
    with pytest.raises(OutputError, match=r"not empty \(.env, a\)"):
        outputs.claim(tmp_path, "run")
    with pytest.raises(OutputError, match="exists and is not a folder"):
        outputs.claim(tmp_path / ".env", "run")


def test_ranks_claim_a_folder_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another rank makes it between two looks at it."""
    out, there = tmp_path / "out", os.path.lexists

    def meanwhile(path: Path) -> bool:
        monkeypatch.undo()
        outputs.claim(out, "run")
        return there(path)

    monkeypatch.setattr("diptych.runtime.outputs.os.path.lexists", meanwhile)
    outputs.claim(out, "run")
    assert (out / MARKER).read_text() == "diptych run\n"


@pytest.mark.parametrize("links", [True, False])
def test_a_late_marker_does_not_replace_one_that_lists_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Another rank writes its marker and lists a file in it, between two lines of this one."""
    out, write = tmp_path / "out", outputs.write_atomically

    def meanwhile(path: Path, *content: bytes) -> None:
        monkeypatch.undo()
        if not links:
            monkeypatch.setattr("os.link", lambda *_: os.open(tmp_path / "none", os.O_RDONLY))
        outputs.claim(out, "run")
        outputs.write_noted(out, out / "tokenizer.json", b"{}")
        write(path, *content)

    monkeypatch.setattr(outputs, "write_atomically", meanwhile)
    outputs.claim(out, "run")
    assert outputs.is_unedited(out, out / "tokenizer.json")
    assert sorted(path.name for path in out.iterdir()) == [MARKER, "tokenizer.json"]


def test_a_rank_that_comes_while_the_marker_is_written_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first rank is at its marker, the second has written its recipe: the third reads no half of a marker."""
    out, write = tmp_path / "out", outputs.write_atomically

    def meanwhile(path: Path, *content: bytes) -> None:
        monkeypatch.undo()
        assert not path.exists()
        outputs.claim(out, "run")
        (out / "recipe.json").touch()
        outputs.claim(out, "run")
        write(path, *content)

    monkeypatch.setattr(outputs, "write_atomically", meanwhile)
    outputs.claim(out, "run")
    assert (out / MARKER).read_text() == "diptych run\n"
    assert sorted(path.name for path in out.iterdir()) == [MARKER, "recipe.json"]


def test_a_claimed_folder_goes_where_nothing_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    outputs.release(folder, outputs.claim(folder, "run"))
    assert list(tmp_path.iterdir()) == []
    made = outputs.claim(folder, "run")
    (folder / "written").touch()
    outputs.release(folder, made)
    assert sorted(path.name for path in folder.iterdir()) == [MARKER, "written"]


def test_what_is_listed_and_unchanged_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "out"
    whole(target, a="1", b="2")
    whole(target, a="3")
    assert (target / "a").read_text() == "3"
    assert not (target / "b").exists()
    for name, text in {"a": "edited", "notes": "mine", ".env": "KEY=1", "b": "2"}.items():
        before = (target / "a").read_text()
        (target / name).write_text(text)
        there = contents(tmp_path)
        with pytest.raises(OutputError, match=rf"some of its files were added or changed after .* \({name}\)"):
            whole(target, a="4")
        assert contents(tmp_path) == there
        (target / name).unlink()
        (target / "a").write_text(before)
    (tmp_path / "elsewhere").mkdir()
    (target / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match=r"\(link\)"):
        whole(target, a="4")


def test_the_folder_of_the_command_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match="is the current folder"):
        whole(Path())
    assert tmp_path.is_dir()


def test_files_that_only_look_like_leftovers_stay(tmp_path: Path) -> None:
    """H3: names with digits, and folders of ours next to a target that is not."""
    for name in (".bashrc.20240101.old", ".notes.20231231.old", ".site.99999999.partial"):
        (tmp_path / name).write_text("mine")
    (tmp_path / ".out.diptych-99999999.partial").mkdir()
    (tmp_path / ".out.diptych-99999999.partial" / "mine").touch()
    there = contents(tmp_path)
    sweep(tmp_path, "out")
    assert contents(tmp_path) == there
    (tmp_path / ".out.diptych-99999999.partial" / MARKER).write_text("diptych model\n")
    sweep(tmp_path, "out")
    assert not (tmp_path / ".out.diptych-99999999.partial").exists()
    outputs.claim(tmp_path / "run", "run")
    (tmp_path / "run" / ".bashrc.20240101.old").write_text("mine")
    sweep(tmp_path / "run")
    assert (tmp_path / "run" / ".bashrc.20240101.old").exists()


def test_a_file_is_replaced_if_it_is_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file, other = tmp_path / "plot.html", tmp_path / "other.html"
    outputs.refuse_file(file)
    file.write_text("drawn")
    with pytest.raises(OutputError, match="exists, and Diptych did not write it; choose another name, or pass --force"):
        outputs.refuse_file(file)
    outputs.note(file)
    outputs.refuse_file(file)
    other.write_text("drawn")
    with pytest.raises(OutputError):
        outputs.refuse_file(other)
    file.write_text("edited")
    with pytest.raises(OutputError):
        outputs.refuse_file(file)
    assert capsys.readouterr().err == ""
    outputs.refuse_file(file, force=True)
    assert "plot.html, which has 6 bytes" in capsys.readouterr().err
    whole(tmp_path / "store", part="1")
    with pytest.raises(OutputError, match=r"part is in .*store, where --force replaces no file; choose another name"):
        outputs.refuse_file(tmp_path / "store" / "part", force=True)


def test_what_is_put_into_a_folder_while_it_is_replaced_stays(tmp_path: Path) -> None:
    whole(tmp_path / "out", a="1")
    with (
        pytest.raises(OutputError, match="were added or changed after Diptych wrote it"),
        outputs.whole_folder(tmp_path / "out", "programs"),
    ):
        (tmp_path / "out" / "mine").write_text("x")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [MARKER, "a", "mine"]


def drawn(*, data: list[str], out: Annotated[Path, OutFile((".svg",))]) -> None:
    for path in (out, out.with_suffix(".svg")):
        path.write_text(data[0])


def test_a_verb_replaces_all_files_that_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for text in ("one", "two"):
        guarded(drawn)(data=[text], out=tmp_path / "a.png")
    assert (tmp_path / "a.svg").read_text() == "two"


def test_an_output_is_no_input_by_any_name(tmp_path: Path) -> None:
    file, link, hard = tmp_path / "a.png", tmp_path / "link.png", tmp_path / "hard.png"
    file.write_text("picture")
    link.symlink_to(file)
    hard.hardlink_to(file)
    for name in (file, link, hard, tmp_path / "x" / ".." / "a.png"):
        with pytest.raises(OutputError, match="is an input of this command"):
            outputs.refuse_inputs(name, [tmp_path / "b.png", file])
    for given in (f"train={file}", f"captions:{file}"):
        with pytest.raises(OutputError, match="is an input of this command"):
            guarded(drawn)(data=[given], out=file)
    outputs.refuse_inputs(tmp_path / "c.png", [file])


def test_a_file_of_a_verb_that_failed_afterwards_is_written_again(tmp_path: Path) -> None:
    """`caption --out` writes the answers, and then exits with 1 because an image was not read."""

    def verb(out: Annotated[Path, OutFile()], fails: bool) -> None:
        out.write_text("answers")
        if fails:
            raise SystemExit(1)

    command, out = guarded(verb), tmp_path / "out.txt"
    for fails in (True, True, False):
        with pytest.raises(SystemExit) if fails else nullcontext():
            command(out=out, fails=fails)
    out.write_text("the user's")
    with pytest.raises(OutputError, match="Diptych did not write it"):
        command(out=out, fails=True)
    assert out.read_text() == "the user's"


def test_a_list_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "out.json").write_text("{}")
    outputs.note(tmp_path / "out.json")
    assert "so only --force will replace" in capsys.readouterr().err


def test_a_full_device_has_no_free_space() -> None:
    with pytest.raises(DiptychError, match=r"^the disk is full: /dev/full takes no more; choose another place$"):
        write_atomically(Path("/dev/full"), b"x")


def test_a_vocabulary_of_the_user_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (texts := tmp_path / "texts").write_bytes(b"a dog runs\n\xff bad\n")
    train = ["tokenizer", "train", "--text", str(texts), "--out", str(tmp_path / "out")]
    assert run_verb([*train, "--size", "10"], debug=False) == 2
    assert not (tmp_path / "out").exists()
    said = capsys.readouterr().err
    assert "1 of 2 texts have bytes that are not UTF-8" in said
    least = re.search(r"--size 10: .* need (\d+) tokens .*; pass \1 or more", said)
    assert least is not None
    for _ in range(2):
        assert run_verb([*train, "--size", least[1]], debug=False) == 0
    (file := tmp_path / "out/tokenizer.json").write_text("mine")
    assert run_verb(train, debug=False) == 2
    assert run_verb(["tokenizer", "train", "--text", str(file), "--out", str(tmp_path / "out")], debug=False) == 2
    assert file.read_text() == "mine"
