"""Search by vectors: what is found, what is kept, what is encoded how often."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from diptych.core import Record, collate
from diptych.data.store.tokens import Tokens
from diptych.runtime.errors import CheckpointError, DataError, RecipeError
from diptych.tasks.matching import Retrieval
from diptych.tasks.run import predict_records
from diptych.tasks.two_towers import (
    PICTURE,
    TowerGallery,
    TowerHit,
    TwoTowerRetrieval,
    choose,
    embed_sentences,
    score_vectors,
)
from tests.support import toy

WORDS = ["a dog", "two red boats", "a boat", "the dog", "a red dog"]


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens.train(WORDS)


def records() -> list[Record]:
    said = [("a dog", "the dog"), ("two red boats",), ("a boat", "a red dog")]
    return [Record(str(n), captions=words, regions=toy.regions(n + 1, n)) for n, words in enumerate(said)]


def model_for(tokens: Tokens) -> Any:
    return toy.tden("similarity", vocabulary_of=tokens.vocabulary)


def test_the_nearest_come_first() -> None:
    vectors = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), dim=1)
    gallery = TowerGallery(("east", "north", "between"), vectors)
    ((first, second),) = gallery.search(torch.tensor([[0.6, 0.8]]), 2)
    assert (first.key, second.key) == ("between", "north")
    assert first.score == pytest.approx(1.4 / 2**0.5)
    assert gallery.search(torch.tensor([[1.0, 0.0]]), 50)[0][0] == TowerHit("east", 1.0)


def test_pictures_are_encoded_once_and_a_query_costs_one_pass(tokens) -> None:
    model, seen = model_for(tokens), {"pictures": 0, "texts": 0}
    model.objects[0].register_forward_hook(lambda *_: seen.update(pictures=seen["pictures"] + 1))
    model.sentence[0].register_forward_hook(lambda *_: seen.update(texts=seen["texts"] + 1))
    gallery = TowerGallery.of_pictures(model, records())
    for words in WORDS[:3]:
        ((best, *_),) = gallery.search(embed_sentences(model, tokens, [words]), 3)
        assert -1.001 <= best.score <= 1.001
    assert seen == {"pictures": 1, "texts": 3}
    assert gallery.keys == ("0", "1", "2")


def test_ranks_are_the_same_where_the_model_runs_in_bf16(tokens) -> None:
    """Validation scores within the model's autocast."""
    task = TwoTowerRetrieval(tokens)
    answers = predict_records(task, model_for(tokens), records())
    plain = task.score(answers, records())
    with torch.autocast("cpu", torch.bfloat16):
        assert task.score(answers, records()) == plain


def test_a_gallery_is_kept(tokens, tmp_path: Path) -> None:
    gallery = TowerGallery.of_pictures(model_for(tokens), records())
    gallery.save(tmp_path / "gallery")
    again = TowerGallery.load(tmp_path / "gallery")
    assert again.keys == gallery.keys
    assert torch.equal(again.vectors, gallery.vectors)
    (tmp_path / "gallery" / "gallery.json").write_text('["one"]')
    with pytest.raises(CheckpointError, match=r"has 1 keys, expected one per vector of .*; encode the gallery again"):
        TowerGallery.load(tmp_path / "gallery")
    (tmp_path / "gallery" / "gallery.json").unlink()
    with pytest.raises(CheckpointError, match=r"cannot be read .*; encode the gallery again"):
        TowerGallery.load(tmp_path / "gallery")


def test_scores_are_those_of_the_whole_table(tokens) -> None:
    model, task = model_for(tokens), TwoTowerRetrieval(tokens)
    said = predict_records(task, model, records(), batch_size=3)
    assert len(said) == 3 + 5
    samples = [sample for record in records() for sample in task.samples(record)]
    vectors = {s.key: model.embed_texts(collate([replace(s, regions=None)]))[0] for s in samples}
    pictures = {r.key: model.embed_pictures(collate([task.queries(r)[0]]))[0] for r in records()}
    hits = 0
    for sample in samples:
        own = vectors[sample.key] @ pictures[sample.picture]
        hits += all(vectors[sample.key] @ v < own for key, v in pictures.items() if key != sample.picture)
    scores = task.score(said, records())
    assert scores["image retrieval R@1"] == pytest.approx(100 * hits / 5)
    assert scores["image retrieval R@5"] == 100.0
    told = score_vectors(said)
    assert told["image retrieval R@1"].value == pytest.approx(scores["image retrieval R@1"])
    assert told["image retrieval R@1"].blind == pytest.approx(100 / 3)
    # Captions of a picture: 2, 1 and 2 of 5; by luck one of its own comes first.
    assert told["text retrieval R@1"].blind == pytest.approx(100 * (2 / 5 + 1 / 5 + 2 / 5) / 3)
    assert told["text retrieval R@10"].blind == 100.0
    assert (told.pictures, told.items) == (3, 5)


def test_the_shortlist_is_the_best_of_the_table(tokens) -> None:
    model, texts = model_for(tokens), [text for record in records() for text in record.captions]
    table = TowerGallery.of_pictures(model, records()).vectors @ embed_sentences(model, tokens, texts).T
    of_pictures, of_captions = choose(model, tokens, records(), texts, 2)
    assert [set(row.tolist()) for row in of_pictures] == [set(row.topk(2)[1].tolist()) for row in table]
    assert [set(row.tolist()) for row in of_captions] == [set(row.topk(2)[1].tolist()) for row in table.T]


def test_captions_of_unknown_words_are_asked_and_not_trained_on(tokens) -> None:
    record = Record("x", captions=("a dog", "жжж", " "), regions=toy.regions(2))
    for task in (TwoTowerRetrieval(tokens), Retrieval(tokens)):
        assert [sample.key for sample in task.samples(record)] == ["x#0"]
        assert task.unknown == {"x#1": "жжж"}
    assert [sample.key for sample in TwoTowerRetrieval(tokens).queries(record)] == ["picture", "x#0", "x#1"]


def test_what_cannot_be_searched_is_refused(tokens) -> None:
    with pytest.raises(RecipeError, match=r"UnifiedVLP cannot encode .* separately; search with a two-tower model"):
        TowerGallery.of_pictures(toy.model(), records())
    with pytest.raises(DataError, match="no regions to encode; extract them first"):
        TowerGallery.of_pictures(model_for(tokens), [Record("bare")])
    with pytest.raises(DataError, match="the gallery is empty"):
        TowerGallery((), torch.zeros(0, 4)).search(torch.zeros(1, 4))
    with pytest.raises(DataError, match="no record has captions to search with"):
        TwoTowerRetrieval(tokens).score([], [])


def test_vectors_of_equal_captions_are_equal_results() -> None:
    texts = ("a dog on the sand", "a dog on the sand", "a red kite")
    records = [Record(f"p{at}", captions=(one,)) for at, one in enumerate(texts)]
    vectors = ([1.0, 0.0], [1.0, 0.0], [0.0, 1.0])
    predictions = [
        {"key": key, "picture": f"p{at}", "vector": vector}
        for at, vector in enumerate(vectors)
        for key in ("picture", f"p{at}#0")
    ]
    scores, papers = score_vectors(predictions, records), score_vectors(predictions)
    assert [scores[f"{way} retrieval R@1"].value for way in ("text", "image")] == [100, 100]
    assert [papers[f"{way} retrieval R@1"].value for way in ("text", "image")] == pytest.approx([100 / 3, 100 / 3])
    assert any("text retrieval R@1 33.3 instead of 100.0" in note for note in scores.notes)


def test_vectors_of_equal_images_are_equal_results() -> None:
    """The second image is the first under another name: by content either finds the captions of both."""
    records = [Record(str(n), captions=(text,), fingerprint=(n // 2, n)) for n, text in enumerate(("a", "b", "c"))]
    vectors = [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]
    predictions: list[dict[str, Any]] = []
    for record, image, text in zip(records, vectors, (vectors[1], vectors[0], vectors[2]), strict=True):
        predictions.append({"key": PICTURE, "picture": record.key, "vector": image})
        predictions.append({"key": f"{record.key}#0", "picture": record.key, "vector": text})
    scores = score_vectors(predictions, records)
    assert scores["text retrieval R@1"].value == 100
    assert scores["image retrieval R@1"].value == 100
    assert scores["image retrieval R@1"].blind == pytest.approx(100 * 5 / 9)
    (note,) = [one for one in scores.notes if "images are copies of an earlier one" in one]
    assert note.startswith("0 of 3 captions and 1 of 3 images are copies of an earlier one")
    apart = score_vectors(predictions, [replace(record, fingerprint=None) for record in records])
    assert apart["text retrieval R@1"].value < 100
