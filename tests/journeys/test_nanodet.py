"""A detector out of a packed npm package: imported, looked at, and regions of photographs in a store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys.conftest import Result, drawn_pictures
from tests.support.tfjs_files import small_package


def test_from_a_package_to_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Result]) -> None:
    monkeypatch.chdir(tmp_path)
    drawn_pictures(tmp_path, 4)
    small_package(tmp_path / "models.tgz")
    asked = run("import", "detector", "tfjs:models.tgz#nanodet", "--out", "nanodet")
    assert (asked.code, "with --set sha256=any" in asked.error) == (1, True)
    imported = run("import", "detector", "tfjs:models.tgz#nanodet", "--out", "nanodet", "--set", "sha256=any",
                   "--images", "photos")  # fmt: skip
    assert imported.code == 0, imported.error
    assert "16 values a region, 3 classes\nlook at the regions of photos in nanodet/regions.png\n" in imported.out
    (tmp_path / "models.tgz").unlink()
    extracted = run("extract", "mine.jsonl", "--out", "store", "--detector", "nanodet", "--set", "most=6", "--json")
    assert extracted.code == 0, extracted.error
    assert json.loads(extracted.out)["store"] == "store"
    checked = run("check", "store")
    assert checked.code == 0, (checked.out, checked.error)
