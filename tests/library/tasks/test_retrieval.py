"""Galleries, their tables, rankings and shortlists."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.core import Record, collate
from diptych.data.store.tokens import Tokens
from diptych.metrics.retrieval import rank_of, recall_by_chance, recalls, retrieval_ranks
from diptych.runtime.errors import DataError, RecipeError
from diptych.systems.unified_vlp.model import UnifiedVLP
from diptych.tasks import RETRIEVAL
from diptych.tasks.gallery import RetrievalGallery, missing_cells, open_table, put
from diptych.tasks.matching import Retrieval, everything, rankings
from diptych.tasks.recall import recall_scores, shortlist_notes
from diptych.tasks.run import predict_records
from diptych.tasks.shortlist import Shortlister
from tests.support import toy

WORDS = ("red", "blue", "green", "dog", "kite", "boat", "tree")
TOKENS = Tokens.train([" ".join(WORDS)], 40)


def record(number: int, *captions: str) -> Record:
    return Record(f"p{number}", captions=captions, regions=toy.regions(1 + number % 3, number))


# One caption and two captions in turn.
RECORDS = [record(n, *(f"a {WORDS[n % 3]} {WORDS[3 + n % 4]}", WORDS[n % 3])[: n % 2 + 1]) for n in range(6)]
TASK = Retrieval(TOKENS, max_words=8)


def matcher(**changes):
    torch.manual_seed(0)
    config = toy.config(init_std=0.3, **changes).model_copy(update={"vocabulary": TOKENS.vocabulary})
    return UnifiedVLP(config, ("match",)).eval()


def test_the_table_is_that_of_pairs_one_by_one():
    model, gallery = matcher(), RetrievalGallery.of(RECORDS)
    table = open_table(gallery, None, "")
    TASK.fill(model, gallery, table, everything(gallery), batch_size=4)
    for row, one in enumerate(RECORDS):
        for column, caption in enumerate(gallery.captions):
            alone = TASK.predict(model, toy_batch(one, caption.text))[0]["score"]
            assert abs(table[row, column] - alone) < 1e-5
    ranks = retrieval_ranks(table, gallery.owners.tolist())
    found = rankings(gallery, table)
    assert [p["rank"] for p in found] == [*ranks.of_captions, *ranks.of_pictures]
    scored = TASK.score(found, RECORDS)
    assert {name: 100 * value for name, value in recalls(ranks).items()}.items() <= scored.items()
    assert predict_records(TASK, model, RECORDS) == found
    assert len(found[0]["first"]) == min(10, len(gallery.captions))
    assert not {"caption_id", "first_ids"} & {name for one in found for name in one}


def test_rankings_name_captions_as_their_data_did():
    records = [replace(RECORDS[0], caption_ids=("91",)), *RECORDS[1:]]
    gallery = RetrievalGallery.of(records)
    table = np.eye(len(gallery.keys), len(gallery.captions), dtype=np.float32) + 1
    found = rankings(gallery, table)
    assert found[0]["first_ids"][:2] == ["91", ""]
    assert [one.get("caption_id") for one in found if one["asks"] == "pictures"][:2] == ["91", None]


def toy_batch(one: Record, text: str):
    return collate(TASK.samples(replace(one, captions=(text,))))


def test_what_was_scored_stays_scored(tmp_path):
    """A job killed half way goes on: it asks the rest alone, and ends with the same table."""
    model, gallery = matcher(), RetrievalGallery.of(RECORDS)
    whole = open_table(gallery, None, "")
    TASK.fill(model, gallery, whole, everything(gallery))

    class Stopped(Exception):
        pass

    def stop(count: int) -> None:
        told.append(count)
        if sum(told) >= 8:
            raise Stopped

    told: list[int] = []
    with pytest.raises(Stopped):
        TASK.fill(model, gallery, open_table(gallery, tmp_path, "m"), everything(gallery), 4, stop)
    again = open_table(gallery, tmp_path, "m")
    left = missing_cells(again, everything(gallery))
    assert sum(map(len, left)) == whole.size - 8
    told = []
    TASK.fill(model, gallery, again, everything(gallery), 4, told.append)
    assert told[0] == 8
    assert sum(told) == whole.size
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), whole, atol=1e-5)


@pytest.mark.parametrize(("change", "wanted"), [
    ("model", "scores of another model"), ("captions", "another gallery"), ("images", "another set of images"),
])  # fmt: skip
def test_scores_of_another_model_or_gallery_are_refused(tmp_path, change, wanted):
    open_table(RetrievalGallery.of(RECORDS), tmp_path, "m")
    other = [replace(RECORDS[0], captions=("a tree", "red")), *RECORDS[1:]] if change == "captions" else RECORDS
    images = "other" if change == "images" else ""
    with pytest.raises(RecipeError, match=wanted):
        open_table(RetrievalGallery.of(other), tmp_path, "other" if change == "model" else "m", images)


def test_damaged_scores_are_named(tmp_path):
    open_table(RetrievalGallery.of(RECORDS), tmp_path, "m")
    (tmp_path / "scores.npy").write_bytes(b"no")
    with pytest.raises(DataError, match="are damaged"):
        open_table(RetrievalGallery.of(RECORDS), tmp_path, "m")


def test_scores_that_are_cut_short_are_not_filled_up(tmp_path):
    table = open_table(RetrievalGallery.of(RECORDS), tmp_path, "m")
    table[:] = 1.0
    table.flush()  # type: ignore[attr-defined]
    path = tmp_path / "scores.npy"
    path.write_bytes(path.read_bytes()[:-6])
    with pytest.raises(DataError, match="are damaged"):
        open_table(RetrievalGallery.of(RECORDS), tmp_path, "m")


def test_a_score_of_zero_counts_as_scored_and_nan_is_refused():
    gallery, rows = RetrievalGallery.of(RECORDS), np.array([0, 1])
    table = open_table(gallery, None, "")
    put(table, gallery, rows, rows, np.array([0.0, -3.0], dtype=np.float32))
    assert table[0, 0] > 0
    assert table[1, 1] == -3
    first = rf"1 of 2 scores are not finite.*image {gallery.keys[0]}, caption {gallery.captions[0].key}"
    with pytest.raises(DataError, match=first):
        put(table, gallery, rows, rows, np.array([np.nan, 1], dtype=np.float32))


def test_an_empty_gallery_is_refused():
    with pytest.raises(DataError, match="none of 2 images has captions"):
        RetrievalGallery.of([record(0), record(1, " ")])
    assert RetrievalGallery.of([record(0), RECORDS[1]]).keys == ("p1",)


def test_a_model_that_matches_nothing_is_refused():
    with pytest.raises(RecipeError, match=r"no head 'match' .*\(its heads: word\).*finetune retrieval"):
        predict_records(TASK, toy.model("word"), RECORDS)


def test_pictures_are_read_one_at_a_time():
    """A gallery larger than memory: no more than one picture is held, and each is read once."""
    read: list[int] = []

    def lazy(row):
        read.append(row)
        return RECORDS[row]

    gallery = RetrievalGallery.of([replace(one, regions=None) for one in RECORDS], lazy)
    table = open_table(gallery, None, "")
    TASK.fill(matcher(), gallery, table, everything(gallery), batch_size=4)
    assert read == list(range(6))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=12), st.data())
def test_rank_counts_what_comes_before(scores, data):
    right = np.array(data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores))))
    right[0] = True
    by_hand = min(sum(s >= own for s, r in zip(scores, right, strict=True) if not r)
                  for own, r in zip(scores, right, strict=True) if r)  # fmt: skip
    assert rank_of(scores, right) == by_hand


def test_rank_of_what_a_shortlist_left_out():
    assert rank_of([3.0, -np.inf, -np.inf], [False, True, False]) == 2
    with pytest.raises(DataError, match="no item in `right` is True"):
        rank_of([1.0], [False])
    with pytest.raises(DataError, match="NaN"):
        rank_of([np.nan], [True])
    with pytest.raises(DataError, match=r"expected \(items,\) for both"):
        rank_of([1.0, 2.0], [True])


def test_recall_by_chance_is_that_of_shuffles():
    rng = np.random.default_rng(0)
    first = [rng.permutation(20)[:5].min() for _ in range(20_000)]
    assert abs(np.mean([place < 3 for place in first]) - recall_by_chance(5, 20, 3)) < 0.01
    assert recall_by_chance(1, 10, 1) == pytest.approx(0.1)
    assert recall_by_chance(5, 20, 3) == pytest.approx(1 - comb(15, 3) / comb(20, 3))
    assert recall_by_chance(1, 5, 10) == 1


def test_scores_stand_beside_chance():
    gallery = RetrievalGallery.of(RECORDS)
    table = np.where(gallery.owners[None] == np.arange(6)[:, None], 1.0, -1.0).astype(np.float32)
    scores = recall_scores(gallery, rankings(gallery, table))
    assert scores["text retrieval R@1"].value == scores["image retrieval R@1"].value == 100
    assert scores["image retrieval R@1"].blind == pytest.approx(100 / 6)
    assert scores["text retrieval R@1"].blind == pytest.approx(100 * np.mean([1 / 9, 2 / 9]))
    assert (scores.pictures, scores.items) == (6, 15)
    with pytest.raises(DataError, match="no query for captions"):
        recall_scores(gallery, [])


def test_a_shortlist_finds_by_what_the_detector_saw():
    """Words follow from the classes of the regions here, so ten of sixty pictures hold nearly every right one."""
    made = []
    for number in range(120):
        regions = toy.regions(3, number)
        kinds = sorted(set(regions.classes.argmax(1).tolist()))
        made.append(Record(f"p{number}", captions=(" ".join(WORDS[kind] for kind in kinds),), regions=regions))
    shortlister = Shortlister.of(made[:60], TOKENS)
    gallery = RetrievalGallery.of(made[60:])
    of_pictures, of_captions = shortlister.choose(gallery, 30)
    assert {len(row) for row in of_pictures} == {len(row) for row in of_captions} == {30}
    hits = np.mean([caption.picture in row for caption, row in zip(gallery.captions, of_captions, strict=True)])
    assert hits > 0.9, "chance is 0.5"
    everyone = shortlister.choose(gallery, 500)[0][0]
    assert everyone.tolist() == list(range(60))
    with pytest.raises(DataError, match="leave out --shortlist"):
        Shortlister.of([], TOKENS)


def test_the_loss_of_a_shortlist_is_stated():
    found = [{"asks": "pictures", "rank": 3, "exact_rank": 0}, {"asks": "pictures", "rank": 0, "exact_rank": 0},
             {"asks": "pictures", "rank": 0}, {"asks": "captions", "rank": 0}]  # fmt: skip
    first, second = shortlist_notes(found, 10, 50, 200)
    assert "50 of 200 pairs scored (25.0%)" in first
    assert "on 2 queries that were also ranked exactly: R@1 50.0 instead of 100.0, R@5 100.0 instead of 100.0" in second
    assert "(R@1 -50.0)" in second


@pytest.mark.parametrize(
    ("equals", "text", "image", "blind"), [("content", 100, 100, 5 / 9), ("papers", 100 / 3, 200 / 3, 1 / 3)]
)
def test_equal_captions_are_equal_results(equals: str, text: float, image: float, blind: float) -> None:
    """A copy of the right caption is right by content and wrong in the papers; the note has the other count."""
    texts = ("a dog on the sand", "A dog on the sand.", "a red kite")
    gallery = RetrievalGallery.of([Record(f"p{at}", captions=(one,)) for at, one in enumerate(texts)], equals=equals)
    predictions = rankings(gallery, np.array([[9, 9, 1], [8, 8, 1], [1, 1, 9]], np.float32))
    scores = recall_scores(gallery, predictions)
    assert scores["text retrieval R@1"].value == pytest.approx(text)
    assert scores["image retrieval R@1"].value == pytest.approx(image)
    assert scores["text retrieval R@1"].blind == pytest.approx(100 * blind)
    (note,) = [one for one in scores.notes if one.startswith("1 of 3 captions are copies of an earlier one")]
    assert ("text retrieval R@1 33.3 instead of 100.0" if equals == "content" else "R@1 100.0 instead of 33.3") in note


def test_equal_images_are_equal_results() -> None:
    """By content the captions of a copy under another name are right too; in the papers they are wrong."""
    words = [replace(record(n, f"text {n}"), fingerprint=(n // 2, n)) for n in range(3)]
    gallery = RetrievalGallery.of(words)
    assert gallery.right_captions(0, "content").tolist() == [True, True, False]
    assert gallery.right_captions(0, "papers").tolist() == [True, False, False]
    assert gallery.right_pictures(1, "content").tolist() == [True, True, False]
    assert gallery.right_pictures(1, "papers").tolist() == [False, True, False]
    plain = RetrievalGallery.of([replace(one, fingerprint=None) for one in words])
    assert plain.right_captions(0, "content").tolist() == [True, False, False]


def test_validation_takes_few_images_with_a_caption_each() -> None:
    assert RETRIEVAL.training.validation is not None
    _, few = RETRIEVAL.training.validation(TASK, [record(n, *("a dog", "dog")[: n % 3]) for n in range(99)])
    assert [(one.key, len(one.captions)) for one in few[:2]] == [("p1", 1), ("p2", 1)]
    assert len(few) == 64
