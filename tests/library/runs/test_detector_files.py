"""Files of official detectors in their four layouts, and what is wrong with others."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

from diptych.runtime.errors import CheckpointError, DataError, DiptychError, RecipeError
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.official.detector import OfficialDetector
from diptych.vision.detectors.open import fetched, keep_detector, open_detector
from tests.support.detector_files import CFG, butd_file, detectron_blobs, write_detectron
from tests.support.detector_layouts import LAYOUTS, detectron, hugging_face, milvlg

COMMIT = "0123456789abcdef" * 2 + "01234567"


def opened(path: Path, *settings: str) -> tuple[OfficialDetector, list[str]]:
    """And what was said of each key, found out or assumed."""
    notes: list[str] = []
    detector = open_detector(str(path), settings=settings, report=notes.append, files=True)
    assert isinstance(detector, OfficialDetector)
    return detector, notes


@pytest.mark.parametrize("write", LAYOUTS)
def test_each_layout_becomes_a_detector_folder(write: Callable[[Path], Path], tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("\n".join(["cat", "dog", "kite", "red kite", "tree", "sea"]))
    lines = keep_detector(str(write(tmp_path)), tmp_path / "out", class_names=tmp_path / "names.txt")
    assert LAYOUTS[write] in lines[-1]
    assert any(line.startswith("renamed") for line in lines)
    assert any(", 0 missing, " in line for line in lines)
    detector = load_detector(tmp_path / "out")
    assert detector.contract.extractor == LAYOUTS[write]
    assert detector.contract.class_names == ("background", "cat", "dog", "kite", "red kite", "tree", "sea")
    assert open_detector(str(tmp_path / "out"), []).contract == detector.contract
    assert not [path for path in tmp_path.iterdir() if "partial" in path.name]


def test_what_is_assumed_is_told_and_can_be_set(tmp_path: Path) -> None:
    notes = opened(detectron(tmp_path))[1]
    assert "assumed: samples=2, because the file's cfg has no FAST_RCNN.ROI_XFORM_SAMPLING_RATIO" in notes
    assert not any("shorter" in note for note in notes)  # the cfg says it
    detector, notes = opened(detectron(tmp_path), "samples=0", "overlaps=[0.4]")
    assert not any("assumed: samples" in note for note in notes)
    assert (detector.settings.overlaps, detector.settings.shorter) == ((0.4,), 96)
    with pytest.raises(RecipeError, match="expected KEY=VALUE, such as cells=14"):
        opened(detectron(tmp_path), "samples")
    old = write_detectron(tmp_path / "old.pkl", detectron_blobs(), CFG.replace("BBOX_REG_WEIGHTS", "OTHER"))
    assert any("delta_weights=[1.0, 1.0, 1.0, 1.0]" in note for note in opened(old)[1])
    assert any("default anchors" in note for note in opened(milvlg(tmp_path))[1])


def test_anchors_of_the_file_come_first(tmp_path: Path) -> None:
    anchors = torch.arange(48.0).view(12, 4)
    name = "proposal_generator.anchor_generator.cell_anchors.0"
    torch.save(butd_file("hf") | {name: anchors}, tmp_path / "own.bin")
    detector, notes = opened(tmp_path / "own.bin")
    assert torch.equal(detector.pipeline.network.anchors, anchors)
    assert any("the file's anchors differ from the default" in note for note in notes)
    torch.save(butd_file("hf") | {name: anchors[:3]}, tmp_path / "few.bin")
    with pytest.raises(CheckpointError, match=r"is \(3, 4\), not \(12, 4\)"):
        opened(tmp_path / "few.bin")


@pytest.mark.parametrize("write", LAYOUTS)
def test_half_a_file_is_named_and_leaves_nothing(write: Callable[[Path], Path], tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DiptychError, match=path.name):
        keep_detector(str(path), tmp_path / "out")
    assert [other.name for other in tmp_path.iterdir()] == [path.name]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("evil",)


@pytest.mark.parametrize("name", ["evil.pkl", "evil.pth", "evil.bin"])
def test_a_file_that_runs_code_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(pickle.dumps({"blobs": {"conv1_w": Evil()}}, 2))
    with pytest.raises((DataError, CheckpointError), match=name):
        keep_detector(name, tmp_path / "out")
    assert os.listdir() == [name]


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    def refused(path: Path, message: str, kind: type[Exception] = CheckpointError) -> None:
        with pytest.raises(kind, match=message):
            keep_detector(str(path), tmp_path / "out")
        assert not (tmp_path / "out").exists()

    refused(tmp_path / "none.pkl", r"none.pkl is missing; expected a detector's official .pkl, ")
    (tmp_path / "page.pth").write_text("<html>no such file</html>")
    refused(tmp_path / "page.pth", r"page.pth is not a file of weights, .*\(it begins with b'<html>no such fi'\)")
    (tmp_path / "list.pkl").write_bytes(pickle.dumps([1, 2]))
    refused(tmp_path / "list.pkl", "holds no dict of arrays")
    torch.save({"fc.weight": torch.ones(2)}, tmp_path / "other.pth")
    refused(tmp_path / "other.pth", "not a known detector: its first keys are fc.weight")
    good = detectron(tmp_path)
    (tmp_path / "names.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(RecipeError, match="cannot read the names"):
        keep_detector(str(good), tmp_path / "out", class_names=tmp_path / "names.txt")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").touch()
    with pytest.raises(RecipeError, match="exists already"):
        keep_detector(str(good), tmp_path / "there")


def test_the_hub_is_asked_for_one_commit_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("hub:user/name", "hub:user/name@main", f"hub:name@{COMMIT}"):
        with pytest.raises(RecipeError, match="has no fixed version; expected hub:USER/NAME@COMMIT"):
            fetched(name)
    asked: list[tuple[str, str, str]] = []

    def download(repository: str, file: str, revision: str) -> str:
        asked.append((repository, file, revision))
        if file != "pytorch_model.bin":
            raise EntryNotFoundError(file)
        return str(hugging_face(tmp_path))

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    found = open_detector(f"hub:user/name@{COMMIT}", [])
    assert found.contract.extractor == LAYOUTS[hugging_face]
    assert {one[::2] for one in asked} == {("user/name", COMMIT)}
    lines = keep_detector(f"hub:user/name@{COMMIT}", tmp_path / "kept", None, None, ["shorter=500"], None)
    assert "at 500 to" in lines[-1]
    assert load_detector(tmp_path / "kept").contract.extractor in lines[-1]
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda _, file, **__: str(tmp_path / "kept" / file))
    keep_detector(f"hub:user/ours@{COMMIT}", tmp_path / "again", None, None, [], None)
    assert load_detector(tmp_path / "again").contract == load_detector(tmp_path / "kept").contract
    with pytest.raises(RecipeError, match=r"--set does not apply to hub:user/ours@.*, a detector folder"):
        keep_detector(f"hub:user/ours@{COMMIT}", tmp_path / "third", None, None, ["shorter=400"], None)

    def offline(*_: object, **__: object) -> None:
        assert constants.HF_HUB_OFFLINE  # or the library would try for a minute
        raise LocalEntryNotFoundError("no network")

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(CheckpointError, match=r"hub cannot be reached; .* diptych import detector"):
        fetched(f"hub:user/name@{COMMIT}")
