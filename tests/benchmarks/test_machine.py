"""What a saved result states of the run that made it: its command without folders of the machine, and its commit."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.machine import commit_of, save_result, without_folders

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("command", "saved"),
    [
        ("python -m b /srv/x/demo/caption /tmp/s/pictures/ --n 3", "python -m b caption pictures --n 3"),
        ("python -m b --data true=/home/me/true ../../me/store ~/runs", "python -m b --data true=true store runs"),
        ("python -m b 'tfjs:/tmp/a.tgz#nanodet'", "python -m b 'tfjs:a.tgz#nanodet'"),
        ("python -m b C:\\Users\\me\\demo", "python -m b demo"),
        ("python -m b demo/caption ./runs https://a.org/b/c", "python -m b demo/caption ./runs https://a.org/b/c"),
    ],
)
def test_a_command_keeps_the_last_names_of_folders_outside(command: str, saved: str) -> None:
    assert without_folders(command) == saved


def test_no_saved_result_and_no_page_names_a_folder_of_the_machine() -> None:
    files = [path for room in ("benchmarks", "experiments") for path in (ROOT / room / "results").glob("*.json")]
    pages = [*(ROOT / "docs" / "results").glob("*.md"), ROOT / "docs" / "results.md", ROOT / "docs" / "scale.md"]
    assert len(files) > 50
    for path in (*files, *pages):
        text = re.sub(r"\]\([^)]*\)", "]", path.read_text("utf-8"))  # without the targets of links
        for line in text.splitlines():
            assert without_folders(line) == line, f"{path.name}: {line}"


def test_a_result_has_its_command_and_the_last_commit_of_the_measured_code(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        settings = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", *settings, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    def commit(name: str, text: str) -> str:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        git("add", "."), git("commit", "-qm", name)
        return git("log", "-1", "--format=%h").strip()

    git("init", "-q")
    code = commit("src/a.py", "1")
    assert commit("docs.md", "1") != code
    assert commit_of(tmp_path) == code
    assert commit_of(tmp_path, "experiments") == code
    study = commit("experiments/a.py", "1")
    assert (commit_of(tmp_path), commit_of(tmp_path, "experiments")) == (code, study)
    (tmp_path / "docs.md").write_text("2")
    assert commit_of(tmp_path) == code
    (tmp_path / "src" / "a.py").write_text("2")
    assert commit_of(tmp_path) == f"{code} with changes"

    saved = json.loads(save_result("a", "python -m a /tmp/b/model", {"x": 1}, tmp_path).read_text())
    assert saved["command"] == "python -m a model"
    assert saved["figures"] == {"x": 1}
    assert {"processor", "amx", "instructions", "load"} <= set(saved["machine"])
