"""Measure captions per second of our CIDEr and of pycocoevalcap, in one process on the same captions.

    uv run python -m benchmarks.cider

There are two jobs. "evaluation": all references and predictions are new, as at the end of a run. "reward": the
references and the document frequencies of the corpus are cached, as in SCST. pycocoevalcap cannot cache them, so it
does the work of "evaluation" in both jobs. The two run in turn, and the ratio is that of their medians.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable

import numpy as np
from pycocoevalcap.cider.cider import Cider

from benchmarks.machine import save_result
from diptych.metrics.cider import CiderD, DocumentFrequencies, cider_scores

WORDS = 800  # sampled by Zipf's law, so that n-grams repeat about as often as in captions
REFERENCES = 5


def made_up(pictures: int, seed: int) -> tuple[dict[str, list[str]], dict[str, list[list[str]]]]:
    draw = random.Random(seed)
    weights = [1 / rank for rank in range(1, WORDS + 1)]

    def caption() -> list[str]:
        return [f"w{word}" for word in draw.choices(range(WORDS), weights, k=draw.randint(8, 14))]

    references = {str(key): [caption() for _ in range(REFERENCES)] for key in range(pictures)}
    # A prediction repeats half of a reference: without common n-grams, scoring would be unrealistically fast.
    predictions = {key: captions[0][:5] + caption()[5:] for key, captions in references.items()}
    return predictions, references


def seconds(job: Callable[[], object], rounds: list[float]) -> None:
    start = time.perf_counter()
    job()
    rounds.append(time.perf_counter() - start)


def measure(pictures: int, rounds: int) -> dict[str, object]:
    predictions, references = made_up(pictures, seed=0)
    results = {key: [" ".join(caption)] for key, caption in predictions.items()}
    truths = {key: [" ".join(caption) for caption in captions] for key, captions in references.items()}
    scorer = CiderD(DocumentFrequencies.of(references.values()), references)
    theirs = Cider().compute_score(truths, results)[1]
    ours = scorer.scores(predictions.keys(), predictions.values())  # fills the cache

    times: dict[str, list[float]] = {"pycocoevalcap": [], "evaluation": [], "reward": []}
    for _ in range(rounds):
        seconds(lambda: Cider().compute_score(truths, results), times["pycocoevalcap"])
        seconds(lambda: cider_scores(predictions, references), times["evaluation"])
        seconds(lambda: scorer.scores(predictions.keys(), predictions.values()), times["reward"])
    rates = {name: pictures / statistics.median(values) for name, values in times.items()}
    return {
        "pictures": pictures,
        "references": REFERENCES,
        "rounds": rounds,
        "largest_difference": float(np.abs(theirs - ours).max()),
        "captions_per_second": {name: round(rate) for name, rate in rates.items()},
        "ratio": {name: round(rates[name] / rates["pycocoevalcap"], 2) for name in ("evaluation", "reward")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    figures = measure(options.pictures, options.rounds)
    save_result("cider", "uv run python -m benchmarks.cider", figures)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
