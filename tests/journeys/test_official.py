"""The whole way with official files of random weights: a detector's, a model's, and photographs as they come."""

from __future__ import annotations

import json
import pickle
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import diptych as library
from diptych.core import Vocabulary
from diptych.data.store.store import Store
from diptych.data.store.tokens import SPECIAL
from diptych.metrics import java
from diptych.runtime.files import sha256_of
from diptych.systems import SYSTEMS
from diptych.systems.tden.model import Tden, TdenResolvedConfig
from diptych.systems.unified_vlp.model import UnifiedVLP, UnifiedVLPResolvedConfig
from diptych.systems.vl_bert.checkpoint import NETWORK, REFCOCO, VQA
from diptych.systems.vl_bert.model import VLBert, VLBertResolvedConfig
from diptych.vision.detectors.load import load_detector
from diptych.vision.pictures import open_picture
from tests.conftest import REPOSITORY
from tests.journeys.conftest import Result
from tests.support.detector_files import butd_file, detectron_blobs, write_detectron
from tests.support.exporting import export_tden, export_unified_vlp
from tests.support.official_names import under_their_names

WORDS = ("a", "dog", "bird", "what", "is", "it", "?", "the", "red")
ANSWERS = ("<unk>", "yes", "no", "two")
SIZES: dict[str, Any] = {
    "vocabulary": Vocabulary(len(SPECIAL) + len(WORDS), 0, 1, 2, 3, 4), "width": 64, "heads": 1, "ffn": 32,
    "classes": 7, "answers": len(ANSWERS), "init_std": 0.2,
}  # fmt: skip


def unified_vlp(*heads: str) -> dict[str, Tensor]:
    official = dict.fromkeys(("region_embedding", "box_norm", "geometry", "hidden_regions"), "official")
    config = UnifiedVLPResolvedConfig(**SIZES, **official, layers=1, positions=140, max_regions=100, feature_size=24)
    return export_unified_vlp(UnifiedVLP(config, heads))


def tden(*heads: str) -> dict[str, Tensor]:
    layers = dict.fromkeys(("object_layers", "sentence_layers", "cross_layers", "decoder_layers"), 1)
    official: dict[str, Any] = {"cross_ffn": "official", "vqa_fusion": "official", "tied_words": False}
    config = TdenResolvedConfig(**SIZES, **layers, **official, positions=40, max_regions=50, feature_size=28)
    return export_tden(Tden(config, heads))


def vl_bert(*heads: str) -> dict[str, Tensor]:
    config = VLBertResolvedConfig(
        **SIZES,
        layers=1,
        positions=40,
        coordinates=4,
        feature_size=28,
        hidden_regions="official",
        answer_slot="answer" in heads,
    )
    return under_their_names(VLBert(config, heads), VQA if "answer" in heads else REFCOCO)


def vl_bert_from_pixels(*heads: str) -> dict[str, Tensor]:
    """With the network that reads pixels, the smallest that the code has."""
    sizes: dict[str, Any] = {"layers": 1, "positions": 40, "coordinates": 256, "feature_size": 2048}
    config = VLBertResolvedConfig(**{**SIZES, **sizes}, network="resnet50")
    model = VLBert(config, heads)
    prefixes = {ours: theirs for theirs, ours in NETWORK.items()}
    network = {
        theirs + name.removeprefix(ours): value
        for name, value in model.state_dict().items()
        for ours, theirs in prefixes.items()
        if name.startswith(ours)
    }
    return under_their_names(model, REFCOCO, without="regions.network.") | network


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two photographs, a vocabulary and the files of two detectors."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    Path("photos").mkdir()
    for number, size in enumerate(((120, 90, 3), (70, 110, 3))):
        Image.fromarray(torch.randint(0, 256, size, dtype=torch.uint8).numpy()).save(f"photos/{number}.png")
    Path("vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]))
    Path("answers.txt").write_text("\n".join(ANSWERS))
    write_detectron(Path("e2e_faster_rcnn.pkl"), detectron_blobs())
    torch.save({"model": butd_file()}, "bua-caffe.pth")
    return tmp_path


def done(result: Result) -> str:
    assert result.code == 0, result.error
    return result.out


def imported(run: Callable[..., Result], system: str, weights: dict[str, Tensor], *options: str) -> Path:
    """From nothing but official files to a model folder elsewhere, all that it was made of deleted."""
    detector = Path("vgx" if system == "unified-vlp" else "butd")
    file = "e2e_faster_rcnn.pkl" if system == "unified-vlp" else "bua-caffe.pth"
    small = ("--set", "shorter=96", "--set", "longer=160") if system != "unified-vlp" else ()
    assert f"detector folder: {detector}" in done(run("import", "detector", file, "--out", detector, *small))
    torch.save(weights, "model.pth")
    said = done(
        run("import", system, "model.pth", "--out", "here", "--vocab", "vocab.txt", "--detector", detector, *options)
    )
    assert "model folder: here" in said
    assert ", 0 missing, " in said
    shutil.rmtree(detector)
    Path("model.pth").unlink()
    Path("elsewhere").mkdir()
    return Path("here").rename("elsewhere/model")


@pytest.mark.parametrize(("system", "weights"), [("unified-vlp", unified_vlp), ("tden", tden)])
def test_photographs_are_captioned(
    begun: Path, run: Callable[..., Result], system: str, weights: Callable[..., Any]
) -> None:
    model = imported(run, system, weights("word"))
    lines = [json.loads(line) for line in done(run("caption", "photos", "--model", model, "--json")).splitlines()]
    assert [line["picture"] for line in lines] == ["photos/0.png", "photos/1.png"]
    assert all(line["caption"] for line in lines)
    opened = library.load(model)
    said = opened.caption(Image.open("photos/0.png"))
    assert said == lines[0]["caption"]
    assert len(said.boxes) > 3


def test_stores_of_its_own_detector_alone_are_read(begun: Path, run: Callable[..., Result]) -> None:
    model = imported(run, "tden", tden("word"))
    Path("photos.jsonl").write_text('{"image": "photos/0.png", "captions": ["a dog"]}\n')
    for name, options in (("own", ("--detector", model)), ("other", ("--detector", "finder"))):
        if name == "other":
            done(run("import", "detector", "bua-caffe.pth", "--out", "finder", "--set", "shorter=80"))
        done(run("extract", "photos.jsonl", "--out", name, *options))
    evaluate = ("evaluate", "--model", model, "--split", "train", "--data")
    done(run(*evaluate, "own"))
    result = run(*evaluate, "other")
    assert result.code == 1
    assert "extractor: " in result.error
    assert "import the checkpoint without --detector" in result.error


def test_a_detector_that_does_not_fit_is_refused(begun: Path, run: Callable[..., Result]) -> None:
    torch.save(tden("word"), "model.pth")
    torch.save(butd_file("hf", classes=8), "pytorch_model.bin")
    done(run("import", "detector", "pytorch_model.bin", "--out", "hf"))
    done(run("import", "detector", "e2e_faster_rcnn.pkl", "--out", "vgx"))
    done(run("import", "detector", "bua-caffe.pth", "--out", "small"))

    def refused(message: str, *options: str) -> None:
        result = run("import", "tden", "model.pth", "--out", "here", "--vocab", "vocab.txt", *options)
        assert result.code == 2
        assert message in result.error
        assert not [path for path in Path().iterdir() if "here" in path.name]

    refused("With its features, the model runs but is less accurate", "--detector", "hf")
    refused("24 values per region, the model reads 28", "--detector", "vgx", "--any-detector")
    refused("no detector 'none'", "--detector", "none")
    refused("has no head for answers", "--answers", "answers.txt")
    refused("No such option: --set", "--set", "least=3")
    done(
        run(
            "import",
            "tden",
            "model.pth",
            "--out",
            "hf-model",
            "--vocab",
            "vocab.txt",
            "--detector",
            "hf",
            "--any-detector",
        )
    )
    result = run("import", "detector", "bua-caffe.pth", "--out", "here", "--vocab", "vocab.txt")
    assert (result.code, "No such option: --vocab" in result.error) == (2, True)
    Path("answers.txt").write_text("yes\nno\n")
    torch.save(tden("answer"), "vqa.pth")
    result = run("import", "tden", "vqa.pth", "--out", "here", "--vocab", "vocab.txt", "--answers", "answers.txt")
    assert "has 2 answers, but the head has 4" in result.error


@pytest.mark.parametrize(
    ("system", "weights", "heads"),
    [("unified-vlp", unified_vlp, ("word", "answer")), ("tden", tden, ("answer",)), ("vl-bert", vl_bert, ("answer",))],
)
def test_questions_about_photographs_are_answered(
    begun: Path, run: Callable[..., Result], system: str, weights: Callable[..., Any], heads: tuple[str, ...]
) -> None:
    model = imported(run, system, weights(*heads), "--answers", "answers.txt")
    assert done(run("ask", "photos/0.png", "what is it ?", "--model", model)).strip() in ANSWERS[1:]


def test_expressions_are_found_in_photographs(begun: Path, run: Callable[..., Result]) -> None:
    model = imported(run, "vl-bert", vl_bert("region_score"))
    found = json.loads(done(run("ground", "photos/1.png", "the red dog", "--model", model, "--json")))
    left, top, width, height = found["box"]
    assert 0 <= left < left + width <= 110
    assert 0 <= top < top + height <= 70
    assert 0 < found["probability"] <= 1
    assert not list(Path().glob("*.png")), "no image is written unasked"


@pytest.mark.slow
@pytest.mark.large
def test_vl_bert_reads_the_pixels_inside_the_boxes_of_its_detector(begun: Path, run: Callable[..., Result]) -> None:
    """The e2e files: a detector for boxes, and a network of their own."""
    model = imported(run, "vl-bert", vl_bert_from_pixels("region_score"))
    first = json.loads(done(run("ground", "photos/1.png", "the red dog", "--model", model, "--json")))
    # The same boxes, and other pixels in them.
    regions = library.load(model).predictor.detector.detect([open_picture(Path("photos/1.png"))], [])[0]
    assert len(regions) > 3
    Image.fromarray(255 - np.array(Image.open("photos/1.png"))).save("photos/1.png")
    again = json.loads(done(run("ground", "photos/1.png", "the red dog", "--model", model, "--json")))
    assert first["probability"] != again["probability"]


@pytest.mark.slow
def test_the_page_from_top_to_bottom(begun: Path, run: Callable[..., Result]) -> None:
    """Each command of docs/official-checkpoints.md, with random weights in the files that it names."""
    page = (REPOSITORY / "docs" / "official-checkpoints.md").read_text()
    commands = [shlex.split(line)[1:] for line in re.findall(r"^    (diptych .*)$", page, re.MULTILINE)]
    Path("e2e_faster_rcnn.pkl").rename("e2e_faster_rcnn_X-101-64x4d-FPN_2x-vlp.pkl")
    Path("bua-caffe.pth").rename("bua-caffe-frcn-r101-k10-100.pth")
    for case in ("cased", "uncased"):
        shutil.copy("vocab.txt", f"bert-base-{case}-vocab.txt")
    shutil.copy("answers.txt", "answers_vqa.txt")
    Path("objects_vocab.txt").write_text("\n".join(["dog", "bird", "kite", "tree", "sea", "red car"]))
    Path("trainval_label2ans.pkl").write_bytes(pickle.dumps(list(ANSWERS)))
    for name, weights in {
        "coco.bin": unified_vlp("word"), "vqa2.bin": unified_vlp("word", "answer"), "tden_caption.pth": tden("word"),
        "tden_vqa.pth": tden("answer"), "vl-bert-base-prec.model": vl_bert("word", "region_class"),
    }.items():  # fmt: skip
        torch.save(weights, name)
    assert len(commands) > 15
    for command in commands:
        if command[0] == "extract":
            lines_about_photographs(Path("butd"))
        if command[:2] == ["import", "detector"]:
            command += ["--set", "shorter=96", "--set", "longer=160"]
        if command[0] == "finetune":
            for setting in ("training.steps=1", "training.batch=2", "training.validate_every=null"):
                command += ["--set", setting]
        done(run(*command))


def lines_about_photographs(detector: Path) -> None:
    """mine.jsonl: questions, and expressions for what the detector finds."""
    opened, lines = load_detector(detector), []
    for number in range(2):
        picture = open_picture(Path(f"photos/{number}.png"))
        (seen,) = opened.detect([picture], [])
        x1, y1, x2, y2 = (seen.boxes[0] * torch.tensor([picture.shape[2], picture.shape[1]] * 2)).round().tolist()
        of = {"image": f"photos/{number}.png", "split": "train"}
        lines += [of | {"question": "what is it ?", "answers": ["dog"]}]
        lines += [of | {"expression": "the red dog", "box": [x1, y1, x2 - x1, y2 - y1]}]
    Path("mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def captioner(begun: Path, run: Callable[..., Result]) -> Path:
    """TDEN imported with its detector, and a store of two test images with captions of which it finds a part."""
    model = imported(run, "tden", tden("word"))
    lines = [json.loads(line) for line in done(run("caption", "photos", "--model", model, "--json")).splitlines()]
    rows = [{"image": line["picture"], "split": "test", "captions": [line["caption"] + " dog"]} for line in lines]
    Path("photos.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done(run("extract", "photos.jsonl", "--out", "store", "--detector", model))
    return model


def draw_paper(monkeypatch: pytest.MonkeyPatch, name: str, **cells: str) -> None:
    """A paper of TDEN with one table of captions and answers; `cells`: row -> numbers of B@4, C, M and Overall."""
    Path(name).write_text(
        'cite = "Drawn 2026"\n[parts]\n'
        'coco = { title = "COCO test", columns = ["B@4", "C", "M"], task = "caption", '
        'scored = { test = ["BLEU-4", "CIDEr", "METEOR"] } }\n'
        'vqa = { title = "VQA 2.0 test-dev", columns = ["Overall"], task = "vqa" }\n'
        '[tables.1]\nabout = ""\nparts = ["coco", "vqa"]\nsystems = { BUTD = "" }\n'
        f"rows = {json.dumps([[row, numbers, 'all'] for row, numbers in cells.items()])}\n"
        '[commands]\nall = "diptych evaluate --model MODEL --data STORE"\n'
    )
    monkeypatch.setitem(SYSTEMS, "tden", replace(SYSTEMS["tden"], tables=Path(name).resolve()))


def evaluated(run: Callable[..., Result], model: Path) -> Mapping[str, Any]:
    scores: Mapping[str, Any] = json.loads(done(run("evaluate", "--model", model, "--data", "store", "--json")))
    return scores["scores"]  # type: ignore[no-any-return]


def test_a_checkpoint_passes_the_row_that_it_reproduces_and_fails_another(
    captioner: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = evaluated(run, captioner)
    bleu, cider = scores["BLEU-4"]["value"], scores["CIDEr"]["value"]
    assert min(bleu, cider) > 10, "a score of 0 would be within any share of itself"
    draw_paper(monkeypatch, "paper.toml", Same=f"{bleu * 1.005:.1f} {cider:.1f}/20.0 - 70.0",
               Higher=f"{bleu:.1f} {cider * 1.03:.1f} - -")  # fmt: skip
    compare = ("compare", captioner, "tden/table-1/same", "--data", "store")
    assert "# pass: tden/table-1/same, 2 of 2 scored numbers" in done(run(*compare, "--out", "report.md"))
    report = Path("report.md").read_text()
    assert f"| COCO test C | CIDEr | {cider:.1f} | {cider:.1f} |" in report
    for fact in (sha256_of(captioner / "model.safetensors"), Store(Path("store")).content, "Drawn 2026",
                 "diptych compare", library.__version__, torch.__version__, "2 images"):  # fmt: skip
        assert fact in report
    failed = run("compare", captioner, "tden/table-1/higher", "--data", "store", "--json")
    assert failed.code == 1
    told = json.loads(failed.out)
    assert told["verdict"] == "fail"
    assert [(one["score"], one["passes"]) for one in told["numbers"]] == [("BLEU-4", True), ("CIDEr", False)]


def test_a_number_that_no_score_has_is_named_and_passes_nothing(
    captioner: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    bleu = evaluated(run, captioner)["BLEU-4"]["value"]
    draw_paper(monkeypatch, "paper.toml", Some=f"{bleu:.1f} - 28.0 -", None_scored="- - 28.0 -")
    told = json.loads(done(run("compare", captioner, "tden/table-1/some", "--data", "store", "--json")))
    assert [one["passes"] for one in told["numbers"]] == [True, None]
    assert "METEOR needs pycocoevalcap" in told["numbers"][1]["result"]
    nothing = run("compare", captioner, "tden/table-1/none-scored", "--data", "store")
    assert (nothing.code, "# fail: tden/table-1/none-scored, 0 of 0 scored numbers" in nothing.out) == (1, True)
    assert "| COCO test M | METEOR | 28.0 |  |  | not scored: METEOR needs pycocoevalcap" in nothing.out


def test_rows_that_do_not_fit_the_model_are_refused_before_any_work(
    captioner: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_paper(monkeypatch, "paper.toml", Ours="- - - 70.0", BUTD="36.2 113.5 27.0 -")

    def refused(message: str, row: str, *options: str) -> None:
        result = run("compare", captioner, row, "--data", "nowhere", *options)
        assert (result.code, message in result.error) == (2, True), result.error
        assert not Path("report.md").exists()

    refused("no row 'tden/table-1/our'; did you mean tden/table-1/ours or ", "tden/table-1/our")
    refused("tden/table-1/ours has no caption number on split test; known: none", "tden/table-1/ours")
    refused("tden/table-1/butd is of another system, but the model is of tden", "tden/table-1/butd")
    refused("is of unified-vlp, but the model is of tden", "unified-vlp/table-2/unified-vlp")
    refused("--out", str(captioner), "--out", "report.md")
    refused("found --revision 2 times", "tden/table-1/ours", "--revision", "a", "--revision", "b")
