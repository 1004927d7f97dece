"""The packaged model of photographs: what it holds, and that README and its page show what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import diptych
from diptych.core.folders import PACKAGED
from diptych.runs.folder import damaged_files

ROOT = Path(__file__).parents[2]
MODEL = PACKAGED / "photos"
PAGE = (ROOT / "docs/photos.md").read_text()


def test_it_is_small_and_whole_and_states_its_sources_and_licence() -> None:
    files = [path for path in MODEL.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 24_000_000
    assert damaged_files(MODEL) == []
    assert not [path for path in files if path.suffix == ".json" and b"/tmp/" in path.read_bytes()]
    assert not (MODEL / "seen.safetensors").exists()  # no fingerprints of the photographs
    for name in ("README.md", "LICENSE"):
        assert (MODEL / name).read_bytes() == (ROOT / "experiments/photos" / name).read_bytes()
    for weights in ("model.safetensors", "detector/detector.safetensors"):
        kept = load_file(MODEL / weights).values()
        assert {tensor.dtype for tensor in kept if tensor.is_floating_point()} == {torch.bfloat16}


def test_its_captions_are_those_of_the_page() -> None:
    """Not chosen: each image of the folder is on the page."""
    shown = dict(re.findall(r"^\| !\[.*\]\((photos/.*)\) \| (.*) \|$", PAGE, re.MULTILINE))
    assert len(shown) == 8
    assert {path.name for path in (ROOT / "docs/photos").iterdir()} == {Path(name).name for name in shown}
    captions = diptych.load("photos").caption([ROOT / "docs" / name for name in shown])
    assert dict(zip(shown, map(str, captions), strict=True)) == shown


def test_readme_s_command_prints_that_caption(run: Callable[..., Any]) -> None:
    done = run("caption", str(ROOT / "docs/photos/cat.jpg"), "--model", "photos")
    caption = done.out.strip().rpartition(": ")[2]
    assert "cat" in caption.split()
    assert f"This prints `{caption}`" in (ROOT / "README.md").read_text()
