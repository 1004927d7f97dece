"""The wheel by itself: built, installed into an empty environment away from the checkout, and used there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from diptych.api.model import Model
from tests.support.service import make_model, picture

ROOT = Path(__file__).parent.parent.parent
UV = shutil.which("uv")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(UV is None, reason="needs uv on the PATH")]
THREE_LINES = """
import diptych

model = diptych.load({model!r})
print(model.caption({picture!r}))
"""


@dataclass(frozen=True)
class Installed:
    wheel: Path
    folder: Path
    constraints: Path

    def run(self, *command: str | Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """A program of the environment, in a folder that is not the checkout and knows nothing of it."""
        kept = {key: value for key, value in os.environ.items() if key not in {"VIRTUAL_ENV", "PYTHONPATH"}}
        return subprocess.run(
            [self.folder / "bin" / command[0], *command[1:]],
            cwd=self.folder,
            env={**kept, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )


def uv(*arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    assert UV is not None
    done = subprocess.run([UV, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """With the versions of uv.lock, without any extra."""
    folder = tmp_path_factory.mktemp("wheel")
    constraints, environment = folder / "constraints.txt", folder / "environment"
    uv("build", "-q", "--wheel", "--out-dir", folder)
    (wheel,) = folder.glob("diptych-*.whl")
    uv("export", "-q", "--frozen", "--no-dev", "--no-emit-project", "--no-hashes", "-o", constraints)
    # an interpreter: what the wheel is installed into
    uv("venv", "-q", "--python", sys.executable, environment, cwd=folder)
    uv("pip", "install", "-q", "--python", environment / "bin" / "python", "-c", constraints, wheel, cwd=folder)
    yield Installed(wheel, environment, constraints)
    shutil.rmtree(folder)


def test_the_wheel_holds_each_file_of_the_package(installed: Installed) -> None:
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    there = {name for name in ZipFile(installed.wheel).namelist() if ".dist-info/" not in name}
    assert there == wanted


def test_a_caption_from_three_lines_and_from_the_command_line(installed: Installed, tmp_path: Path) -> None:
    model = make_model(tmp_path)
    wanted = Model(model).caption((shown := tmp_path / "a.png").write_bytes(picture()) and shown)
    code = THREE_LINES.format(model=str(tmp_path / "model"), picture=str(shown))
    said = installed.run("python", "-c", code)
    assert (said.stdout.strip(), said.stderr) == (wanted, "")
    said = installed.run("diptych", "caption", shown, "--model", tmp_path / "model")
    assert wanted in said.stdout, said.stderr
    where = installed.run("python", "-c", "import diptych; print(diptych.__file__)")
    assert where.stdout.startswith(str(installed.folder)), "the checkout was asked, not the wheel"


def test_help(installed: Installed) -> None:
    said = installed.run("diptych", "--help")
    assert (said.returncode, said.stderr) == (0, "")
    assert "demo" in said.stdout


@pytest.mark.thorough
def test_the_main_job(installed: Installed, tmp_path: Path) -> None:
    done = installed.run("diptych", "demo", "--fast", "--out", tmp_path / "demo", timeout=800)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "demo" / "results.json").read_text())["scores"].keys() == {"caption", "vqa"}
    report = (tmp_path / "demo" / "report.html").read_text()
    assert len(report) > 100_000
    assert "before temperature scaling" in report


def test_what_lacks_an_extra_names_the_wheel(installed: Installed, tmp_path: Path) -> None:
    refused = installed.run("diptych", "serve", tmp_path)
    assert refused.returncode == 2
    assert f"of the extra `serve`: `uv pip install 'diptych[serve] @ {installed.wheel.as_uri()}'`" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.thorough
def test_uvx_runs_it_from_the_wheel(installed: Installed, tmp_path: Path) -> None:
    # an interpreter: what the wheel is installed into
    done = uv("tool", "run", "-q", "--python", sys.executable, "--constraints", installed.constraints,
              "--from", installed.wheel, "diptych", "recipes", "unified-vlp/*", cwd=tmp_path)  # fmt: skip
    assert "unified-vlp/small/caption" in done.stdout
