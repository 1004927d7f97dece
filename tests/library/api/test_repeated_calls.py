"""Calls that are repeated after something has changed: nothing old is returned in silence."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from diptych.api import job
from diptych.api.dataset import Dataset
from diptych.api.run import Run
from diptych.api.training import finetune, pretrain
from diptych.cli import run_verb
from diptych.runtime.errors import DataError, OutputError, RecipeError, Stopped
from tests.library.api.conftest import TINY
from tests.support import toy

PRETRAIN = "unified-vlp/small/pretrain"


@pytest.fixture(scope="module")
def pretrained(world: Path, detector: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("pretrained") / "run"
    settings = TINY | {"data.split": "train"}
    return pretrain(world, recipe=PRETRAIN, out=out, detector=detector, steps=2, batch_size=8, settings=settings)


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from diptych_world.files import write

    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "world"
    folder.mkdir()
    write(folder, {"train": 8, "val": 2, "test": 2}, seed=1, processes=1)
    return folder


def write_another(image: Path) -> None:
    with Image.open(image) as opened:
        size = opened.size
    Image.new("RGB", size, "red").save(image)


def rename_an_older_one(image: Path) -> None:
    other = image.with_name("other.png")
    shutil.copyfile(image, other)
    write_another(other)
    os.utime(other, (0, 0))
    other.replace(image)


def link_to_another(image: Path) -> None:
    other = image.parent.parent.parent / "elsewhere.png"
    shutil.copyfile(image, other)
    write_another(other)
    image.unlink()
    image.symlink_to(other)


def test_changed_images_are_not_read_from_an_old_run_or_store(drawn: Path, pretrained: Run) -> None:
    def train(out: str = "run") -> Run:
        return finetune("caption", drawn, pretrained.folder, steps=1, batch_size=4, out=out)

    image = sorted(drawn.rglob("*.png"))[0]
    kept = image.read_bytes()
    train()
    Dataset.read(drawn).extract("store", detector=pretrained.folder)
    changed = f"^.*{image.name} has changed since its regions were extracted to"
    for change in (write_another, rename_an_older_one, link_to_another):
        change(image)
        with pytest.raises(DataError, match=f"{changed} run/store; choose another `out`, or delete this store$"):
            train()
        with pytest.raises(DataError, match=f"{changed} store; choose another `out`"):
            Dataset.read(drawn).extract("store", detector=pretrained.folder)
        image.unlink()
        image.write_bytes(kept)  # a new file with the same content
        assert train().folder == Path("run")
        assert len(Dataset.read(drawn).extract("store", detector=pretrained.folder)) == 12
    write_another(image)
    assert train("again").folder == Path("again")
    shutil.rmtree("again/store")
    assert train("again").folder == Path("again")
    shutil.rmtree("again/store")
    image.write_bytes(kept)
    with pytest.raises(DataError, match=r"^again/store changed after the run in again began; choose another `out`"):
        train("again")


def test_a_folder_of_older_images_in_the_place_of_another_is_noticed(drawn: Path, pretrained: Run) -> None:
    shutil.copytree(drawn, "other", copy_function=shutil.copy2)
    for image in Path("other").rglob("*.png"):
        write_another(image)
    Dataset.read(drawn).extract("store", detector=pretrained.folder)
    drawn.rename("before")
    Path("other").rename(drawn)
    with pytest.raises(DataError, match="has changed since its regions were extracted to store"):
        Dataset.read(drawn).extract("store", detector=pretrained.folder)
    assert run_verb(["extract", str(drawn), "--out", "store", "--detector", str(pretrained.folder)], debug=False) == 1


def test_a_refused_call_adds_nothing_and_a_moved_folder_is_named(drawn: Path, pretrained: Run) -> None:
    data = Dataset.read(drawn)
    data[:1].extract("store", detector=pretrained.folder)
    with pytest.raises(DataError, match="store has the record"):
        data[1:2].extract("store", detector=pretrained.folder)
    assert len(data[:1].extract("store", detector=pretrained.folder)) == 1
    key, image = data[0].record.key, data[0].record.image
    drawn.rename("moved")
    with pytest.raises(DataError, match=f"^store was made when moved had the image of '{key}' at {image}; choose"):
        Dataset.read("moved")[:1].extract("store", detector=pretrained.folder)


def features_of(world: Path, folder: Path, **changed: float) -> None:
    """Write features of each image to its own file; `changed`: the first feature of an image."""
    for number, one in enumerate(Dataset.read(world)):
        rng, boxes = np.random.default_rng(number), np.array([[0, 0, 9, 9], [5, 5, 20, 20]], np.float32)
        features = rng.random((2, 8), dtype=np.float32)
        features[0, 0] = changed.get(one.record.key, features[0, 0])
        path = folder / f"{one.record.key}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        width, height = one.record.size or (64, 48)
        np.savez(path, features=features, boxes=boxes, width=width, height=height)


def test_changed_features_are_not_read_from_an_old_run_or_store(drawn: Path) -> None:
    settings = TINY | {"data.split": "train"}
    own: dict[str, Any] = {"recipe": PRETRAIN, "features": "features", "steps": 1, "batch_size": 4, "out": "run"}
    verb = ["extract", str(drawn), "--out", "store", "--detector", "given", "--features", "features"]

    def train() -> Run:
        return pretrain(drawn, settings=settings, **own)

    features_of(drawn, Path("features"))
    train()
    assert run_verb(verb, debug=False) == 0
    key = Dataset.read(drawn)[7].record.key
    features_of(drawn, Path("features"), **{key: 0.5})
    with pytest.raises(DataError, match=f"^features/{key}.npz has other features of '{key}' than when run/store was"):
        train()
    assert run_verb(verb, debug=False) == 1
    features_of(drawn, Path("features"))  # new files with the same content
    assert train().folder == Path("run")
    assert run_verb(verb, debug=False) == 0
    stat = Path(f"features/{key}.npz").stat()
    features_of(drawn, Path("features"), **{key: 0.5})
    os.utime(f"features/{key}.npz", ns=(stat.st_atime_ns, stat.st_mtime_ns))  # rewritten in place, with its time
    with pytest.raises(DataError, match=f"^features/{key}.npz has other features of '{key}' than when run/store was"):
        train()
    assert run_verb(verb, debug=False) == 1


def test_another_detector_in_the_same_folder_is_noticed(drawn: Path, detector: str) -> None:
    shutil.copytree(detector, "detector")
    settings = TINY | {"data.split": "train"}
    own: dict[str, Any] = {"recipe": PRETRAIN, "steps": 1, "batch_size": 4, "settings": settings, "out": "run"}
    pretrain(drawn, detector="detector", **own)
    shutil.rmtree("detector")
    other = toy.detector(64)
    next(other.network.parameters()).data += 1
    Path("detector").mkdir()
    other.save(Path("detector"))
    with pytest.raises(DataError, match=r"^run/store holds features that were made with other settings"):
        pretrain(drawn, detector="detector", **own)


def test_a_run_resumes_only_with_the_data_and_files_that_it_began_with(drawn: Path, detector: str) -> None:
    def train(steps: int = 1, **more: Any) -> Run:
        settings = TINY | {"data.split": "train", "data.text": "text.txt", "data.text_words": 8}
        return pretrain("store", recipe="vl-bert/small/pretrain", steps=steps, batch_size=4, settings=settings, **more)

    lines, data = Path("text.txt"), Dataset.read(drawn)
    lines.write_text("a red dog runs\n" * 40)
    data[:9].extract("store", detector=detector)
    unnamed = train()
    train(out="run")
    lines.write_text("a blue cat sits\n" * 40)
    assert train().folder != unnamed.folder
    for steps in (1, 2):
        with pytest.raises(DataError, match=r"^text\.txt changed after the run in run began; choose another `out`"):
            train(steps, out="run")
    lines.write_text("a red dog runs\n" * 40)
    assert train().folder == unnamed.folder
    shutil.move("store", "before")
    data[:8].extract("store", detector=detector)
    with pytest.raises(DataError, match=r"^store changed after the run in run began"):
        train(2, out="run")
    shutil.rmtree("store")
    shutil.move("before", "store")
    assert train(2, out="run").metrics[-1]["step"] == 2


def test_a_file_of_the_user_in_the_model_folder_is_named_before_training(drawn: Path, pretrained: Run) -> None:
    def train(steps: int) -> Run:
        return finetune("caption", drawn, pretrained.folder, steps=steps, batch_size=4, out="run")

    train(1)
    Path("run/model/mine.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"^run/model would be replaced, but .* added or changed .*mine\.txt"):
        train(2)
    assert Run("run").metrics[-1]["step"] == 1


def test_on_log_ends_all_stages_and_the_run_continues_without_it(drawn: Path, detector: str) -> None:
    def train(**more: Any) -> Run:
        own = TINY | {"data.split": "train", "training.log_every": 2, "model.max_regions": None, "model.positions": 60}
        own = {key: value for key, value in own.items() if value is not None}
        return pretrain(
            drawn, recipe="image-bert/small/pretrain/web-then-train", detector=detector, steps=4, batch_size=4,
            out="run", settings=own, **more,
        )  # fmt: skip

    first = train(on_log=lambda _: False)
    assert [path.name for path in sorted(first.folder.glob("stage-*/metrics.jsonl"))] == ["metrics.jsonl"]
    assert first.metrics[-1]["step"] == 2
    again = train()
    assert [row["step"] for row in again.metrics] == [2, 4, 2, 4]


def test_a_run_that_on_log_ended_continues_without_it(
    drawn: Path, pretrained: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(**more: Any) -> Run:
        return finetune(
            "caption", drawn, pretrained.folder, steps=6, batch_size=4, settings={"training.log_every": 2}, **more
        )

    def stop(_: object) -> bool:
        return False

    first = train(on_log=stop)
    assert first.metrics[-1]["step"] == 2
    again = train(on_log=stop)
    assert (again.folder, again.metrics[-1]["step"]) == (first.folder, 2)
    assert "already ended by on_log; the same call without on_log continues" in capsys.readouterr().err
    assert train().metrics[-1]["step"] == 6
    assert train().metrics[-1]["step"] == 6
    assert "already finished" in capsys.readouterr().err


def test_what_would_be_ignored_or_fail_late_is_refused(
    drawn: Path, pretrained: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Dataset.read(drawn)
    stored = data.extract("store", detector=pretrained.folder)
    with pytest.raises(RecipeError, match=r"^data: found a store, which has regions already; leave out `detector`$"):
        finetune("caption", stored, pretrained.folder, detector="nope")
    with pytest.raises(DataError, match=r"^store has the record '.*', which .* lacks; choose another `out`"):
        data[:3].extract("store", detector=pretrained.folder)
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        data[["a"]]  # type: ignore[call-overload]

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "store_of", interrupted)
    two = {"a": data, "b": data["train"]}
    with pytest.raises(DataError, match=r"no records in split 'train'; it has a \(8\), val \(2\), test \(2\), b \(8\)"):
        pretrain(two, recipe=PRETRAIN, detector="sample", steps=1, settings={"data.split": "train"})
    with pytest.raises(Stopped, match=r"^stopped; regions in complete shards are kept, and the same call resumes$"):
        pretrain(two, recipe=PRETRAIN, detector="sample", steps=1, settings={"data.split": "a+b"})
