"""Self-critical training from a recipe: what is rewarded and by what, what is kept, logged, warned of and refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from diptych.core import GeneratedCaption, Record, Sample, collate
from diptych.data.store.store import Store
from diptych.data.store.tokens import Tokens
from diptych.metrics.tokenise import tokens_of
from diptych.runs.folder import ModelFolder, open_model
from diptych.runs.run import run
from diptych.runs.start import fit_to
from diptych.runtime.errors import CheckpointError, DataError, RecipeError, TrainingError
from diptych.systems import RECIPES, Recipe, find_recipe
from diptych.tasks.rewards import FREQUENCIES, BatchCider, CorpusCider, human_captions
from tests.support.learning import learner_of, notes_of
from tests.support.scenes import TINY, scene_store

SETTINGS = (
    "training.batch=4", "training.steps=3", "training.validate_every=3", "training.log_every=1",
    "training.precision=fp32", "data.validation_records=2", "decoding.max_words=6", "training.threads=1",
)  # fmt: skip
SCST = "unified-vlp/small/scst"
SPLITS = {"train": 8, "val": 2, "test": 2}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return scene_store(tmp_path_factory.mktemp("world") / "store", SPLITS)


@pytest.fixture(scope="module")
def captioner(world: Store, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    recipe = find_recipe("unified-vlp/small/caption", [*TINY, *SETTINGS])
    return run(recipe, world, tmp_path_factory.mktemp("runs") / "caption", console=Console(quiet=True)).model


def rewarded(start: ModelFolder, *settings: str) -> Recipe:
    return fit_to(find_recipe(SCST), start).override([*SETTINGS, *settings])


# ---- the rewards ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens.train(["a dog runs in the park", "the red kite flies", "two dogs"], 200)


def asked(tokens: Tokens, **pictures: str) -> Any:
    end = tokens.vocabulary.sep
    return collate([Sample(k, k, None, torch.tensor([*tokens.encode(text), end])) for k, text in pictures.items()])


def test_a_model_folder_has_the_scores_of_its_best_validation(captioner: ModelFolder) -> None:
    logged = [json.loads(line) for line in (captioner.folder.parent / "metrics.jsonl").read_text().splitlines()]
    (validated,) = [line["validation"] for line in logged if line.get("validation")]
    kept = dict(open_model(captioner.folder).validation or {})
    assert kept.pop("images") < 30
    assert kept == validated
    assert "CIDEr" in validated


def test_all_references_and_the_corpus(tokens: Tokens, tmp_path: Path) -> None:
    """CIDEr-D by hand: unigrams and bigrams of `a dog .`, weighed by log(3 pictures / pictures that have them)."""
    references = {"x": ["a dog", "A dog."], "y": ["a kite"], "z": ["the park"]}
    reward = CorpusCider(tokens, references, counts_end=True, cache=tmp_path / FREQUENCIES)
    batch, end = asked(tokens, x="a dog"), tokens.vocabulary.sep
    dog, a = tokens.encode("a dog"), tokens.encode("a")
    scores = reward(batch, [[[*dog, end], [*a, end], dog]])
    third = math.log(3)
    a_weight = math.log(3 / 2)
    # `a .`: unigram a (., in every picture, weighs 0) shared; bigram `a .` is in no reference and none of x's has it.
    unigrams = a_weight * a_weight / (a_weight * math.hypot(a_weight, third))
    assert float(scores[0, 0]) == pytest.approx(10 * 3 / 4, abs=1e-5), "1-, 2- and 3-grams agree; there is no 4-gram"
    assert float(scores[0, 1]) == pytest.approx(10 / 4 * unigrams * math.exp(-1 / 72), abs=1e-5)
    assert float(scores[0, 2]) < float(scores[0, 0]), "a caption that breaks off is not a whole one"
    without_end = replace(reward, counts_end=False, cache=tmp_path / "other.json")
    whole, broken = without_end(batch, [[[*dog, end], dog]])[0].tolist()
    assert whole == broken == pytest.approx(10 * 2 / 4, abs=1e-5)


def test_frequencies_are_counted_once(tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    references, cache = {"x": ["a dog"], "y": ["a kite"]}, tmp_path / FREQUENCIES
    batch, caption = asked(tokens, x="a dog"), [*tokens.encode("a dog"), tokens.vocabulary.sep]
    first = CorpusCider(tokens, references, True, cache)(batch, [[caption]])
    assert json.loads(cache.read_text())["pictures"] == 2
    from diptych.metrics.cider import DocumentFrequencies

    def count_again(*_: object) -> None:
        raise AssertionError("counted again")

    monkeypatch.setattr(DocumentFrequencies, "of", count_again)
    assert torch.equal(CorpusCider(tokens, references, True, cache)(batch, [[caption]]), first)
    with pytest.raises(AssertionError, match="counted again"):  # other data under the same run
        CorpusCider(tokens, references | {"z": ["the park"]}, True, cache)(batch, [[caption]])
    with pytest.raises(AssertionError, match="counted again"):  # as many pictures, of which other objects are said
        CorpusCider(tokens, references | {"y": ["the park"]}, True, cache)(batch, [[caption]])


def test_one_reference_and_the_batch(tokens: Tokens) -> None:
    """The released code's: pieces, [SEP] among them, and each picture counted twice: log(4/2) for what one has, and
    log(4) for what none has (by hand: the caption is the reference but for its last word)."""
    batch, end = asked(tokens, x="a dog", y="the park"), tokens.vocabulary.sep
    a, dog = tokens.encode("a"), tokens.encode("dog")
    reward = BatchCider(tokens)
    assert len(a) == len(dog) == 1
    scores = reward(batch, [[[*a, *dog, end], [*a, end]], [[end], [end]]])
    assert float(scores[0, 0]) == pytest.approx(10 * 3 / 4, abs=1e-5)
    two = math.log(4 / 2)
    # unigrams: a is shared, [SEP] is in both pictures and weighs 0; the bigram `a [SEP]` is in no reference.
    unigrams = two * two / (two * math.hypot(two, two))
    assert float(scores[0, 1]) == pytest.approx(10 / 4 * unigrams * math.exp(-1 / 72), abs=1e-5)
    assert float(scores[1, 0]) == 0


def test_only_people_s_words_reward() -> None:
    said = Record("x", captions=("a dog", "...", "a cat", ""), generated=(GeneratedCaption("a cat", "tden/0", -1.0),))
    assert human_captions(said) == ("a dog",)


# ---- a run ---------------------------------------------------------------------------------------------


def test_a_run_keeps_frequencies_and_logs_rewards_and_captions(
    world: Store, captioner: ModelFolder, tmp_path: Path
) -> None:
    weights = []
    for name in ("one", "two"):
        made = run(rewarded(captioner), world, tmp_path / name, captioner, Console(quiet=True))
        weights.append(sha256((made.model.folder / "model.safetensors").read_bytes()).hexdigest())
    assert weights[0] == weights[1], "what is drawn follows from seed and step"
    assert weights[0] != sha256((captioner.folder / "model.safetensors").read_bytes()).hexdigest()
    assert json.loads((tmp_path / "one" / FREQUENCIES).read_text())["pictures"] == 8
    lines = [json.loads(line) for line in (tmp_path / "one" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert set(line["losses"]) == {"self_critical", "reward", "advantage", "length"}
        assert line["total"] == line["losses"]["self_critical"]
        assert 1 <= line["losses"]["length"] <= 6
        assert 1 <= len(line["examples"]) <= 3
        assert set(line["examples"][0]) == {"key", "caption", "reward", "baseline"}
    assert "CIDEr" in lines[-1]["validation"]


@pytest.mark.parametrize("system", ["tden", "xgpt"])
def test_every_system_that_writes_is_rewarded(system: str, world: Store, tmp_path: Path) -> None:
    """By its own recipe, from its own captioner; the words are its decoder's."""
    few = [one for one in TINY if "layers" not in one] if system == "tden" else TINY
    taught = find_recipe(f"{system}/small/caption", [*few, *SETTINGS])
    start = run(taught, world, tmp_path / "caption", console=Console(quiet=True)).model
    recipe = fit_to(find_recipe(f"{system}/small/scst"), start).override([*SETTINGS, "training.steps=2"])
    made = run(recipe, world, tmp_path / "scst", start, Console(quiet=True))
    assert made.result.step == 2
    (first, *_) = (tmp_path / "scst" / "metrics.jsonl").read_text().splitlines()
    assert set(json.loads(first)["losses"]) == {"self_critical", "reward", "advantage", "length"}
    moved = [n for n, p in made.model.model.state_dict().items() if not torch.equal(p, start.model.state_dict()[n])]
    assert any({"tden": "decoder", "xgpt": "encoder"}[system] in name for name in moved), "XGPT's layers are one set"


@pytest.mark.parametrize("settings", [
    ("objectives.baseline=greedy", "objectives.samples=1"),
    ("objectives.baseline=beam", "objectives.samples=2", "objectives.beams=2"),
    ("objectives.references=official", "objectives.dropout=true"),
])  # fmt: skip
def test_other_baselines_and_the_code_s_reward(
    world: Store, captioner: ModelFolder, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    recipe = rewarded(captioner, "training.steps=1", "training.validate_every=null", *settings)
    assert run(recipe, world, tmp_path / "run", captioner, Console(quiet=True)).result.step == 1


def test_a_picture_comes_once_or_with_each_reference(world: Store, captioner: ModelFolder, tmp_path: Path) -> None:
    all_at_once = learner_of(tmp_path, rewarded(captioner), world, captioner)
    one_by_one = learner_of(tmp_path, rewarded(captioner, "objectives.references=official"), world, captioner)
    assert (len(all_at_once.batches()), len(one_by_one.batches())) == (8, 40)


def test_pictures_without_references_are_counted_and_left_out(captioner: ModelFolder, tmp_path: Path) -> None:
    def silent(number: int, one: Record) -> Record:
        return replace(one, captions=("?!",)) if number in (2, 5) else one

    store = scene_store(tmp_path / "store", SPLITS, change=silent)
    chosen = learner_of(tmp_path / "run", rewarded(captioner), store, captioner)
    assert len(chosen.batches()) == 6
    few, note = chosen.notes()
    assert "images to validate on, fewer than 30" in few
    assert "2 of 8 images without human captions are left out" in note
    assert store.words(2).key in note
    mute = scene_store(tmp_path / "mute", SPLITS, change=lambda _, one: replace(one, captions=()))
    with pytest.raises(DataError, match=r"none of the 8 records of split 'train'.*choose another split"):
        learner_of(tmp_path / "run", rewarded(captioner), mute, captioner)


@pytest.mark.parametrize(("rate", "warned"), [(1e-4, False), (4e-4, False), (1e-3, True)])
def test_a_rate_far_above_the_recipe_s_is_warned_of(
    world: Store, captioner: ModelFolder, tmp_path: Path, rate: float, warned: bool
) -> None:
    _, *notes = notes_of(tmp_path, rewarded(captioner, f"optimizer.lr={rate}"), world, captioner)
    assert notes == ([
        "warning: learning rate 0.001 is 10 times that of unified-vlp/small/scst (0.0001); at such rates self-critical "
        "training destroys what the model has learnt"
    ] if warned else [])  # fmt: skip


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint(
    world: Store, captioner: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged, calls = CorpusCider.__call__, iter(range(100))
    broken = {"from": 2}

    def now_and_then(self: CorpusCider, batch: Any, captions: Any) -> torch.Tensor:
        scores = judged(self, batch, captions)
        return scores * math.nan if next(calls) >= broken["from"] else scores

    monkeypatch.setattr(CorpusCider, "__call__", now_and_then)
    recipe = rewarded(captioner, "training.checkpoint_every=1", "training.validate_every=null")
    with pytest.raises(TrainingError, match=r"the reward of a caption is nan.*checkpoint of step 2 is kept"):
        run(recipe, world, tmp_path / "run", captioner, Console(quiet=True))
    assert (tmp_path / "run" / "checkpoints" / "step-00000002").is_dir()
    broken["from"] = 100
    assert run(recipe, world, tmp_path / "run", captioner, Console(file=StringIO())).result.step == 3


# ---- refusals ------------------------------------------------------------------------------------------


def test_what_cannot_be_rewarded(world: Store, captioner: ModelFolder, tmp_path: Path) -> None:
    with pytest.raises(
        RecipeError, match=r"needs a trained captioner: pass its folder \(of diptych finetune caption\) with"
    ):
        learner_of(tmp_path, find_recipe(SCST), world)
    with pytest.raises(RecipeError, match=r"training\.distributed=ddp"):
        learner_of(tmp_path, rewarded(captioner, "training.distributed=fsdp"), world, captioner)
    with pytest.raises(RecipeError, match="set task=caption"):
        learner_of(tmp_path, rewarded(captioner).model_copy(update={"task": "pretrain"}), world, captioner)
    for settings, said in (
        (["objectives.samples=1"], "baseline=mean .* samples=1 has no others; set samples=2"),
        (
            ["objectives.references=official", "objectives.counts_end=false"],
            "counts_end=false, set references=paper",
        ),
    ):
        with pytest.raises(RecipeError, match=said):
            find_recipe(SCST, settings)


def test_a_vocabulary_that_is_not_the_model_s(world: Store, captioner: ModelFolder, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ndog\n")
    recipe = rewarded(captioner, f"data.vocabulary={tmp_path / 'vocab.txt'}")
    with pytest.raises(RecipeError, match=r"6 tokens\) is not the tokeniser of"):
        learner_of(tmp_path / "run", recipe, world, captioner)
    moved = captioner.save(tmp_path / "model")
    Tokens.from_vocabulary(tmp_path / "vocab.txt", lowercase=True).save(moved.folder)
    with pytest.raises(CheckpointError, match="is not the tokeniser of these weights, which were trained with another"):
        open_model(moved.folder)


def test_the_authors_numbers() -> None:
    paper, code = RECIPES["unified-vlp/scst"](), RECIPES["unified-vlp/official/scst"]()
    for recipe in (paper, code):
        assert (recipe.optimizer.lr, recipe.training.batch, recipe.task) == (1e-6, 64, "caption")
    sides = [(r.objectives.references, r.objectives.dropout) for r in (paper, code)]  # type: ignore[attr-defined]
    assert sides == [("paper", False), ("official", True)]
    tden = RECIPES["tden/official/scst"]()
    assert (tden.optimizer.lr, tden.optimizer.gamma, tden.optimizer.schedule) == (5e-6, 0.8, "step")
    assert list(tokens_of("end .")) == ["end"], "a full stop is free to stand for the end"
