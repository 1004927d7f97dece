"""New captions for a training set: which are kept, where they come from, and that they train again."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from diptych.core import GeneratedCaption
from diptych.data.check import check
from diptych.data.formats import jsonl
from diptych.data.formats.format import Source, Wanted
from diptych.data.store.store import Store, StoreWriter
from diptych.metrics.tokenise import tokens_of
from diptych.models.decoding import DecodingOptions, Hypothesis
from diptych.models.decoding.chosen import chosen_decoding
from diptych.runs.evaluation import augment as augmenting
from diptych.runs.evaluation.augment import augment
from diptych.runs.evaluation.evaluate import score_model
from diptych.runs.folder import ModelFolder
from diptych.runs.run import run
from diptych.runs.words import training_texts, words_of
from diptych.runtime.configs import derive, validated
from diptych.runtime.errors import CheckpointError, DataError, RecipeError
from diptych.systems import find_recipe
from tests.support.scenes import TINY, scene_store

SETTINGS = (
    *TINY, "training.batch=8", "training.steps=12",
    "training.validate_every=null", "training.precision=fp32", "decoding.max_words=6", "training.threads=1",
)  # fmt: skip
DRAWN = chosen_decoding(DecodingOptions(max_words=6), 6, True, top_p=0.9)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return scene_store(tmp_path_factory.mktemp("world") / "store", {"train": 7, "val": 2}, detector=True)


@pytest.fixture(scope="module")
def captioner(world: Store, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    recipe = find_recipe("unified-vlp/small/caption", SETTINGS)
    return run(recipe, world, tmp_path_factory.mktemp("runs") / "caption", console=Console(quiet=True)).model


def test_a_mean_of_new_captions_is_reached_over_the_pictures(captioner: ModelFolder, world: Store) -> None:
    """XGPT, 6.1: 62,000 captions for 29,000 pictures."""
    texts = [Hypothesis(captioner.tokens.encode(text), -1.0) for text in ("a red dog", "a dog", "a kite")]
    settings, tally = augmenting.Augmentation("", "me", 2.14, "train", 0), augmenting.Tally()
    made = [augmenting._with_new(captioner, world.record(0), texts, settings, tally) for _ in range(50)]
    assert {len(one.generated) for one in made} == {2, 3}
    assert (tally.kept, tally.wanted, tally.fewer) == (107, 107, 0)
    assert 29_000 * tally.kept / 50 == pytest.approx(62_000, rel=0.002)


def test_a_caption_with_an_unknown_word_is_no_text(captioner: ModelFolder, world: Store) -> None:
    """Read again, its "[UNK]" would be three words."""
    dog = captioner.tokens.encode("a red dog")
    texts = [Hypothesis([*dog, captioner.tokens.vocabulary.unknown], -1.0), Hypothesis(dog, -2.0)]
    settings, tally = augmenting.Augmentation("", "me", 2, "train", 0), augmenting.Tally()
    found = augmenting._with_new(captioner, world.record(0), texts, settings, tally)
    assert [one.text for one in found.generated] == ["a red dog"]
    assert (tally.without_words, tally.kept) == (1, 1)


def test_new_captions_are_kept_with_their_origin_and_train_again(
    world: Store, captioner: ModelFolder, tmp_path: Path
) -> None:
    tally = augment(captioner, world, tmp_path / "more", 3, DRAWN, "train", seed=0)
    more = Store(tmp_path / "more")
    assert len(more) == len(world) == 9
    assert tally.pictures == 7
    assert tally.kept == sum(len(more.words(index).generated) for index in range(9)) > 0
    for index in range(9):
        before, after = world.record(index), more.record(index)
        assert after.captions[: len(before.captions)] == before.captions
        assert [one.text for one in after.generated] == list(after.captions[len(before.captions) :])
        assert all(one.by.startswith("unified-vlp/") and one.score < 0 for one in after.generated)
        said = [tuple(tokens_of(caption)) for caption in after.captions]
        assert len(set(said)) == len(said), "no repeats, of people's or of its own"
        assert after.split == "train" or after == replace(before, regions=after.regions)
        assert after.regions is not None
        assert before.regions is not None
        assert after.regions.features is not None
        assert before.regions.features is not None
        assert after.regions.features.equal(before.regions.features)
    again = run(
        find_recipe("unified-vlp/small/caption", SETTINGS), more, tmp_path / "again", console=Console(quiet=True)
    )
    assert again.result.step == 12


def test_joined_splits_are_all_of_their_parts(world: Store, captioner: ModelFolder, tmp_path: Path) -> None:
    """Scored ones teach no baseline, and a part that is not there is named."""
    assert augment(captioner, world, tmp_path / "more", 1, DRAWN, "train+val", seed=0).pictures == 9
    _, alone = score_model(captioner, world, "val")
    assert "blind: the training caption" in " ".join(alone.notes)
    _, joined = score_model(captioner, world, "train+val")
    assert joined.pictures == 9
    assert "blind: the training caption" not in " ".join(joined.notes)
    for split in ("val+foo", "foo"):
        with pytest.raises(DataError, match=r"no records in split 'foo'; it has train \(7\), val \(2\); choose with"):
            score_model(captioner, world, split)
    assert set(training_texts(world, "train+val")) == set()
    texts, everything = set(training_texts(world)), {text for n in range(7) for text in words_of(world.words(n))}
    assert texts <= everything
    assert {word for text in texts for word in text.split()} == {word for text in everything for word in text.split()}


def test_a_picture_without_regions_and_captions_that_go_round(
    world: Store, captioner: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of the training pictures has no region; of each other one, the first caption says all twice."""
    said = "a red dog a red dog"
    monkeypatch.setattr(captioner.tokens, "decode", lambda ids: said if len(ids) == 2 else "one more")
    texts = [[Hypothesis([5, 6], -1.0), Hypothesis([5, 6, 7], -2.0)]] * 6
    told: list[int] = []
    monkeypatch.setattr(augmenting, "generate_captions", lambda _, records, __: told.append(len(records)) or texts)
    folder = tmp_path / "bare"
    with StoreWriter(folder, world.contract) as store:
        for number in range(9):
            store.add(world.record(number).best_regions(0 if number == 1 else 100))
    tally = augment(captioner, Store(folder), tmp_path / "more", 2, DRAWN, "train", seed=0)
    assert told == [6]
    assert (tally.without_regions, tally.going_round, tally.kept, tally.pictures) == (1, 6, 6, 6)
    assert "1 image without a region got no captions" in tally.summary()
    monkeypatch.undo()
    _, scores = score_model(captioner, Store(folder), "train")
    assert "1 of 7 images have no region (the first: train" in " ".join(scores.notes)
    more = Store(tmp_path / "more")
    assert more.words(1) == world.words(1)
    assert [len(more.words(n).generated) for n in range(9)] == [1, 0, 1, 1, 1, 1, 1, 0, 0]


def test_a_stop_changes_no_caption(
    world: Store, captioner: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(augmenting, "BATCH", 2)
    monkeypatch.setattr(augmenting, "SHARD", 4)
    whole = augment(captioner, world, tmp_path / "whole", 2, DRAWN, "train", seed=0)
    asked, write = [], augmenting.generate_captions

    def stops(*given: object) -> object:
        asked.append(1)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return write(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(augmenting, "generate_captions", stops)
    with pytest.raises(KeyboardInterrupt):
        augment(captioner, world, tmp_path / "stopped", 2, DRAWN, "train", seed=0)
    assert 0 < len(Store(tmp_path / "stopped")) < 9
    assert augment(captioner, world, tmp_path / "stopped", 2, DRAWN, "train", seed=0) == whole
    assert len(asked) < 3 + 4, "what was written is not written again"
    one, two = (Store(tmp_path / name) for name in ("whole", "stopped"))
    assert [one.words(n) for n in range(9)] == [two.words(n) for n in range(9)]
    with pytest.raises(RecipeError, match="another augmentation:\n  captions: 4, was 2\npass the same options"):
        augment(captioner, world, tmp_path / "whole", 4, DRAWN, "train", seed=0)
    (tmp_path / "whole" / "augmented.json").write_text("{")
    with pytest.raises(DataError, match=r"whole/augmented\.json is damaged \("):
        augment(captioner, world, tmp_path / "whole", 2, DRAWN, "train", seed=0)


def test_what_cannot_be_augmented(world: Store, captioner: ModelFolder, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="is the store itself; pass another folder"):
        augment(captioner, world, world.folder, 2, DRAWN, "train", 0)
    with pytest.raises(DataError, match=r"no records in split 'web'.*--split"):
        augment(captioner, world, tmp_path / "out", 2, DRAWN, "web", 0)
    assert not (tmp_path / "out").exists()


def test_captions_without_room_are_refused_before_anything_is_written(
    world: Store, captioner: ModelFolder, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match="the captions need 1000 words"):
        augment(captioner, world, tmp_path / "more", 1, derive(DRAWN, max_words=1000), "train", seed=0)
    assert not (tmp_path / "more").exists()


def test_lines_that_say_what_a_model_wrote(tmp_path: Path) -> None:
    line = {
        "image": "a.jpg",
        "captions": ["a dog", "a cat"],
        "generated": [{"text": "a cat", "by": "xgpt/0", "score": -2}],
    }
    path = tmp_path / "lines.jsonl"
    path.write_text(json.dumps(line))
    (read,) = jsonl.read(Wanted(split="train"), Source(path))
    assert read.generated == (GeneratedCaption("a cat", "xgpt/0", -2.0),)
    line["captions"] = ["a dog"]
    path.write_text(json.dumps(line))
    with pytest.raises(DataError, match="found `a cat`, expected one of the line's captions"):
        jsonl.read(Wanted(split="train"), Source(path))


def test_how_captions_are_written_where_it_is_asked_for() -> None:
    usual = DecodingOptions(beams=5, length_bonus=0.4)
    assert chosen_decoding(usual, 1, False) == usual
    assert chosen_decoding(usual, 8, False).beams == 8
    assert chosen_decoding(usual, 1, False, length_penalty=1.0).length_bonus == 0
    drawn = chosen_decoding(usual, 3, True, top_p=0.8)
    assert (drawn.beams, drawn.captions, drawn.sample, drawn.top_p) == (1, 3, True, 0.8)
    for given in ({"top_k": 4}, {"top_p": 0.9}, {"temperature": 1.0}):
        assert chosen_decoding(usual, 1, **given).sample
    with pytest.raises(RecipeError, match=r"only sampling uses top_k; add sample=true"):
        validated(DecodingOptions, {"top_k": 4}, "decoding")
    with pytest.raises(RecipeError, match=r"beam search \(beams=4\)"):
        chosen_decoding(usual, 1, top_k=4, beams=4)


def test_a_detector_that_was_half_copied_is_copied_again(world: Store, captioner: ModelFolder, tmp_path: Path) -> None:
    augment(captioner, world, tmp_path / "more", 1, DRAWN, "train", seed=0)
    wanted = (world.folder / "detector" / "detector.json").read_bytes()
    (tmp_path / "more" / "detector" / "detector.json").unlink()
    augment(captioner, world, tmp_path / "more", 1, DRAWN, "train", seed=0)
    assert (tmp_path / "more" / "detector" / "detector.json").read_bytes() == wanted


@pytest.mark.parametrize("flipped", [True, False])
def test_a_store_s_damaged_detector_is_refused_before_anything_is_written(
    world: Store, captioner: ModelFolder, tmp_path: Path, flipped: bool
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(world.folder, broken)
    file = broken / "detector" / "detector.json"
    content = file.read_bytes()
    file.unlink()
    if flipped:  # a digit of a threshold or of a size
        at = next(at for at, byte in enumerate(content) if 0x30 <= byte < 0x38)
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    said = re.escape(str(file)) if flipped else "is not a detector's folder"
    for attempt in (
        lambda: augment(captioner, Store(broken), tmp_path / "other", 1, DRAWN, "train", seed=0),
        lambda: run(find_recipe("unified-vlp/small/caption", SETTINGS), Store(broken), tmp_path / "run"),
    ):
        with pytest.raises(CheckpointError, match=said):
            attempt()
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "run").exists()
    (found,) = [one for one in check(Store(broken), pictures=False).findings if one.kind == "detector"]
    assert re.search(said, found.examples[0])
