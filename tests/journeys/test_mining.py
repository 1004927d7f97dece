"""The commands of docs/mining.md, in their order, on a small web."""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from PIL import Image

from diptych_world.book import Storybook
from diptych_world.render import render
from diptych_world.web.pictures import unnatural
from tests.conftest import REPOSITORY
from tests.journeys.conftest import Result, tiny

PAGE = (REPOSITORY / "docs" / "mining.md").read_text()
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^    (diptych .*)$", PAGE, re.MULTILINE)]


def prepare(folder: Path) -> None:
    """What the page takes for granted: pictures by class, a list of hosts."""
    for number, scene in enumerate(Storybook(0, "train", 24)[:]):
        path = folder / "classes" / "natural" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(render(scene, 2)).save(path)
        path = folder / "classes" / "unnatural" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        unnatural(("chart", "text")[number % 2], Random(number)).save(path)
    (folder / "hosts.txt").write_text("site-001.test\n")
    (folder / "photos.tsv").write_text("a red kite over a beach\thttp://photos.invalid/kite.jpg\n")


def label(folder: Path) -> None:
    """By the truth of the web, as a person would."""
    truth = map(json.loads, (folder / "web" / "truth.jsonl").read_text().splitlines())
    right = {(line["page"], text["text"]) for line in truth for text in line["texts"] if text["right"]}
    lines = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]
    result = [line | {"true": (line["page"], line["statement"]) in right} for line in lines]
    (folder / "labels.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in result))


@pytest.mark.slow
def test_the_page_from_top_to_bottom(
    with_detector: Path, tmp_path: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(with_detector, "demo/pretrain")
    prepare(tmp_path)
    for command in COMMANDS:
        if "--contact" in command:  # a host that no network has
            command = [*command, "--set", "fetch.backoff=0"]  # noqa: PLW2901
        if command[0] == "pretrain":
            command = [*command, *tiny(**{"training.steps": 2})]  # noqa: PLW2901
        result = run(*command)
        assert result.code == ("--contact" in command), (command, result.error)  # 1: no record is left
        if command[:2] == ["mine", "label"]:
            label(tmp_path)
    assert "forgotten" in result.out
    assert (tmp_path / "mined" / "card.md").is_file()
    assert json.loads((tmp_path / "scorer" / "scorer.json").read_text())["auc"] > 0.8
    assert len(list((tmp_path / "labels.html").read_text().split("<img"))) > 10
    assert json.loads((tmp_path / "fetched" / "funnel.json").read_text())["failures"] == {"name not resolved": 1}
