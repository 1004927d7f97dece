"""Measure queries per second over a gallery of 30,000 encoded images with TDEN's two towers.

    uv run python -m benchmarks.two_towers [--threads 2] [--small]

A query is a sentence. It is tokenised and encoded by the sentence encoder (12 layers, width 768). Then the ten nearest
vectors (1,024 numbers each) are found by a product with all vectors, or by faiss's exact index. Queries are timed one
at a time, as a user sends them, and 64 at a time. The vectors are random, which does not change the time. Writes
benchmarks/results/two_towers.json, but not with --small, a quick test of this program.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from statistics import median
from typing import Any

import faiss
import torch
from torch.nn import functional as F

from benchmarks.machine import save_result
from benchmarks.steps import seconds
from diptych.data.store.tokens import Tokens
from diptych.systems.tden.model import Tden, TdenConfig, TdenResolvedConfig
from diptych.tasks.two_towers import TowerGallery, embed_sentences
from diptych_world.book import record
from diptych_world.layout import scene

PICTURES, TOGETHER = 30_000, 64


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--small", action="store_true", help="a tiny model, to test this program")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    sentences = [record(scene(0, "test", index)).captions[0] for index in range(TOGETHER)]
    tokens = Tokens.train(sentences, 2000)
    shape = TdenConfig.tiny() if given.small else TdenConfig.base()
    model = Tden(TdenResolvedConfig(**shape.model_dump(), vocabulary=tokens.vocabulary), ("similarity",)).eval()
    vectors = F.normalize(torch.randn(PICTURES, shape.similarity_width), dim=-1)
    gallery = TowerGallery(tuple(str(number) for number in range(PICTURES)), vectors)
    asked = embed_sentences(model, tokens, sentences)

    index = faiss.IndexFlatIP(shape.similarity_width)
    index.add(vectors.numpy())

    def by_faiss(queries: Any) -> Any:
        return index.search(queries.numpy(), 10)

    assert [[int(f.key) for f in row] for row in gallery.search(asked)] == by_faiss(asked)[1].tolist()
    ways: dict[str, Callable[[int], object]] = {
        "embedding a query": lambda n: embed_sentences(model, tokens, sentences[n : n + 1]),
        "a product with all, one query": lambda n: gallery.search(asked[n : n + 1]),
        "faiss, one query": lambda n: by_faiss(asked[n : n + 1]),
        f"embedding {TOGETHER}": lambda _: embed_sentences(model, tokens, sentences),
        f"a product with all, {TOGETHER}": lambda _: gallery.search(asked),
        f"faiss, {TOGETHER}": lambda _: by_faiss(asked),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for n in range(given.rounds):
        for name, way in ways.items():
            taken[name].append(seconds(lambda way=way, n=n: way(n % TOGETHER)))
    half = {name: median(all_) for name, all_ in taken.items()}
    rates = {}
    for way in ("a product with all", "faiss"):
        rates[f"{way}, one at a time"] = round(1 / (half["embedding a query"] + half[f"{way}, one query"]), 1)
        together = half[f"embedding {TOGETHER}"] + half[f"{way}, {TOGETHER}"]
        rates[f"{way}, {TOGETHER} at a time"] = round(TOGETHER / together, 1)
    figures = {
        "threads": given.threads,
        "pictures": PICTURES,
        "queries a second": rates,
        "milliseconds, median": {name: round(1000 * value, 2) for name, value in half.items()},
        "rounds": taken,
    }
    if given.small:
        print(json.dumps(figures | {"rounds": given.rounds}, indent=2))
    else:
        print(save_result("two_towers", "uv run python -m benchmarks.two_towers", figures).read_text())


if __name__ == "__main__":
    main()
