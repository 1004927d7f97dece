"""A small drawn world with ground-truth regions, made once, and the command line as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

from diptych import cli
from diptych.data.extract.own_data import extract_regions
from diptych.data.formats.table import read
from diptych.data.store.store import Store
from diptych.runs.run import run as train
from diptych.systems import find_recipe
from tests.support import toy, zygote
from tests.support.scenes import scene_store

SPLITS = {"train": 40, "val": 8, "test": 12}
# Two processes of one thread each: more threads than cores would make them crawl.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = scene_store(tmp_path_factory.mktemp("world") / "store", SPLITS, detector=True)
    assert len(store) == sum(SPLITS.values())
    return store.folder


@pytest.fixture(scope="session")
def server() -> None:
    """The fork server of this process: one that a test marked `large` starts would end with it."""
    zygote.start()


@dataclass
class Result:
    code: int
    error: str
    out: str = ""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command line in this process."""

    def run(*arguments: object) -> Result:
        monkeypatch.setattr("sys.argv", ["diptych", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        result = capsys.readouterr()
        return Result(int(ended.value.code or 0), result.err, result.out)

    return run


@pytest.fixture(scope="session")
def with_detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as `diptych demo` leaves one, of a detector that has learnt nothing and a model that hardly has."""
    folder = tmp_path_factory.mktemp("demo")
    detector = toy.detector(64)
    records = read(drawn_pictures(folder, 12))
    extract_regions(records, detector, folder / "store")
    settings = [
        word for word in tiny(**{"model.max_regions": 8, "model.positions": 40, "training.steps": 5}) if word != "--set"
    ]
    recipe = find_recipe("unified-vlp/small/pretrain", settings)
    train(recipe, Store(folder / "store"), folder / "pretrain")
    return folder / "pretrain"


def drawn_pictures(folder: Path, count: int) -> Path:
    """Scenes as a user's photos, in `folder/photos`, and lines about them in `folder/mine.jsonl`."""
    from diptych_world.book import record
    from diptych_world.layout import scene
    from diptych_world.render import render

    (folder / "photos").mkdir(parents=True)
    lines = []
    for index in range(count):
        drawn = scene(7, "train", index)
        name = f"photos/{index:03d}.jpg"
        Image.fromarray(render(drawn)).save(folder / name)
        said = record(drawn)
        lines.append({"image": name, "captions": list(said.captions)})
        lines += [{"image": name, "question": q.text, "answers": list(q.answers)} for q in said.questions[:3]]
        lines.append({"image": name, "objects": [{"kind": t.kind, "box": in_pixels(t.box)} for t in said.objects]})
        lines += [{"image": name, "expression": e.text, "box": in_pixels(e.box)} for e in said.expressions[:2]]
        lines += [{"image": name, "statement": s.text, "true": s.true} for s in said.statements[:2]]
        hypotheses = said.more.get("entailment", ())
        lines.append(
            {"image": name, "more": {"entailment": [{"text": h.text, "answers": h.answers} for h in hypotheses]}}
        )
        lines += [{"image": name, "text": h.text, "label": h.answers[0]} for h in hypotheses]
        lines += [
            {"image": name, "question": c.question, "choices": list(c.answers), "answer": c.answer,
             "rationales": list(c.rationales), "rationale": c.rationale}
            for c in said.choices
        ]  # fmt: skip
    (folder / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "mine.jsonl"


def in_pixels(box: Sequence[float]) -> list[int]:
    """Left, top, width, height of a drawn thing."""
    from diptych_world.world import SIDE

    x1, y1, x2, y2 = (round(end * SIDE) for end in box)
    return [x1, y1, x2 - x1, y2 - y1]


def diptych(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    done = zygote.run(command(arguments), ENVIRONMENT)
    assert done.returncode == 0 or not check, done.stderr
    return done


def command(arguments: Sequence[object]) -> list[str]:
    return ["-m", "diptych.cli", *map(str, arguments)]


def kill_at_its_first_checkpoint(run: Path, *arguments: object) -> None:
    """Begin a command that trains in `run`, and kill it while it does."""
    running = zygote.Popen(command(arguments), ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(run.glob("checkpoints/step-*")):
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not (run / "model").exists()


def tiny(**more: object) -> list[str]:
    """Settings that make a run take seconds."""
    settings = {"model.width": 32, "model.heads": 2, "model.layers": 2, "model.ffn": 64, "training.batch": 8,
                "training.steps": 20, "training.validate_every": 10, "training.checkpoint_every": 5,
                "training.log_every": 1, "data.validation_records": 4} | more  # fmt: skip
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
