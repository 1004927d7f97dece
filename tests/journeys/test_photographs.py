"""The commands of docs/photographs.md, then of its reference, in order, on small pictures and for 4 steps."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
import torch
from torchvision.models import mobilenet_v3_small
from torchvision.models.detection import ssdlite320_mobilenet_v3_large

from diptych.data.store.store import Store
from tests.conftest import REPOSITORY
from tests.journeys.conftest import ENVIRONMENT, Result, drawn_pictures
from tests.support import zygote
from tests.support.server_process import Process
from tests.support.tiny_bert import write

PAGES = ("photographs.md", "photographs-reference.md")
PAGE = "\n".join((REPOSITORY / "docs" / name).read_text() for name in PAGES)
COMMANDS = [shlex.split(line) for line in re.findall(r"^    ((?:diptych|python) .*)$", PAGE, re.MULTILINE)]
STEPS = {"training.steps": 4, "training.validate_every": 4, "training.checkpoint_every": 4, "training.batch": 8,
         "data.validation_records": 2}  # fmt: skip
PICTURES = 30


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the page asks for: photographs with lines, the script, its networks' weights, and words."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = [json.loads(line) for line in drawn_pictures(tmp_path, PICTURES).read_text().splitlines()]
    said = [line for line in lines if "captions" in line]
    (tmp_path / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in said))
    (tmp_path / "new").mkdir()
    for name in ("000.jpg", "001.jpg"):
        shutil.copy(tmp_path / "photos" / name, tmp_path / "new" / name)
    (script,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "features.py").write_text(script)
    (tmp_path / "site").mkdir()
    words = write("package", tmp_path).rename(tmp_path / "site/all_minilm_l6_v2")  # which the page installs
    (words / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    torch.manual_seed(0)
    detector = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
    torch.save(detector.state_dict(), tmp_path / "ssdlite.pth")
    torch.save(mobilenet_v3_small().state_dict(), tmp_path / "mobilenet.pth")
    return tmp_path


def test_the_script_is_short() -> None:
    (script,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len([line for line in script.splitlines() if line.strip()]) <= 35


def assert_served(arguments: list[str]) -> None:
    """The service of the page's line captions one of its photographs and finds one by words."""
    served = Process(*arguments)
    try:
        with Path("photos/000.jpg").open("rb") as file:
            said = httpx2.post(f"{served.url}/v1/caption", files={"image": ("000.jpg", file)}, trust_env=False)
        assert said.status_code == 200, said.text
        assert said.json().keys() >= {"picture", "caption", "score"}, said.text
        found = httpx2.post(f"{served.url}/v1/search", json={"query": "a dog"}, trust_env=False, timeout=60)
        assert found.status_code == 200, found.text
    finally:
        code, _ = served.end()
    assert code == 0


@pytest.mark.slow
def test_the_page_from_top_to_bottom(begun: Path, run: Callable[..., Result]) -> None:
    printed: dict[str, Result] = {}
    for program, *command in COMMANDS:
        if program == "python":
            zygote.run(command, ENVIRONMENT, check=True)
            continue
        if command[0] == "serve":
            assert_served(command[1:])
            continue
        short = [w for key, value in STEPS.items() for w in ("--set", f"{key}={value}")]
        result = run(*command, *(short if command[0] in ("pretrain", "finetune") else ()))
        assert result.code == 0, (command, result.error)
        printed[" ".join(command)] = result
    first, extracted = (result for line, result in printed.items() if line.startswith("extract"))
    assert f"{PICTURES} extracted; store" in first.out
    assert f"{PICTURES} extracted" in extracted.out
    assert Store(begun / "store").contract.feature_size == 1280
    assert "there is no features/classes.txt, so the 91 classes are named" in extracted.error
    regions = Store(begun / "given").record(0).regions
    assert regions is not None
    assert regions.boxes[0].tolist() == [0, 0, 1, 1], "the whole picture, whose score is the highest"
    assert regions.features is not None
    assert regions.features.std(0).amax() > 0, "regions that look different have different features"
    captioned = [result for line, result in printed.items() if line.startswith("caption new")]
    assert [len(result.out.splitlines()) for result in captioned] == [2, 2, 2]
    assert {path.name for path in (begun / "shown").glob("*")} == {"000.png", "001.png", ".diptych"}
    assert {"plot.html", "sheet.png", "sheet.html"} <= {path.name for path in begun.iterdir()}
    scored = [result.out for line, result in printed.items() if line.startswith("evaluate --model runs/captions")]
    assert ["beams 5 (recipe: 3)" in " ".join(text.split()) for text in scored] == [False, True]
