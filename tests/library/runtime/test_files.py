"""Files and folders are written whole or not at all, and what is not a file is written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from diptych.cli import run_verb
from diptych.runtime.errors import DiptychError
from diptych.runtime.files import sweep, write_atomically
from diptych.runtime.outputs import copy_folder

GONE = 2**22 + 1  # no process has a number above 2^22 on Linux


def test_a_device_is_written_to_and_stays(tmp_path: Path) -> None:
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    for path in (Path("/dev/null"), link):
        write_atomically(path, b"text")
    assert Path("/dev/null").is_char_device()
    assert link.is_symlink()
    with pytest.raises(DiptychError, match="disk is full: /dev/full"):
        write_atomically(Path("/dev/full"), b"text")
    assert Path("/dev/full").is_char_device()


def test_a_pipe_gets_what_is_written(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, b"text")
    reader.join()
    assert read == [b"text"]
    assert pipe.is_fifo()


def test_a_link_leads_to_what_is_written(tmp_path: Path) -> None:
    there, link, dangling = tmp_path / "there", tmp_path / "link", tmp_path / "dangling"
    there.write_text("before")
    link.symlink_to(there)
    dangling.symlink_to(tmp_path / "new")
    write_atomically(link, b"after")
    write_atomically(dangling, b"fresh")
    assert link.is_symlink()
    assert there.read_text() == "after"
    assert dangling.is_symlink()
    assert (tmp_path / "new").read_text() == "fresh"


def test_a_folder_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(DiptychError, match="is a folder"):
        write_atomically(tmp_path / "folder", b"text")
    with pytest.raises(DiptychError, match="cannot write"):
        write_atomically(tmp_path / "none" / "file", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_folder_is_copied_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "inner").mkdir(parents=True)
    (source / "a").write_text("new")
    (source / "inner" / "b").write_text("b")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a").write_text("old")
    copy_folder(tmp_path / "old", target, "detector")
    shutil.rmtree(tmp_path / "old")
    copied, whole = [], shutil.copyfile

    def broken(*given: str, **named: bool) -> object:
        copied.append(given)
        if len(copied) == 2:
            raise OSError(28, "No space left on device")
        return whole(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", broken)
        with pytest.raises(DiptychError, match="cannot copy"):
            copy_folder(source, target, "detector")
    assert (target / "a").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]
    copy_folder(source, target, "detector")
    assert (target / "a").read_text() == "new"
    assert (target / "inner" / "b").read_text() == "b"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


def test_what_a_kill_left_is_swept_and_what_is_under_way_is_not(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    left = tmp_path / "in" / f".a.json.diptych-{GONE}.partial"
    left.write_text("half")
    (tmp_path / f".model.diptych-{GONE}.partial").mkdir()
    (tmp_path / f".model.diptych-{GONE}.old").mkdir()
    (tmp_path / f".model.diptych-{GONE}.old" / "weights").write_text("whole")
    mine = tmp_path / f".b.json.diptych-{os.getpid()}.partial"
    mine.write_text("half")
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [mine.name, "in", "model"]
    assert (tmp_path / "model" / "weights").read_text() == "whole"
    assert not left.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only POSIX has zombies")
def test_what_a_dead_process_left_goes_though_nobody_asked_how_it_ended(tmp_path: Path) -> None:
    # an interpreter: a child of this process, and nobody asks how it ended
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    while psutil.Process(ended.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    left = tmp_path / f".a.json.diptych-{ended.pid}.partial"
    left.write_text("half")
    sweep(tmp_path)
    there = left.exists()
    ended.wait()
    assert not there


@pytest.mark.parametrize(
    "words",
    ["pretrain unified-vlp/small/pretrain --data store --out X", "mine run page --out X --skip-nsfw-check",
     "storybook web --out X --pages 2", "check store --model X", "tokenizer train --data X --out out",
     "caption 0.png --model X"],
)  # fmt: skip
def test_a_folder_whose_name_is_not_utf8_is_refused(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Safetensors and tokenizers cannot open what lies in it, and torch.export ends the process."""
    from diptych_serve.export.write import export

    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"caf\xe9")
    if "--out X" not in words:
        Path(name).mkdir()
    assert run_verb(words.replace("X", name).split(), debug=False) == 1
    assert "is not UTF-8; rename the file, or pass another" in capsys.readouterr().err
    assert Path(name).exists() == ("--out X" not in words)
    with pytest.raises(DiptychError, match="is not UTF-8"):
        export(None, Path(name), "torch")  # type: ignore[arg-type]


def test_a_link_to_a_private_file_is_not_copied(tmp_path: Path) -> None:
    """In a detector of another it would be copied into each model that is trained with it, and pushed."""
    (tmp_path / "key").write_text("private")
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "weights").write_text("w")
    (source / "inner" / "same").symlink_to("../weights")
    copy_folder(source, tmp_path / "copy", "detector")
    assert (tmp_path / "copy" / "inner" / "same").read_text() == "w"
    (source / "inner" / "notes").symlink_to(tmp_path / "key")
    with pytest.raises(DiptychError, match=r"inner/notes is a link that leads out of .*source, to .*key"):
        copy_folder(source, tmp_path / "other", "detector")
    assert not (tmp_path / "other").exists()


def test_links_of_the_hub_s_cache_are_copied(tmp_path: Path) -> None:
    home = tmp_path / "models--me--kites"
    (home / "blobs").mkdir(parents=True)
    (home / "blobs" / "ab12").write_text("w")
    snapshot = home / "snapshots" / "c0ffee" / "detector"
    snapshot.mkdir(parents=True)
    (snapshot / "weights").symlink_to("../../../blobs/ab12")
    copy_folder(snapshot, tmp_path / "copy", "detector")
    assert (tmp_path / "copy" / "weights").read_text() == "w"
    assert not (tmp_path / "copy" / "weights").is_symlink()
