"""Retrieval by vectors. Images and texts are encoded separately, so each image of a gallery is encoded only once.

The model must implement `TwoTowers`, as TDEN does. The best results can also be rescored by a model that reads image
and text together (`choose`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from diptych.core import Batch, Record, Sample, collate
from diptych.data.store.tokens import Tokens
from diptych.metrics.retrieval import RECALLS, RetrievalRanks, recalls, retrieval_ranks, same_images, same_texts
from diptych.runtime.devices import predicting
from diptych.runtime.errors import CheckpointError, DataError, RecipeError, explained
from diptych.runtime.files import parse_json, text_of, write_atomically
from diptych.runtime.weight_files import read_weights, write_weights
from diptych.tasks.matching import FIRST, CaptionTask
from diptych.tasks.recall import equal_notes, rank_row, recalls_of
from diptych.tasks.run import encode, predict_records
from diptych.tasks.scores import Scores, present
from diptych.tasks.shortlist import shortlist

VECTORS, KEYS = "gallery.safetensors", "gallery.json"
SENTENCES = 256  # number of texts that are embedded, or for which images are ranked, together
PICTURE = "picture"  # value of "key" in predictions of image vectors


@runtime_checkable
class TwoTowers(Protocol):
    """A model that embeds images and texts separately as unit vectors.

    The dot product of two vectors is their match score.
    """

    def embed_pictures(self, batch: Batch) -> Tensor: ...  # returns vectors (B, S)

    def embed_texts(self, batch: Batch) -> Tensor: ...  # returns vectors (B, S)


@dataclass(frozen=True)
class TowerHit:
    """A search result: the key of an image or text, and its cosine similarity to the query."""

    key: str
    score: float  # cosine similarity, from -1 to 1


@dataclass(frozen=True)
class TowerGallery:
    """The vectors of a gallery: of images, which are searched by text, or of texts, which are searched by image."""

    keys: tuple[str, ...]
    vectors: Float[Tensor, "N S"]

    @classmethod
    def of_pictures(
        cls, model: Any, records: Iterable[Record], progress: Callable[[int], object] | None = None
    ) -> TowerGallery:
        """Encode each record's regions. `progress` is called after each batch with its number of images."""
        predicted = predict_records(_Pictures(progress), towers_of(model), records)
        return cls(tuple(each["key"] for each in predicted), torch.tensor([each["vector"] for each in predicted]))

    def search(self, queries: Float[Tensor, "Q S"], count: int = 10) -> list[list[TowerHit]]:
        """Return the `count` nearest entries for each query vector, nearest first.

        Raises DataError for an empty gallery.
        """
        if not self.keys:
            raise DataError("the gallery is empty, so it cannot be searched; pass images that can be read")
        count = min(count, len(self.keys))
        scores, numbers = (queries.cpu().float() @ self.vectors.T).topk(count, -1)
        rows = zip(scores.tolist(), numbers.tolist(), strict=True)
        return [[TowerHit(self.keys[n], s) for s, n in zip(*row, strict=True)] for row in rows]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_weights({"vectors": self.vectors.contiguous()}, folder / VECTORS)
        write_atomically(folder / KEYS, json.dumps(self.keys, ensure_ascii=False).encode())

    @classmethod
    def load(cls, folder: Path) -> TowerGallery:
        vectors = read_weights(folder / VECTORS).get("vectors")
        with explained(CheckpointError, f"{folder / KEYS} cannot be read", "encode the gallery again"):
            keys = tuple(parse_json(text_of(folder / KEYS)))
        if vectors is None or len(vectors) != len(keys):
            raise CheckpointError(
                f"{folder / KEYS} has {len(keys)} keys, expected one per vector of {VECTORS}; encode the gallery again"
            )
        return cls(keys, vectors)


def embed_sentences(model: Any, tokens: Tokens, sentences: Sequence[str], max_words: int = 30) -> Float[Tensor, "Q S"]:
    """Embed texts as unit vectors. Each text is cut at `max_words` tokens."""
    samples = [Sample("", "", None, encode(tokens, text, max_words)) for text in sentences]
    batch = collate(samples).to(next(model.parameters()).device)
    with predicting(model, len(samples)):
        vectors: Tensor = towers_of(model).embed_texts(batch).float().cpu()
    return vectors


def choose(
    model: Any, tokens: Tokens, records: Iterable[Record], captions: Sequence[str], most: int, max_words: int = 30
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Return the best captions for each image and the best images for each caption, at most `most` each, not sorted."""
    pictures = TowerGallery.of_pictures(model, records).vectors.double().numpy()
    parts = (captions[at : at + SENTENCES] for at in range(0, len(captions), SENTENCES))
    texts = torch.cat([embed_sentences(model, tokens, part, max_words) for part in parts]).double().numpy()
    return shortlist(pictures, texts, most)


def towers_of(model: Any) -> Any:
    """Return `model` if it has two towers. Raises RecipeError otherwise."""
    if not isinstance(model, TwoTowers):
        raise RecipeError(
            f"{type(model).__name__} cannot encode images and texts separately; search with a two-tower model"
        )
    return model


@dataclass(frozen=True)
class TwoTowerRetrieval(CaptionTask):
    """Retrieval by vectors in both directions, such as TDEN's caption-based image retrieval."""

    max_words: int = 30

    def queries(self, record: Record) -> list[Sample]:
        """Return one sample for the image without text, then one for each caption without the image."""
        return [
            Sample(PICTURE, record.key, record.regions, torch.zeros(0, dtype=torch.long)),
            *(Sample(s.key, record.key, None, s.text) for s in self.pairs(record) if len(s.text) > 1),
        ]

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        """Return the vector of each sample, which is an image or a caption."""
        towers, pictures = towers_of(model), [key == PICTURE for key in batch.keys]
        of_pictures = towers.embed_pictures(batch).tolist() if any(pictures) else batch.keys
        of_texts = towers.embed_texts(batch).tolist() if not all(pictures) else batch.keys
        rows = zip(batch.keys, batch.pictures, pictures, of_pictures, of_texts, strict=True)
        return [
            {"key": key, "picture": picture, "vector": image if is_picture else text}
            for key, picture, is_picture, image, text in rows
        ]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Return R@1, R@5 and R@10 (times 100) of image and text retrieval. Images without captions are left out."""
        ranks, *_ = _ranks(predictions, records)
        return {name: 100 * value for name, value in recalls(ranks).items()}


def score_vectors(predictions: Sequence[Mapping[str, Any]], records: Sequence[Record] = ()) -> Scores:
    """Compute R@1, R@5 and R@10 of image and text retrieval, with 95% intervals. The baseline is a random order."""
    ranks, papers, owners, texts, contents, queries = _ranks(predictions, records)
    same, images, pictures = same_texts(texts), same_images(contents), len(contents)
    pairs = {(image, text) for image, text in zip(images[owners].tolist(), same.tolist(), strict=True)}
    copies, alike, shown = Counter(same.tolist()), Counter(images.tolist()), Counter[int]()
    for image, text in pairs:
        shown[text] += alike[image]
    right = [sum(copies[text] for image, text in pairs if image == own) for own in images.tolist()]
    scores = [
        *recalls_of("captions", ranks.of_captions, [*map(str, range(pictures))], right, len(owners)),
        *recalls_of(
            "pictures", ranks.of_pictures, [*map(str, owners)], [shown[text] for text in same.tolist()], pictures
        ),
    ]
    both = zip(RECALLS.values(), vars(ranks).values(), vars(papers).values(), strict=True)
    notes = (
        "intervals: 95%, 1,000 bootstrap resamples of images, each with all its captions",
        f"searched: {pictures} images by {len(owners)} captions, and the reverse; blind: random order",
        *equal_notes(same, images, "content", [*both]),
    )
    ranked = zip(queries, texts, ranks.of_pictures.tolist(), strict=True)
    rows = tuple(rank_row(key, picture, text, rank, hits) for (key, picture, hits), text, rank in ranked)
    return Scores("retrieval", tuple(scores), pictures, len(owners), notes=notes, rows=rows)


def _ranks(
    predictions: Sequence[Mapping[str, Any]], records: Sequence[Record]
) -> tuple[RetrievalRanks, RetrievalRanks, list[int], list[str], list[Hashable], list[tuple[str, str, list[str]]]]:
    """Return the ranks of all queries, and what they were computed from.

    The items are: ranks if copies are right, ranks if they are wrong, image of each caption, captions, image contents,
    and (key, key of its image, keys of the first images) of each caption.

    Raises DataError if there are no captions.
    """
    texts = present([each for each in predictions if each["key"] != PICTURE], "captions to search with")
    captioned = {each["picture"] for each in texts}
    pictures = [each for each in predictions if each["key"] == PICTURE and each["picture"] in captioned]
    keys = [each["picture"] for each in pictures]
    place = {key: number for number, key in enumerate(keys)}
    owners = [place[each["picture"]] for each in texts]
    # In NumPy, because validation runs under autocast, in which torch would multiply in bf16.
    table = np.array([p["vector"] for p in pictures]) @ np.array([t["vector"] for t in texts]).T
    words = {f"{one.key}#{number}": text for one in records for number, text in enumerate(one.captions)}
    captions = [words.get(each["key"], each["key"]) for each in texts]
    known = {one.key: one.content for one in records}
    contents: list[Hashable] = [known.get(key, key) for key in keys]
    both = retrieval_ranks(table, owners, captions, contents), retrieval_ranks(table, owners)
    parts = np.split(table, range(SENTENCES, len(texts), SENTENCES), axis=1)
    ranked = (column for part in parts for column in np.argsort(-part, 0, kind="stable")[:FIRST].T.tolist())
    first = [[keys[at] for at in column] for column in ranked]
    queries = [(one["key"], one["picture"], hits) for one, hits in zip(texts, first, strict=True)]
    return *both, owners, captions, contents, queries


@dataclass(frozen=True)
class _Pictures:
    """A task that only encodes images."""

    progress: Callable[[int], object] | None = None

    name = "gallery"

    def samples(self, record: Record) -> list[Sample]:
        return []

    def queries(self, record: Record) -> list[Sample]:
        if record.regions is None:
            raise DataError("the record has no regions to encode; extract them first", key=record.key)
        return [Sample(record.key, record.key, record.regions, torch.zeros(0, dtype=torch.long))]

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        vectors = model.embed_pictures(batch).tolist()
        if self.progress is not None:
            self.progress(len(vectors))
        return [{"key": key, "vector": vector} for key, vector in zip(batch.keys, vectors, strict=True)]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        return {}
