"""Scorers, judges, labels: what they learn, and what they refuse."""

import json
import shutil
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from diptych.cli import run_verb
from diptych.core.folders import PACKAGED
from diptych.metrics.auroc import auroc
from diptych.metrics.bootstrap import resampled_interval
from diptych.runtime.errors import CheckpointError, DataError, DiptychError, RecipeError
from diptych.vision.pictures import to_picture
from diptych_mine import funnel
from diptych_mine.judge.clip import load_clip
from diptych_mine.judge.features import named_in, seen_and_named
from diptych_mine.judge.judges import load_judge, scores_by
from diptych_mine.judge.labelling import sample
from diptych_mine.judge.logistic import Logistic, threshold
from diptych_mine.judge.picture_judge import PictureJudge, train_judge
from diptych_mine.judge.scoring import Pair
from diptych_mine.judge.statistics import small
from diptych_mine.layout import RunLayout
from diptych_mine.lists import lists_of
from diptych_mine.scorer import load_scorer, scorer_version, train_scorer
from diptych_mine.settings import MiningSettings, changed
from diptych_world.book import Storybook
from diptych_world.render import render
from diptych_world.web.pictures import unnatural
from tests.support import toy

from .conftest import run

TINY_CLIP = {
    "embed_dim": 8,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 8, "heads": 1, "layers": 1},
}
EXAMPLES = 24  # of each of a judge's folders


def test_auc_by_hand() -> None:
    assert auroc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])) == 0.75
    assert auroc(np.ones(4), np.array([True, False, True, False])) == 0.5
    assert np.isnan(auroc(np.array([1.0, 2.0]), np.array([True, True])))


def test_logistic_regression_finds_what_tells_labels_apart_and_nothing_in_shuffled_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(600, 5))
    labels = table[:, 1] + 0.3 * rng.normal(size=600) > 0
    model = Logistic.fit(table[:400], labels[:400])
    assert auroc(model(table[400:]), labels[400:]) > 0.95
    assert np.argmax(np.abs(model.weights)) == 1
    shuffled = Logistic.fit(table[:400], rng.permutation(labels[:400]))
    scores, truth = shuffled(table[400:]), labels[400:]
    auc = resampled_interval(lambda rows: auroc(scores[rows], truth[rows]), [str(number) for number in range(200)])
    assert auc.low < 0.5 + 0.15
    assert auc.high - auc.low < 0.25
    model.save(tmp_path)
    assert Logistic.load(tmp_path, 5)(table).tolist() == model(table).tolist()
    with pytest.raises(CheckpointError, match="expected 6"):
        Logistic.load(tmp_path, 6)


def test_the_threshold_is_where_the_precision_ends() -> None:
    scores, labels = np.array([0.9, 0.8, 0.7, 0.6, 0.5]), np.array([True, True, False, True, False])
    assert threshold(scores, labels, 0.9) == 0.8
    assert threshold(scores, labels, 0.75) == 0.6
    assert threshold(np.array([0.9, 0.5, 0.5]), labels[:3], 0.9) == 0.9, "equal scores stay together"


def test_words_that_name_what_is_seen() -> None:
    classes = {"dog": "dog", "kite": "kite", "box": "box"}
    assert named_in("two dogs under a kite", classes) == {"dog": 2, "kite": 1}
    assert named_in("three boxes", classes) == {"box": 3}
    mean, unseen, unnamed, count, agrees = seen_and_named({"dog": 2, "kite": 1}, {"dog": (0.9, 2), "cat": (0.8, 1)})
    assert (round(mean, 2), unseen, unnamed, count, agrees) == (0.45, 1.0, 0.5, 2.0, 1.0)


@pytest.fixture(scope="module")
def labels(mined: tuple[Path, dict[str, Any]], small_web: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pairs of the run, labelled by the truth of the web, or by their page for what only it tells."""
    path = tmp_path_factory.mktemp("labels") / "labels.jsonl"
    right = {}
    for line in map(json.loads, (small_web / "truth.jsonl").read_text().splitlines()):
        right |= {(line["page"], text["text"]): text["right"] for text in line["texts"]}
    drawn = sample(mined[0], 10_000, path)
    for one in drawn:
        one["true"] = right.get((one["page"], one["statement"]), False)
    path.write_text("".join(f"{json.dumps(one)}\n" for one in drawn))
    return path


def test_a_scorer_learns_from_labels_and_is_used_by_a_run(
    labels: Path,
    small_web: Path,
    mined: tuple[Path, dict[str, Any]],
    tmp_path: Path,
) -> None:
    # Of 44 held-out pairs a fifth is true: words alone reach no precision of 0.9 there, for sure.
    card = train_scorer([labels], tmp_path / "scorer", precision=0.4)
    assert card["auc"] > 0.8  # prose beside pictures is easily told from captions
    folder = str(tmp_path / "scorer")
    out = tmp_path / "out"
    shutil.copytree(mined[0], out)
    more = {"scorer": folder, "scorer_version": scorer_version(folder), "load_scorer": load_scorer}
    told = run(out, small_web / "warc", **more)
    assert told["kept"] > 0
    assert told["rules"]["score"]["dropped"] > told["rules"]["kinds"]["dropped"] == 0  # a scorer reads sentences nearby
    assert told["texts"]["score"]["alone"] > 0
    assert all(row["score"] >= card["least"] for row in funnel.decisions(RunLayout(out)) if row["kept"] is not None)
    lines = [json.loads(line) for path in out.glob("records/*") for line in path.read_text().splitlines()]
    assert {line["by"].rpartition("/")[2] for line in lines} == {card["version"]}


def test_a_clip_model_scores_pairs_without_labels(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """A small random one: its cosines are those of open_clip, and a run keeps the best pairs by them."""
    import open_clip

    (tmp_path / "tiny-clip.json").write_text(json.dumps(TINY_CLIP))
    open_clip.add_model_config(tmp_path)
    torch.manual_seed(0)
    network = open_clip.create_model("tiny-clip", pretrained=None).eval()
    save_file(network.state_dict(), tmp_path / "clip.safetensors")
    name = f"clip:tiny-clip/{tmp_path / 'clip.safetensors'}"
    files = [(PACKAGED / "sample" / one).read_bytes() for one in ("000000.png", "000001.png")]
    texts = ["a red kite", "a dog that sleeps", "a red kite"]
    pairs = [Pair(text, "alt", files[number]) for text, number in zip(texts, (0, 1, 1), strict=True)]
    scores = load_clip(name).score(pairs)
    prepare, tokenise = open_clip.create_model_and_transforms("tiny-clip")[2], open_clip.get_tokenizer("tiny-clip")
    with torch.no_grad():
        for pair, score in zip(pairs, scores, strict=True):
            seen = network.encode_image(prepare(Image.open(BytesIO(pair.picture)))[None])
            read = network.encode_text(tokenise([pair.text]))
            assert score == pytest.approx(float(torch.cosine_similarity(seen, read)), abs=1e-5)
    out = tmp_path / "out"
    shutil.copytree(mined[0], out)
    more = {"scorer": name, "scorer_version": load_clip(name).version, "load_scorer": load_clip}
    settings = changed(MiningSettings(offline=True), ["rules.score=-1"])
    assert run(out, small_web / "warc", settings=settings, **more)["kept"] > 0
    chosen = [row["score"] for row in funnel.decisions(RunLayout(out)) if row["kept"] is not None]
    assert chosen
    assert all(-1 <= score <= 1 for score in chosen)
    with pytest.raises(RecipeError, match="open_clip has no 'ViT-B-31'; did you mean ViT-B-32"):
        load_clip("clip:ViT-B-31/openai")
    with pytest.raises(RecipeError, match="names no weights; pass open_clip/ViT-B-32/WEIGHTS"):
        load_clip("clip:ViT-B-32/none.safetensors")


def test_a_scorer_that_is_trained_again_is_another(labels: Path, tmp_path: Path) -> None:
    out = tmp_path / "scorer"
    (tmp_path / "detector").mkdir()
    toy.detector(64).save(tmp_path / "detector")
    with_detector = train_scorer([labels], out, detector=str(tmp_path / "detector"))
    assert (out / "detector").is_dir()
    without = train_scorer([labels], out)
    assert without["version"] != with_detector["version"]
    assert not (out / "detector").exists()
    assert load_scorer(str(out)).version == scorer_version(str(out)) == without["version"]
    with (out / "weights.safetensors").open("ab") as file:
        file.write(b" ")
    with pytest.raises(CheckpointError, match=r"scorer/weights\.safetensors is missing or has changed; copy"):
        scorer_version(str(out))


def test_labels_of_one_kind_are_refused(labels: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) | {"true": True} for line in labels.read_text().splitlines()]
    path = labels.with_name("all.jsonl")
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(DataError, match="all 82 labels are True"):
        train_scorer([path], tmp_path)
    path.write_text('{"image": 3}\n')
    with pytest.raises(DataError, match="line 1"):
        train_scorer([path], tmp_path)


def test_candidates_are_open_and_verdicts_are_kept(mined: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    drawn = sample(mined[0], 12, path)
    assert len(drawn) == 12
    assert {one["true"] for one in drawn} == {None}
    assert all((tmp_path / one["image"]).is_file() for one in drawn)
    lines = [one | {"true": True} for one in drawn[:1]]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    again = sample(mined[0], 12, path)
    assert [one["true"] for one in again] == [True, *[None] * 11]
    kept = [one for one in sample(mined[0], 1, path, seed=5) if one["true"] is not None]
    assert kept == lines, "the verdict of a pair that is not drawn again is kept"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judge")
    rng = Random(0)
    for number, scene in enumerate(Storybook(0, "train", EXAMPLES)[:]):
        save(Image.fromarray(render(scene, 2)), folder / "classes" / "natural" / f"{number}.png")
    for number in range(EXAMPLES):
        kind = ("chart", "text", "gradient")[number % 3]
        save(unnatural(kind, rng), folder / "classes" / "unnatural" / f"{number}.png")
    train_judge(folder / "classes", folder / "judge")
    return folder / "judge"


def test_a_judge_wants_examples_that_are_held_out(judge: Path, tmp_path: Path) -> None:
    for kind, count in (("natural", 4), ("unnatural", 3)):
        (tmp_path / "classes" / kind).mkdir(parents=True)
        for path in sorted((judge.parent / "classes" / kind).iterdir())[:count]:
            shutil.copy(path, tmp_path / "classes" / kind)
    with pytest.raises(
        DataError,
        match=r"too few images \(4 in natural, 3 in unnatural\); two subfolders, one of images to keep, need 4",
    ):
        train_judge(tmp_path / "classes", tmp_path / "judge")
    assert not (tmp_path / "judge").exists()


def test_a_judge_with_other_weights_than_those_of_its_card_is_refused(judge: Path, tmp_path: Path) -> None:
    shutil.copytree(judge, tmp_path / "judge")
    assert PictureJudge.load(tmp_path / "judge").version
    shutil.copytree(judge.parent / "classes", tmp_path / "classes")
    shutil.rmtree(tmp_path / "classes" / "natural")
    (tmp_path / "classes" / "unnatural").rename(tmp_path / "classes" / "natural")
    shutil.copytree(judge.parent / "classes" / "natural", tmp_path / "classes" / "other")
    train_judge(tmp_path / "classes", tmp_path / "another")
    shutil.copy(tmp_path / "another" / "weights.safetensors", tmp_path / "judge")
    with pytest.raises(CheckpointError, match=r"judge/weights\.safetensors is missing or has changed; copy"):
        PictureJudge.load(tmp_path / "judge")


def test_examples_are_decoded_by_processes(judge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diptych.vision.image_files._opened", lambda *_: pytest.fail("decoded in this process"))
    monkeypatch.setattr("diptych.vision.image_files.read_image", lambda *_: pytest.fail("decoded in this process"))
    card = train_judge(judge.parent / "classes", tmp_path / "judge")
    assert card["pictures"] == {"natural": EXAMPLES, "unnatural": EXAMPLES}


@pytest.mark.large
def test_a_judge_with_a_backbone_keeps_it_and_judges_without_its_file(
    judge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "resnet18.safetensors"
    torch.manual_seed(0)
    save_file(torchvision.models.resnet18(weights=None).state_dict(), weights)
    classes = tmp_path / "classes"
    for kind in ("natural", "unnatural"):
        (classes / kind).mkdir(parents=True)
        for path in sorted((judge.parent / "classes" / kind).iterdir())[:12]:
            shutil.copy(path, classes / kind)
    card = train_judge(classes, tmp_path / "judge", backbone="resnet18", weights=weights)
    weights.unlink()
    assert (card["kind"], card["backbone"]) == ("backbone", "resnet18")
    found = load_judge(str(tmp_path / "judge"))
    natural, unnatural = (
        found.judge([to_picture(small(Image.open(path))) for path in sorted((classes / kind).iterdir())[:3]])
        for kind in ("natural", "unnatural")
    )
    assert min(natural) > max(unnatural)
    with monkeypatch.context() as patched:  # the features count
        patched.setattr(found.grid.backbone, "trunk", torch.nn.Conv2d(3, 512, 1))
        again = found.judge(
            [to_picture(small(Image.open(path))) for path in sorted((classes / "natural").iterdir())[:3]]
        )
    assert again != natural
    (tmp_path / "judge" / "backbone" / "detector.safetensors").write_bytes(b"torn")
    load_judge.cache_clear()
    with pytest.raises(CheckpointError, match=r"judge/backbone/detector\.safetensors is missing or has changed; copy"):
        load_judge(str(tmp_path / "judge"))


def save(image: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def test_a_judge_tells_what_it_was_shown_apart_and_drops_it_in_a_run(
    judge: Path, small_web: Path, tmp_path: Path
) -> None:
    card = json.loads((judge / "judge.json").read_text())
    assert card["auc"] > 0.97
    told = run(tmp_path / "out", small_web / "warc", judges={"realism": str(judge)})
    rows = [row for row in funnel.decisions(RunLayout(tmp_path / "out")) if row["realism"] is not None]
    assert len(rows) > 30
    assert all(("realism" in row["fails"]) == (row["realism"] < card["least"]) for row in rows)
    assert told["about"]["judges"] == {"realism": mined_by(judge), "nsfw": "not judged"}


def mined_by(judge: Path) -> str:
    from diptych_mine.judge.judges import identity

    return identity(str(judge))


class Wrong:
    name, version, least = "wrong", "1", 0.5

    def __init__(self, scores: Any) -> None:
        self.scores = scores

    def judge(self, pictures: Sequence[Tensor]) -> Any:
        if isinstance(self.scores, Exception):
            raise self.scores
        return self.scores


@pytest.mark.parametrize("scores", [[float("nan")], [0.1, 0.2], [7.0], RuntimeError("no memory")])
def test_a_judge_that_fails_is_named_with_the_way_out(scores: Any) -> None:
    with pytest.raises(DiptychError, match=r"the image judge wrong .*correct its code"):
        scores_by(Wrong(scores), [Image.new("RGB", (8, 8))])


def test_what_is_no_judge_and_no_scorer_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"judge\.json"):
        load_judge(str(tmp_path))
    with pytest.raises(CheckpointError, match="diptych mine scorer"):
        load_scorer(str(tmp_path))
    with pytest.raises(DiptychError, match="MODULE:FUNCTION"):
        load_judge("no.such.module:make")


def test_pictures_of_a_test_split_are_dropped(
    small_web: Path, mined: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    rows = [row for row in funnel.decisions(RunLayout(mined[0])) if row["kept"] is not None][:5]
    held = [(rows[0]["sha256"], None), *(("", bytes([row["phash"][0] ^ 1]) + row["phash"][1:]) for row in rows[1:])]
    told = run(tmp_path / "out", small_web / "warc", exclude=held)
    assert told["rules"]["exclude"]["dropped"] >= 5
    assert told["kept"] <= mined[1]["kept"] - 4


def test_lists_are_read_by_what_their_lines_are(tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_text(f"# a list\nexample.org\n{'a' * 64}\nphash:{'0' * 64}\nhttps://b.test/k#x\n")
    lists = lists_of([path], 4)
    assert lists.refuse("https://www.example.org/k.jpg")
    assert not lists.refuse("https://notexample.org/k.jpg")
    assert lists.refuse("https://b.test/k#x")
    hashes = [("a" * 64, None), ("", bytes(31) + b"\x0f"), ("", bytes(31) + b"\x1f"), (None, None)]
    rows: list[Any] = [*({"sha256": one, "phash": phash} for one, phash in hashes), None]
    assert lists.refused.hold(rows) == [True, True, False, False, False]
    path.write_text("0" * 16)
    with pytest.raises(DiptychError, match="a hash of an older version; expected in each line a SHA-256"):
        lists_of([path], 4)
    path.write_text(
        "\ufeff.One.test.\n*.two.test\nthree.test:80\nmünchen.test\nHTTP://A.test:80/K.jpg?x#y\nhttps://A.test:8080/k\n"
    )
    lists = lists_of([path], 4)
    for place in ("one.test", "b.two.test", "three.test:80", "xn--mnchen-3ya.test", "a.test:8080"):
        assert lists.refuse(f"https://{place}/k") is True
    assert lists.refuse("http://a.test/K.jpg?x")
    assert not lists.refuse("http://a.test/k.jpg?x")
    assert not lists.refuse("http://a.test:8080/k")
    for bad in ("no list at all", "a.*.test", "b.test/k", "..", "*"):
        path.write_text(f"{bad}\n")
        with pytest.raises(DiptychError, match="expected in each line a SHA-256"):
            lists_of([path], 4)


def test_lines_to_label_do_not_take_the_name_of_their_page(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert run_verb(["mine", "label", str(tmp_path / "run"), "--out", str(tmp_path / "same.html")], False) == 2
    assert not (tmp_path / "same.html").exists()


def test_a_pair_knows_its_picture() -> None:
    assert Pair("a kite", "alt", b"").row == {}
    assert MiningSettings().keep.score is None
