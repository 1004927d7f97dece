"""The commands of docs/your-own-data.md, then those of its reference, in their order, on a few small pictures."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import diptych as library
from diptych.data.store.store import Store, iterate
from tests.conftest import REPOSITORY
from tests.journeys.conftest import Result, drawn_pictures, tiny
from tests.support.given_features import SIZES, given, small

PAGES = ("your-own-data.md", "own-data-reference.md")
PAGE = "\n".join((REPOSITORY / "docs" / name).read_text() for name in PAGES)
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^    (diptych .*)$", PAGE, re.MULTILINE)]


@pytest.fixture
def begun(with_detector: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the page asks for: a model, pictures with lines, npz, COCO files."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(with_detector, "demo/pretrain")
    drawn_pictures(tmp_path, 30)
    (tmp_path / "features").mkdir()
    for number in range(30):
        given(tmp_path / "features" / f"{number:03d}.npz", seed=number)
    for split, numbers in (("train", range(16)), ("val", range(16, 20))):
        images = [{"id": n, "file_name": f"{n:03d}.jpg", "width": 160, "height": 160} for n in numbers]
        words = [{"id": n, "image_id": n, "caption": "a drawn scene"} for n in numbers]
        (tmp_path / f"captions_{split}.json").write_text(json.dumps({"images": images, "annotations": words}))
    return tmp_path


@pytest.mark.slow
def test_the_page_from_top_to_bottom(begun: Path, run: Callable[..., Result]) -> None:
    assert COMMANDS[0][0] == "demo"  # what it makes lies there
    said = {}
    for command in COMMANDS[1:]:
        result = run(*small(command))
        assert result.code == 0, (command, result.error)
        said[" ".join(command)] = result.out
    lines = [json.loads(line) for line in (begun / "captions.jsonl").read_text().splitlines()]
    assert len(lines) == 30
    assert set(lines[0]) == {"picture", "caption", "score", "precision"}
    assert {path.name for path in (begun / "shown").iterdir()} == {"000.png", "001.png", ".diptych"}
    assert len(next(text for line, text in said.items() if "--num-captions 3" in line).splitlines()) == 3
    assert len(next(text for line, text in said.items() if line.startswith("ask")).splitlines()) == 2
    assert (begun / "found" / "000.png").is_file()
    assert "; found/000.png" in next(text for line, text in said.items() if line.startswith("ground"))
    verdicts = next(text for line, text in said.items() if line.startswith("verify")).splitlines()
    assert all(line.startswith(("true: ", "false: ")) for line in verdicts)
    chosen = next(text for line, text in said.items() if line.startswith("choose")).splitlines()
    assert (chosen[0] in ("it rests", "it runs"), chosen[1] in ("it lies", "it is wet")) == (True, True)
    assert Store(begun / "coco").splits == {"train": 16, "val": 4}
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(snippet, {})
    contract = Store(begun / "store").contract
    assert (contract.extractor, contract.feature_size, len(contract.class_names)) == ("given", 12, 3)
    splits = Store(begun / "runs" / "mine" / "store").splits
    assert splits == Store(begun / "store").splits
    assert set(splits) == {"train", "val", "test"}
    assert splits["train"] > 15


def test_the_lines_of_the_page_are_read(tmp_path: Path) -> None:
    from diptych.data.formats.table import read

    lines = re.findall(r"^    (\{.*\})$", PAGE, re.MULTILINE)
    (tmp_path / "mine.jsonl").write_text("\n".join(lines))
    (tmp_path / "photos").mkdir()
    for name in ("000.jpg", "001.jpg"):
        Image.new("RGB", (100, 200)).save(tmp_path / "photos" / name)
    first, second = read(tmp_path / "mine.jsonl")
    assert (len(first.captions), len(first.questions), second.split) == (2, 1, "test")
    assert first.expressions[0].box == (0.4, 0.3, 0.7, 0.425)
    assert [thing.kind for thing in first.objects] == ["dog", "tree"]
    assert (first.choices[0].answer, first.choices[0].rationale, first.choices[0].named) == (0, 0, [0, 1])
    assert [statement.true for statement in first.statements] == [False]
    assert [hypothesis.answers for hypothesis in first.more["entailment"]] == [("neutral",)]


def test_several_processes_do_not_look(
    begun: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    result = run(*shlex.split("finetune caption --data mine.jsonl --model demo/pretrain --out runs/mine"))
    assert (result.code, "diptych extract mine.jsonl --out STORE" in result.error) == (2, True), result.error
    assert not (begun / "runs").exists()


def test_a_stopped_run_goes_on_and_changed_words_are_refused(begun: Path, run: Callable[..., Result]) -> None:
    command = small(shlex.split("finetune caption --data mine.jsonl --model demo/pretrain --out runs/mine"))
    assert run(*command, "--set", "training.steps=2").code == 0
    written = (begun / "runs/mine/store/shard-00000.safetensors").stat().st_mtime_ns
    again = run(*command, "--set", "training.steps=2")
    assert (again.code, "already finished with this recipe" in again.error) == (0, True)
    again = run(*command, "--set", "training.steps=3")
    assert (again.code, "30 were there already" in again.error) == (0, True)
    assert (begun / "runs/mine/store/shard-00000.safetensors").stat().st_mtime_ns == written
    other = run(*command, "--set", "training.steps=3", "--split-seed", 5)
    assert (other.code, "see --split-seed" in other.error) == (1, True)
    evaluated = run("evaluate", "--model", "runs/mine", "--data", "mine.jsonl", "--split", "val")
    assert (evaluated.code, "CIDEr" in evaluated.out) == (0, True), evaluated.error


def test_one_bad_picture_does_not_stop_the_others(begun: Path, run: Callable[..., Result]) -> None:
    (begun / "photos" / "cut.jpg").write_bytes((begun / "photos" / "000.jpg").read_bytes()[:300])
    result = run("caption", "photos/cut.jpg", "none.jpg", "empty*", "photos/001.jpg", "--model", "demo/pretrain")
    assert result.code == 1, "some images failed"
    assert [line.split(":")[0] for line in result.out.splitlines()] == ["photos/001.jpg"]
    assert all(name in result.error for name in ("photos/cut.jpg", "none.jpg", "no images in empty*"))
    result = run("caption", "photos/cut.jpg", "none.jpg", "--model", "demo/pretrain", "--out", "o.txt")
    assert (result.code, "2 of 2 images failed" in result.error, Path("o.txt").exists()) == (1, True, False)


def test_weights_say_what_a_region_was_worth(begun: Path) -> None:
    model = library.load("demo/pretrain")
    (said,) = model.caption(["photos/000.jpg"])
    shown = model.explain("photos/000.jpg", said)
    assert {len(row) for row in shown.weights} == {len(said.boxes)}
    assert "".join(shown.words) == said.replace(" ", "")
    (record,) = model.predictor.extract([Path("photos/000.jpg")])
    assert model.explain(record, said).weights == shown.weights


def test_given_features_are_read_best_region_first(begun: Path, run: Callable[..., Result]) -> None:
    given(begun / "features" / "003.npz", features=np.ones((5, 7), np.float32))
    result = run("extract", "mine.jsonl", "--out", "store", "--detector", "given", "--features", "features")
    assert (result.code, "29 extracted, 1 failed" in result.out) == (0, True)
    assert "003.npz: found `features` of shape (5, 7), expected (5, 12)" in result.error
    regions = Store(begun / "store").record(0).regions
    assert regions is not None
    assert regions.scores.tolist() == sorted(regions.scores.tolist(), reverse=True)
    assert regions.boxes[0].tolist() == [0, 0, 0.5, 0.5]
    result = run("pretrain", "unified-vlp/small/pretrain", "--data", "store", "--out", "given",
               *tiny(**SIZES, **{"data.split": "train", "training.steps": 1}))  # fmt: skip
    assert result.code == 0, result.error
    result = run("caption", "photos/000.jpg", "--model", "given")
    assert (result.code, "pass the features of your images: --features PATH" in " ".join(result.error.split())) == (
        1,
        True,
    )
    (begun / "features" / "002.npz").unlink()
    result = run(
        "caption", "photos/001.jpg", "photos/002.jpg", "photos/003.jpg", "--model", "given", "--features", "features"
    )
    assert [line.split(":")[0] for line in result.out.splitlines()] == ["photos/001.jpg"]
    assert "expected (5, 12)" in result.error
    assert "found no" in result.error
    result = run("finetune", "caption", "--data", "mine.jsonl", "--model", "given", "--out", "tuned")
    assert (result.code, "pass them: --features PATH" in result.error) == (1, True)
    assert "003" not in "".join(one.key for one in iterate(Store(begun / "store")))
