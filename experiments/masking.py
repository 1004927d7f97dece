"""Compare masking 15% of the words, as in the papers, with a query for every word (decision 0005).

    uv run python -m experiments.masking DEMO_FOLDER OUT [STEPS]

Both arms have the same data, steps and seeds. Each pre-trains on the web split with its own objective, then fine-tunes
with it on the captions of 100 labelled scenes. The learning rate is that of the demo's pre-trained arm. The score is
CIDEr on val with greedy decoding. Writes experiments/results/masking.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from diptych.data.store.store import Store
from diptych_world.demo.comparison import Cell, train_cell
from diptych_world.demo.demo import PRETRAINED, RATES, DemoConfig, arm_settings, pretrain_in_ranks, pretraining_recipe
from experiments.figures import save

LABELS, SEEDS = 100, (100, 101)
WAYS = {"15% of the words masked, at most 3": "masked", "a query for every word": "queries"}


def main(demo: Path, out: Path, steps: int) -> None:
    store, config = Store(demo / "store"), DemoConfig(pretrain_steps=steps)
    figures: dict[str, Any] = {"pre-training steps": steps, "labelled scenes": LABELS}
    for name, words in WAYS.items():
        recipe = pretraining_recipe(config, seed=0).override([f"objectives.words={words}"])
        start = pretrain_in_ranks(recipe, store, out / f"pretrain-{words}")
        settings = (*arm_settings(config, LABELS), f"objectives.words={words}")
        rate = RATES["caption", PRETRAINED]
        found = []
        for seed in SEEDS:
            cell = Cell(
                "caption", words, LABELS, seed, rate, str(start), str(store.folder), str(out / "arms"), settings
            )
            result = train_cell(cell, store).result
            found.append((result.best_score or 0.0, result.best_step or 0))
        figures[name] = {
            "CIDEr on val, by seed": [round(score, 1) for score, _ in found],
            "steps until val stopped rising": [step for _, step in found],
        }
        print(name, figures[name], flush=True)
    save("masking", f"uv run python -m experiments.masking DEMO OUT {steps}", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path, help="a finished `diptych demo`")
    parser.add_argument("out", type=Path, help="folder for the runs; repeat the command to resume")
    parser.add_argument("steps", type=int, nargs="?", default=1000, help="steps of each pre-training (default: 1000)")
    given = parser.parse_args()
    main(given.demo, given.out, given.steps)
