"""Captions as data (XGPT 6.1): retrieval taught by few captions, with and without those that a model wrote to them.

    uv run python -m benchmarks.augmented_retrieval --model demo/pretrain --data demo/store --out runs/out/more

Stopped at any moment, the same command goes on. --model is a captioner, or a pre-trained model, which is then taught by
the few captions alone. --retriever is a pre-trained model to teach retrieval; without it, image-bert/small/retrieval
learns from scratch.
"""

import argparse
import json
import os

from benchmarks.machine import save_result
from diptych.recipes.captions_as_data import CaptionStudy, caption_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="who writes")
    parser.add_argument("--data", required=True, help="a store with splits train, val and test")
    parser.add_argument("--out", required=True)
    parser.add_argument("--retriever", default=None, help="who learns to search; default: image-bert from scratch")
    for name in ("pictures", "said", "written", "gallery", "seeds", "taught-steps", "steps"):
        parser.add_argument(f"--{name}", type=int, default=getattr(CaptionStudy, name.replace("-", "_")))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results/augmented_retrieval.json")
    given = parser.parse_args()
    numbers = {name: getattr(given, name) for name in ("pictures", "said", "written", "gallery", "seeds", "steps")}
    plan = CaptionStudy(
        model=given.model, store=given.data, out=given.out, retriever=given.retriever, taught_steps=given.taught_steps,
        settings=(*CaptionStudy.settings, *given.set), **numbers,
    )  # fmt: skip
    told = caption_study(plan, os.cpu_count() or 1, lambda row: print(json.dumps(row), flush=True))
    figures = {"asked": numbers | {"retriever": given.retriever or "image-bert from scratch"}} | told
    command = "uv run python -m benchmarks.augmented_retrieval --model CAPTIONER --data STORE --out OUT --keep"
    print(save_result("augmented_retrieval", command, figures) if given.keep else json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
