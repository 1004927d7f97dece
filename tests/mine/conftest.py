"""A small test web, and a run of it, made once."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from diptych_mine.run import Mine
from diptych_mine.settings import MiningSettings
from diptych_world import web


@pytest.fixture(scope="session")
def small_web(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """96 pages, eight of each template."""
    folder = tmp_path_factory.mktemp("web")
    web.write(folder, 96, seed=3)
    return folder


@pytest.fixture(scope="session")
def mined(small_web: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of a finished run, offline, and its funnel."""
    out = tmp_path_factory.mktemp("mined") / "out"
    return out, run(out, small_web / "warc")


def run(out: Path, *given: Path, settings: MiningSettings | None = None, **more: Any) -> dict[str, Any]:
    told = Mine(out, given, settings or MiningSettings(offline=True), tell=lambda _: None, **more).run()
    assert told is not None
    return told


def digest(out: Path) -> str:
    """Of records, verdicts and the funnel."""
    told = hashlib.sha256()
    for path in sorted([*out.glob("records/*"), *out.glob("decisions/*"), out / "funnel.json"]):
        told.update(f"{path.relative_to(out)}\0".encode() + path.read_bytes())
    return told.hexdigest()
