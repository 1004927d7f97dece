"""Exported programs give the ids of greedy search, for any number of pictures, regions and words."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.api.model import Model
from diptych.core import Sample, collate
from diptych.data.store.tokens import Tokens
from diptych.inference.predictor import Predictor
from diptych.runs.folder import Architecture, ModelFolder
from diptych.runtime.errors import OutputError, ServingError
from diptych.runtime.outputs import whole_folder
from diptych.systems import SYSTEMS, find_recipe
from diptych.tasks.answers import Answers
from diptych.tasks.vqa import VQA, AskRequest
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.detectors.grid import Grid
from diptych.vision.detectors.letterbox import letterbox
from diptych.vision.detectors.pooled import CELLS, PooledDetector
from diptych.vision.detectors.pooling import pool_regions
from diptych.vision.detectors.proposers.centernet import CenternetProposer, CenternetShape
from diptych.vision.detectors.proposers.nanodet import NanodetProposer
from diptych.vision.detectors.proposers.proposer import Proposer
from diptych.vision.detectors.selection import Selection
from diptych_serve.export import runner, write
from diptych_serve.export.programs import REGIONS
from diptych_serve.export.write import export
from tests.support import toy, zygote
from tests.support.tfjs_files import SMALL, centernet_network, network

TOKENS = Tokens.train(["a red kite over a beach", "what colour is the dog"], 80)
ANSWERS = Answers(("[UNKNOWN]", "red", "blue", "two", "yes", "no", "dog"))
QUESTIONS = [
    "what colour is the dog", "what is [MASK]", "[MASK] [SEP]", "is the [SEP] dog red [PAD]", "[CLS] is [UNK] red",
    "cafe\u0301 or café", "is the 🪁 red ☃", "ΤΙ ΧΡΩΜΑ ΕΙΝΑΙ Ο ΣΚΥΛΟΣ", "what colour " * 30,
]  # fmt: skip
LAYERS: dict[str, dict[str, Any]] = {
    "unified-vlp": {"layers": 2, "max_regions": 8},
    "xgpt": {"layers": 2, "max_regions": 8},
    "tden": {"object_layers": 1, "sentence_layers": 1, "cross_layers": 1, "decoder_layers": 2},
    "vl-bert": {"layers": 2},
}
# A decoder, answers and two networks, once each; their other forms, and other detectors, are thorough.
SAMPLES = [
    ("unified-vlp", "onnx"), ("vl-bert", "torch"), ("xgpt of nanodet and a backbone", "onnx"),
    *(pytest.param(*one, marks=pytest.mark.thorough) for one in (
        ("unified-vlp", "torch"), ("tden", "onnx"), ("tden", "torch"), ("vl-bert", "onnx"), ("xgpt of a grid", "onnx"),
        ("xgpt of a grid", "torch"), ("tden of nanodet", "onnx"), ("tden of nanodet", "torch"),
        ("unified-vlp of centernet", "onnx"),
    )),
]  # fmt: skip


def make(folder: Path, system: str) -> Predictor:
    detector: Any = toy.detector(select=Selection(most=6, least=2, score=0.02))
    system, _, eyes = system.partition(" of ")
    if eyes:
        torch.manual_seed(0)
        backbone = Backbone.of("timm/test_resnet", 96, pretrained=False)
        proposer: Any = CenternetProposer if eyes == "centernet" else NanodetProposer
        proposer = proposer(SMALL if eyes != "centernet" else CenternetShape(64, 3), ("cat", "dog", "kite"), {})
        proposer.network = centernet_network() if eyes == "centernet" else network()
        rule = Selection(most=6, least=3, score=0.6, overlap=0.3)
        detector = PooledDetector(proposer, backbone if eyes.endswith("backbone") else None, rule)
        if eyes == "a grid":
            detector = Grid(backbone, 2)  # of a map of 3 x 3
    task = "vqa" if system == "vl-bert" else "caption"
    sizes = {"width": 32, "heads": 2, "ffn": 64, "positions": 48, "init_std": 0.3, **LAYERS[system]}
    config = SYSTEMS[system].resolved(
        vocabulary=TOKENS.vocabulary, feature_size=detector.contract.feature_size,
        classes=len(detector.contract.class_names),
        answers=len(ANSWERS.names) if task == "vqa" else 0, **sizes,
    )  # fmt: skip
    architecture = Architecture(system=system, config=config, heads=("answer",) if task == "vqa" else ("word",))
    detector.save(folder / "seen")
    made = ModelFolder(
        folder / "made", architecture.build().eval(), architecture, TOKENS, detector.contract,
        recipe=find_recipe(f"{system}/small/{task}", []), answers=ANSWERS if task == "vqa" else None,
        detector=folder / "seen",
    )  # fmt: skip
    return Predictor(made.save(folder / "model"))


def pictures(count: int, folder: Path) -> list[Path]:
    """Of several shapes, more and less than the detector's side."""
    draw = np.random.default_rng(0)
    found = []
    for number in range(count):
        height, width = draw.integers(20, 70, 2)
        image = Image.fromarray(draw.integers(0, 255, (height, width, 3), np.uint8))
        image.paste(("red", "blue", "white")[number % 3], (3, 4, 12 + number % 9, 16))
        image.save(path := folder / f"{number}.png")
        found.append(path)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("system", "form"), SAMPLES)
def test_ids_are_those_of_greedy_search(tmp_path: Path, system: str, form: Any, monkeypatch) -> None:
    predictor, paths = make(tmp_path, system), pictures(9, tmp_path)
    if form == "onnx":  # its detector is in single precision
        monkeypatch.setattr(torch, "autocast", lambda *_, **__: torch.no_grad())
    # In a process of its own: here types are checked at run time, and while a trace is made a size is not an int.
    command = ["-m", "diptych.cli", "export", tmp_path / "model", "--out", tmp_path / "out", "--format", form]
    made = zygote.run(command)
    assert made.returncode == 0, made.stderr
    assert "try it: python" in made.stdout
    run = loaded(tmp_path / "out").ExportedModel(tmp_path / "out")
    opened = [runner.open_picture(path) for path in paths]
    own_regions = run.regions
    for batch in (slice(0, 1), slice(1, 9)):
        # The small detector's bfloat16 rounds in another way in another order: the same regions are given to both.
        if form == "torch" and " of " not in system:
            seen = as_inputs(predictor, paths[batch])
            own = own_regions(opened[batch])
            np.testing.assert_allclose(np.sort(own["scores"][:, 0]), np.sort(seen["scores"][:, 0]), atol=0.02)
            run.regions = lambda _, seen=seen: seen
        elif " of " in system:
            seen, own = as_inputs(predictor, paths[batch]), own_regions(opened[batch])
            for name, wanted in seen.items():  # without a region in any picture, the programs get an empty row
                found = own[name][:, : wanted.shape[1]]
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4, err_msg=name)
        if system == "vl-bert":
            questions = ["what colour is the dog", "a kite", "is the red beach"] * 3
            requests = [AskRequest(question=question) for question in questions[batch]]
            pairs = list(zip(predictor.extract(paths[batch]), requests, strict=True))
            own = [answer.text for answer in predictor.answers(VQA, pairs)]
            assert run.answers(opened[batch], questions[batch])[1] == own
        else:
            wanted = Model(predictor).caption(paths[batch], beams=1)
            _, words = run.captions(opened[batch])
            assert words == wanted
            first = run.programs["begin"](**run.regions(opened[batch]))[0]
            assert batch.stop == 1 or np.ptp(first, axis=0).max() > 1e-3, "the same for all pictures"
    if form == "onnx":
        question = ["what colour"] if system == "vl-bert" else []
        done = subprocess.run(
            [sys.executable, "run.py", str(paths[0]), *question],  # an interpreter: Diptych is not loaded
            cwd=tmp_path / "out", capture_output=True, text=True, check=False, env={"PATH": "", "PYTHONPATH": ""},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::diptych.runtime.errors.UnreadWarning")
def test_questions_with_special_tokens_are_answered_as_by_ask(tmp_path: Path, monkeypatch, capsys) -> None:
    """The answer's place is a [MASK] after the question: none that the question writes is taken for it."""
    monkeypatch.setattr(sys.modules[__name__], "TOKENS", Tokens.train([*QUESTIONS, "[sep] [mask] is"], 120))
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: torch.no_grad())  # onnxruntime has no bfloat16
    predictor, paths = make(tmp_path, "vl-bert"), pictures(len(QUESTIONS), tmp_path)
    made = zygote.run(
        ["-m", "diptych.cli", "export", tmp_path / "model", "--out", tmp_path / "out", "--format", "onnx"]
    )
    assert made.returncode == 0, made.stderr
    wanted = [Model(predictor).ask(path, question) for path, question in zip(paths, QUESTIONS, strict=True)]
    program = loaded(tmp_path / "out")
    found = []
    for path, question in zip(paths, QUESTIONS, strict=True):
        monkeypatch.setattr(sys, "argv", ["run.py", str(path), question])
        program.main()
        found.append(capsys.readouterr().out.strip())
    assert found == [str(one) for one in wanted]
    assert len(set(found)) > 1
    for words in ([], [""], [" "]):
        monkeypatch.setattr(sys, "argv", ["run.py", str(paths[0]), *words])
        with pytest.raises(SystemExit, match=r"this model needs: python run\.py PICTURE QUESTION"):
            program.main()


def as_inputs(predictor: Predictor, paths: list[Path]) -> dict[str, np.ndarray[Any, Any]]:
    """What Diptych sees in pictures, as the programs take it."""
    batch: Any = collate(
        [Sample("", "", r.regions, torch.zeros(0, dtype=torch.long)) for r in predictor.extract(paths)]
    )
    names = [name if name != "present" else "regions_present" for name in REGIONS]
    given = {name: getattr(batch, field) for name, field in zip(REGIONS, names, strict=True)}
    return {name: value.numpy() for name, value in given.items() if value is not None}


def loaded(folder: Path) -> Any:
    return SimpleNamespace(**run_path(str(folder / "run.py")))


def test_a_folder_with_a_damaged_or_missing_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "out", "programs") as folder:
        (folder / "program.json").write_text('{"programs": []}')
        (folder / "tokenizer.json").write_text('{"model": {}}')
        (folder / "answer.onnx").write_bytes(bytes(100))
        shutil.copyfile(runner.__file__, folder / "run.py")
    runner.check_files(tmp_path / "out")
    with whole_folder(tmp_path / "unlisted", "programs") as folder:
        (folder / "program.json").write_text('{"format": "onnx", "programs": ["answer"]}')
        (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"\.diptych lacks answer\.onnx; copy or export"):
        runner.check_files(tmp_path / "unlisted")
    for path in sorted((tmp_path / "out").iterdir()):
        whole = path.read_bytes()
        for content in (whole[:-2], whole[:9] + bytes([whole[9] ^ 4]) + whole[10:], b"", None):
            path.unlink() if content is None else path.write_bytes(content)
            with pytest.raises(ValueError, match=r"(is|missing or) damaged; copy or export|each file; copy it too"):
                runner.check_files(tmp_path / "out")
            path.write_bytes(whole)
    (tmp_path / "out" / "program.json").write_text("[1")
    command = [sys.executable, "run.py", "missing.png"]  # an interpreter: Diptych is not loaded
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    path = tmp_path / "out" / "program.json"
    assert done.stderr == f"{path} is missing or damaged; copy or export the folder again\n"


SIZES = [(50, 31), (31, 70), (300, 211), (20, 9), (32, 32), (1, 1), (1, 700), (480, 640)]


@pytest.mark.parametrize("side", [32, 416])
def test_the_runner_fits_pictures_as_the_detector_reads_them(side: int) -> None:
    """To the pixel: the features of a deep network differ by 0.5% after one other pixel."""
    draw = np.random.default_rng(1)
    pictures = [draw.integers(0, 255, (*size, 3), np.uint8) for size in SIZES]
    squares, shares = runner.letterbox(pictures, side)
    wanted = letterbox([torch.from_numpy(picture).permute(2, 0, 1) for picture in pictures], side)
    assert np.count_nonzero(squares != wanted[0].numpy()) == 0
    np.testing.assert_array_equal(shares, wanted[1].numpy())


@pytest.mark.parametrize(("height", "width"), [(13, 13), (4, 9), (1, 1)])
def test_the_runner_pools_maps_as_the_detector_does(height: int, width: int) -> None:
    draw = torch.Generator().manual_seed(0)
    corners = torch.rand(9, 2, generator=draw) * 0.9
    boxes = torch.cat([corners, corners + (1 - corners) * torch.rand(9, 2, generator=draw)], 1)
    cells = torch.rand(5, height, width, generator=draw)
    wanted = pool_regions(cells[None], boxes[None], CELLS)[0].mean((2, 3))
    found = runner.mean_inside(boxes.numpy(), cells.numpy())
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted.numpy(), atol=1e-6)
    assert runner.mean_inside(boxes.numpy()[:0], cells.numpy()).shape == (0, 5)


def test_candidates_that_are_no_numbers_are_refused() -> None:
    parts = [np.zeros((4, 4)), np.full(4, np.nan), np.zeros((4, 3)), np.ones(2), np.zeros((2, 3, 3))]
    with pytest.raises(ValueError, match="found boxes or scores that are not finite numbers"):
        runner.pooled(np.ones(2), {"candidates": 1}, *parts)


@pytest.mark.parametrize(
    "rule",
    [
        Selection(most=6, least=2, score=0.3, overlap=0.3),
        Selection(most=5, least=5, per_class=False),
        Selection(most=4, overlap=None),
        Selection(most=40, least=10, score=0.9, overlap=0.6),
    ],
)
def test_the_runner_chooses_regions_as_the_rule_does(rule: Selection) -> None:
    draw = torch.Generator().manual_seed(0)
    for count in [0, 1, *[12] * 20, 1000, 1000]:
        corners = torch.rand(count, 2, generator=draw) / 2
        boxes = torch.cat([corners, corners + 0.1 + torch.rand(count, 2, generator=draw) / 2], 1)
        scores, classes = torch.rand(count, generator=draw), torch.randint(0, 3, (count,), generator=draw)
        wanted = rule.choose(boxes, scores, classes).tolist()
        found = runner.choose(boxes.numpy(), scores.numpy(), classes.numpy(), asdict(rule))
        assert found.tolist() == wanted


def test_what_is_not_exported_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering = make(tmp_path / "a", "vl-bert").folder
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"mine is not empty .*, expected an empty folder or one of kind programs"):
        export(answering, tmp_path / "mine", "onnx")
    blind = ModelFolder(**{**vars(answering), "detector": None})
    with pytest.raises(ServingError, match="has no detector/ folder"):
        export(blind, tmp_path / "out", "onnx")
    eyes = Backbone.of("timm/test_resnet", 96, pretrained=False)
    eyes.name = "onnx/eyes"
    proposer, rule = NanodetProposer(SMALL, ("cat", "dog", "kite"), {}), Selection()
    other = Proposer("a detector of transformers", ("cat",), 4)
    for detector in (Grid(eyes, 2), PooledDetector(proposer, eyes, rule), PooledDetector(other, None, rule), object()):
        monkeypatch.setattr(write, "load_detector", lambda _, held=detector: held)
        with pytest.raises(ServingError, match=r"only .*, NanoDet, CenterNet and grids can be exported, without netw"):
            export(answering, tmp_path / "out", "onnx")
    untaught = ModelFolder(**{**vars(answering), "recipe": None})
    with pytest.raises(ServingError, match="was trained for neither captions nor questions"):
        export(untaught, tmp_path / "out", "onnx")
    assert not (tmp_path / "out").exists()


def test_a_caption_ends_at_its_mark_while_others_go_on() -> None:
    """Scores say: the first picture ends after one word, the second at the limit."""
    model = object.__new__(runner.ExportedModel)
    model.facts = {"min_words": 0, "no_repeat_ngram": None, "max_words": 4, "vocabulary": {"sep": 0}}
    later = np.array([[9.0, 0, 1], [0, 9.0, 1]])
    model.programs = {
        "begin": lambda **_: (np.array([[0.0, 9, 1], [0, 1, 9.0]]), None, None, None),
        "follow": lambda **_: (later, None),
    }
    assert model.write({}) == [[1], [2, 1, 1, 1]]


def test_no_word_run_is_written_twice_and_none_ends_early() -> None:
    model = object.__new__(runner.ExportedModel)
    model.facts = {"min_words": 2, "no_repeat_ngram": 2, "vocabulary": {"sep": 0}}
    scores = np.array([9.0, 5.0, 4.0, 3.0])
    assert model.next_word(scores, []) == 1, "an end before two words"
    assert model.next_word(scores, [1, 2]) == 0
    assert model.next_word(np.array([0.0, 5.0, 9.0, 3.0]), [1, 2, 1]) == 1, "1 2 stands there already"
