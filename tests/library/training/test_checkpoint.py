import errno
import hashlib
import json
import os
import resource
import shutil
from collections import namedtuple

import pytest
import torch
from rich.console import Console

from diptych.runtime.errors import CheckpointError, TrainingError
from diptych.training import checkpoint as checkpoints
from diptych.training.checkpoint import (
    Checkpoint,
    folder_of,
    load,
    load_latest,
    mean_of,
    prune,
    save,
    save_weights,
    steps_in,
)
from tests.support.toy_trainer import ToyModel, lines, toy_train, weights_hash


def made(step: int = 3, value: float = 1.0) -> Checkpoint:
    return Checkpoint(step, {"note": "x"}, {"model": {"w": torch.full((4,), value)}, "optimizer": {}})


def test_round_trip(tmp_path):
    folder = save(tmp_path, made())
    assert sorted(path.name for path in folder.iterdir()) == [
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
    ]
    found = load(folder)
    assert (found.step, found.state["note"]) == (3, "x")
    assert found.tensors["model"]["w"].tolist() == [1, 1, 1, 1]
    assert steps_in(tmp_path) == [3]


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    found = bytearray(path.read_bytes())
    found[-1] ^= 1
    path.write_bytes(found)


DAMAGES = [
    (cut, "model.safetensors", r"model.safetensors has \d+ bytes, but \d+ were written"),
    (flip, "model.safetensors", r"sha256 differs"),
    (os.unlink, "optimizer.safetensors", "optimizer.safetensors is missing"),
    (cut, "state.json", "state.json is not JSON"),
    (os.unlink, "state.json", "state.json is missing"),
    (lambda path: path.write_text("{}"), "state.json", "not hold the state of a checkpoint"),
]


@pytest.mark.parametrize(("damage", "name", "message"), DAMAGES)
def test_a_damaged_file_is_named_with_the_way_out(tmp_path, damage, name, message):
    folder = save(tmp_path, made())
    damage(folder / name)
    with pytest.raises(CheckpointError, match=f"{message}.*Delete {folder}; the same command then resumes"):
        load(folder)


def test_a_later_format_is_refused(tmp_path):
    folder = save(tmp_path, made())
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(state | {"format": 9}))
    with pytest.raises(CheckpointError, match="format 9, expected 2"):
        load(folder)


def test_every_flipped_bit_of_the_state_is_seen(tmp_path):
    folder = save(tmp_path, made())
    whole, content = load(folder), (folder / "state.json").read_bytes()
    for at in range(len(content)):
        (folder / "state.json").write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        try:
            found = load(folder)
        except CheckpointError:
            continue
        assert (found.step, found.state) == (whole.step, whole.state), at


@pytest.mark.parametrize("change", [{"step": 8}, {"files": {"../../model.safetensors": {"bytes": 1, "sha256": ""}}}])
def test_a_state_that_is_not_of_its_folder_is_refused(tmp_path, change):
    """Also where its check was made to fit; the folder to delete is its own."""
    folder = save(tmp_path, made())
    state = json.loads((folder / "state.json").read_text()) | change
    state.pop("check")
    check = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
    (folder / "state.json").write_text(json.dumps(state | {"check": check}))
    with pytest.raises(CheckpointError, match=f"belongs to another checkpoint. Delete {folder};"):
        load(folder)


def test_a_run_goes_on_from_the_one_before_a_damaged_one(tmp_path, capsys):
    toy_train(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    cut(folder_of(tmp_path / "cut" / "checkpoints", 6) / "optimizer.safetensors")
    toy_train(tmp_path / "cut", console=Console(stderr=True, width=1000))
    said = capsys.readouterr().err
    assert "warning: damaged checkpoint" in said
    assert "step-00000006/optimizer.safetensors has" in said
    assert "resuming after step 4" in said
    assert weights_hash(tmp_path / "cut") == weights_hash(tmp_path / "whole")
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    load(folder_of(tmp_path / "cut" / "checkpoints", 6))


def test_no_good_checkpoint_is_not_taken_for_a_fresh_start(tmp_path):
    toy_train(tmp_path)
    for step in steps_in(tmp_path / "checkpoints"):
        cut(folder_of(tmp_path / "checkpoints", step) / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"every checkpoint in .* is damaged. Delete the folder to begin anew"):
        toy_train(tmp_path)


def test_another_model_is_refused(tmp_path):
    toy_train(tmp_path)
    other = ToyModel()
    other.extra = torch.nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match=r"belongs to another model: the weights lack 'extra\.(weight|bias)'"):
        toy_train(tmp_path, model=other)


def test_another_shape_is_refused(tmp_path):
    toy_train(tmp_path)
    other = ToyModel()
    other.heads["unused"] = torch.nn.Linear(8, 3)
    with pytest.raises(CheckpointError, match=r"heads.unused.\w+ has shape \(2.*, expected \(3"):
        toy_train(tmp_path, model=other)


def test_another_recipe_is_refused(tmp_path):
    toy_train(tmp_path, fingerprint="a")
    with pytest.raises(CheckpointError, match="belongs to another recipe"):
        toy_train(tmp_path, fingerprint="b")


def test_leftovers_are_swept(tmp_path):
    save(tmp_path, made())
    (tmp_path / ".step-00000004.diptych-99999999.partial").mkdir()
    (tmp_path / ".step-00000004.diptych-99999999.partial" / "model.safetensors").write_bytes(b"half")
    load_latest(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003"]


def test_a_run_sweeps_first(tmp_path):
    (half := tmp_path / "checkpoints" / ".step-00000099.diptych-99999999.partial").mkdir(parents=True)
    toy_train(tmp_path)
    assert not half.exists()


def test_pruning(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, made(step))
    prune(tmp_path, [1, 3])
    assert steps_in(tmp_path) == [1, 3]


def test_the_last_and_the_best_are_kept(tmp_path):
    scores = {2: 1.0, 4: 5.0, 6: 2.0, 8: 3.0, 10: 0.0, 12: 0.0}
    toy_train(tmp_path, steps=12, validate_every=2, validate=lambda _, step: {"goodness": scores[step]}, average_best=2)
    assert steps_in(tmp_path / "checkpoints") == [4, 8, 10, 12]


def test_mean(tmp_path):
    for step, value in ((1, 1.0), (2, 4.0)):
        tensors = {"w": torch.tensor([value]), "count": torch.tensor(step)}
        save(tmp_path, Checkpoint(step, {}, {"model": tensors}))
    found, steps, warnings = mean_of(tmp_path, [2, 1, 7], 2, "model")
    assert (found["w"].item(), found["count"].item()) == (2.5, 2)
    assert (steps, warnings) == ([2, 1], [])
    assert len(mean_of(tmp_path, [7, 8, 1], 1, "model")[2]) == 1, "of the best alone"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), Exception("I/O error: ... (os error 28)")])
def test_a_full_disk(tmp_path, monkeypatch, error):
    """The error has figures, nothing half written stays, and the run goes on once there is room."""
    real = checkpoints.write_weights

    def full(tensors, path):
        real(tensors, path)
        if "step-00000004" in str(path) and "optimizer" in str(path):
            raise error

    monkeypatch.setattr(checkpoints, "write_weights", full)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("Usage", "free")(2_000_000))
    message = r"the disk is full: the checkpoint of step 4 needs \d\.\d MB in .*, which has 2\.0 MB free.*free space"
    with pytest.raises(TrainingError, match=message):
        toy_train(tmp_path)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000002"]
    monkeypatch.undo()
    toy_train(tmp_path)
    toy_train(tmp_path / "whole")
    assert weights_hash(tmp_path) == weights_hash(tmp_path / "whole")


def test_other_errors_are_passed_on(tmp_path, monkeypatch):
    def broken(tensors, path):
        raise OSError(errno.EIO, "a broken disk")

    monkeypatch.setattr(checkpoints, "write_weights", broken)
    with pytest.raises(OSError, match="a broken disk"):
        save(tmp_path, made())
    assert not list(tmp_path.iterdir())


def test_a_file_that_may_not_be_so_large_is_no_fault_of_ours(tmp_path):
    """`ulimit -f`, which batch systems set."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(
            TrainingError, match=r"the file is larger than this shell allows .*ulimit.* run the same command"
        ):
            save_weights(tmp_path / "weights.safetensors", {"a": torch.zeros(5000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
