"""Captions as data (XGPT, section 6.1): train retrieval on few captions, with and without captions that a model
generates.

    uv run python -m experiments.captions_as_data --model demo/pretrain --data demo/store --out runs/out/more --keep

Some images of the training split are kept, with a few captions each. A captioner generates more captions for them
(`augment`). One retriever is trained on each of the two sets, with the same steps, initial weights and seeds. Both
search the same images of the test split.

`--model` is a captioner or a pre-trained model. A captioner trained on the captions that were left out would leak them
into the study. So prefer a pre-trained model: the study fine-tunes it on the few captions alone. `--retriever` is a
pre-trained model to fine-tune for retrieval. Without it, image-bert/small/retrieval trains from random weights. If the
command is stopped, repeat it to resume.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import torch
from rich.console import Console

from diptych.core.folders import INNER
from diptych.data.store.store import INDEX, Store, StoreWriter
from diptych.data.store.tokens import FILE as TOKENS
from diptych.metrics.bootstrap import bootstrap_interval, paired_interval, rows_by_picture
from diptych.metrics.retrieval import RECALLS
from diptych.models.decoding import DecodingOptions
from diptych.models.decoding.chosen import chosen_decoding
from diptych.runs.distributed import workers
from diptych.runs.evaluation.augment import SPARE, augment
from diptych.runs.evaluation.retrieve import retrieve
from diptych.runs.folder import CONFIG, open_model
from diptych.runs.predict import in_split
from diptych.runs.run import run
from diptych.runs.start import fit_to
from diptych.runtime.errors import DataError, RecipeError
from diptych.runtime.files import write_atomically
from diptych.systems import find_recipe
from diptych.tasks.matching import AT
from experiments.claiming import claim
from experiments.figures import of_interval, save

PLAIN, MORE = "people's captions alone", "people's and written captions"
ARMS = (PLAIN, MORE)
ROW, FEW, AUGMENTED, CAPTIONER = "row.json", "few", "augmented", "captioner"
TALLIED = {
    "pictures": "pictures", "wanted": "captions wanted", "kept": "new captions", "said_before": "left out, had before",
    "repeated": "left out, repeated", "without_words": "left out, without words",
    "going_round": "left out, three words twice", "without_regions": "pictures without a region",
    "fewer": "pictures with fewer than wanted",
}  # fmt: skip


@dataclass(frozen=True)
class CaptionStudy:
    """The settings of the study, as plain values that can be sent to other processes."""

    model: str  # a captioner, or a pre-trained model to fine-tune as one
    store: str
    out: str
    retriever: str | None = None  # a pre-trained model to fine-tune for retrieval; None: image-bert from scratch
    pictures: int = 300  # number of training images
    captions: int = 1  # kept per image
    written: int = 4  # captions to generate per image
    gallery: int = 200  # number of test images to search, with all their captions
    held_out: int = 64  # number of images of val, which selects the best weights
    seeds: int = 3
    taught_steps: int = 400  # steps to train a captioner, if `model` does not caption
    steps: int = 1000
    settings: tuple[str, ...] = ("training.threads=1", "training.validate_every=200", "training.checkpoint_every=200")
    taught_settings: tuple[str, ...] = ("optimizer.kind=adamw", "optimizer.lr=5e-4")

    def store_of(self, arm: str) -> Path:
        return Path(self.out) / (FEW if arm == PLAIN else AUGMENTED)

    def folder(self, arm: str, seed: int) -> Path:
        return Path(self.out) / f"{'plain' if arm == PLAIN else 'more'}-{seed}"


def caption_study(plan: CaptionStudy, processes: int, done: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Run the parts of the study that have no result in `plan.out` yet, and return the figures. `done` is called with
    the scores of each new retriever. If the call is interrupted, repeat it to resume."""
    claim(plan, plan.out)
    keep_few(plan)
    told = write_more(plan)
    cells = [(arm, seed) for seed in range(plan.seeds) for arm in ARMS]
    waiting = [cell for cell in cells if not (plan.folder(*cell) / ROW).exists()]
    with workers(max(1, min(processes, len(waiting)))) as pool:
        for finished in as_completed([pool.submit(teach_retriever, plan, *cell) for cell in waiting]):
            done({name: value for name, value in finished.result().items() if name != "found"})
    rows = {cell: json.loads((plan.folder(*cell) / ROW).read_text("utf-8")) for cell in cells}
    return {"written": told} | figures(rows, plan.seeds)


def keep_few(plan: CaptionStudy) -> None:
    """Write the store that both arms share. Training images have few captions; the first images of val and test have
    all."""
    store, out = Store(Path(plan.store)), plan.store_of(PLAIN)
    if (out / INDEX).exists():
        return
    there = in_split(store, "train", "--data")
    if len(there) < plan.pictures:
        raise DataError(f"{store.folder} has {len(there)} training images, expected {plan.pictures} (--pictures)")
    chosen = sorted(Random(f"{plan.pictures}/few").sample(there, plan.pictures))
    kept = [*chosen, *store.split("val")[: plan.held_out], *in_split(store, "test", "--data")[: plan.gallery]]
    with StoreWriter(out, store.contract, len(kept)) as writer:  # one shard: written completely or not at all
        for index in kept:
            record = store.record(index)
            writer.add(
                replace(record, captions=record.captions[: plan.captions]) if record.split == "train" else record
            )


def teach_captioner(plan: CaptionStudy) -> Path:
    """Return the folder of the captioner: `plan.model` if it captions, else a model fine-tuned from it on the few
    captions."""
    given = open_model(Path(plan.model))
    if not getattr(given.model, "provides", frozenset()) >= {"decode"}:
        raise RecipeError(f"{given.architecture.system} cannot generate captions; pass another --model")
    out = Path(plan.out) / CAPTIONER
    if given.recipe is not None and given.recipe.task == "caption":
        return given.folder
    if not (out / INNER / CONFIG).is_file():
        recipe = fit_to(find_recipe(f"{given.architecture.system}/small/caption"), given)
        settings = [*plan.settings, *plan.taught_settings, f"training.steps={plan.taught_steps}"]
        run(recipe.override(settings), Store(plan.store_of(PLAIN)), out, given, Console(quiet=True))
    return out / INNER


def write_more(plan: CaptionStudy) -> dict[str, Any]:
    """Generate captions with the captioner. Return its system, and the numbers of captions kept and left out."""
    captioner = open_model(teach_captioner(plan))
    usual = captioner.recipe.decoding if captioner.recipe is not None else DecodingOptions()
    decoding = chosen_decoding(usual, SPARE * plan.written, True, top_p=0.9)
    few = Store(plan.store_of(PLAIN))
    tally = augment(captioner, few, plan.store_of(MORE), plan.written, decoding, "train", seed=0)
    taught = (Path(plan.out) / CAPTIONER).is_dir()
    own = {"captions per picture of its training": plan.captions} if taught else {}
    counts = {TALLIED[name]: count for name, count in asdict(tally).items()}
    return {"captioner": captioner.architecture.system} | own | counts


def teach_retriever(plan: CaptionStudy, arm: str, seed: int) -> dict[str, Any]:
    """Train and score the retriever of one arm with one seed; return its row of results. Called in a process of its
    own."""
    torch.set_num_threads(1)
    store, out = Store(plan.store_of(arm)), plan.folder(arm, seed)
    start = open_model(Path(plan.retriever)) if plan.retriever is not None else None
    system = start.architecture.system if start is not None else "image-bert"
    recipe = find_recipe(f"{system}/small/retrieval")
    own = [*plan.settings, f"training.steps={plan.steps}", f"training.seed={seed}"]
    if start is not None:
        recipe = fit_to(recipe, start)
    else:  # both arms have the captioner's vocabulary
        own.append(f"data.vocabulary={teach_captioner(plan) / TOKENS}")
    quiet = Console(quiet=True)
    made = run(recipe.override(own), store, out, start, quiet)
    found, scores = retrieve(made.model, Store(plan.store_of(PLAIN)), "test", folder=out / "pairs", console=quiet)
    row: dict[str, Any] = {"arm": arm, "seed": seed, "best step": made.result.best_step}
    row |= {score.name: score.value for score in scores.scores}
    row["found"] = [[p["asks"], p["picture"], p["rank"]] for p in found]
    write_atomically(out / ROW, json.dumps(row).encode())
    return row


def figures(rows: Mapping[tuple[str, int], Mapping[str, Any]], seeds: int) -> dict[str, Any]:
    """Return each recall of each arm over all seeds, and the gain of generated captions, with 95% bootstrap intervals.
    An image is resampled together with its queries."""
    told: dict[str, Any] = {arm: {} for arm in ARMS}
    told["gain of written captions"] = {}
    for asks, of in RECALLS.items():
        for at in AT:
            name, hits = f"{of} R@{at}", {arm: _hits(rows, arm, seeds, asks, at) for arm in ARMS}
            for arm, each in hits.items():
                told[arm][name] = of_interval(bootstrap_interval(each))
            told["gain of written captions"][name] = of_interval(paired_interval(hits[MORE], hits[PLAIN]))
    return told | {"rounds": [{k: v for k, v in row.items() if k != "found"} for row in rows.values()]}


def _hits(rows: Mapping[tuple[str, int], Mapping[str, Any]], arm: str, seeds: int, asks: str, at: int) -> Any:
    found = [each for seed in range(seeds) for each in rows[arm, seed]["found"] if each[0] == asks]
    return rows_by_picture([100.0 * (rank < at) for _, _, rank in found], [picture for _, picture, _ in found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the captioner, or a pre-trained model")
    parser.add_argument("--data", required=True, help="a store with splits train, val and test")
    parser.add_argument("--out", required=True)
    parser.add_argument("--retriever", default=None, help="pre-trained model (default: image-bert from scratch)")
    for name in ("pictures", "captions", "written", "gallery", "seeds", "taught-steps", "steps"):
        parser.add_argument(f"--{name}", type=int, default=getattr(CaptionStudy, name.replace("-", "_")))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run")
    parser.add_argument("--keep", action="store_true", help="write experiments/results/captions_as_data.json")
    given = parser.parse_args()
    numbers = {name: getattr(given, name) for name in ("pictures", "captions", "written", "gallery", "seeds", "steps")}
    plan = CaptionStudy(
        model=given.model, store=given.data, out=given.out, retriever=given.retriever, taught_steps=given.taught_steps,
        settings=(*CaptionStudy.settings, *given.set), **numbers,
    )  # fmt: skip
    told = caption_study(plan, os.cpu_count() or 1, lambda row: print(json.dumps(row), flush=True))
    figures = {"asked": numbers | {"retriever": given.retriever or "image-bert from scratch"}} | told
    command = "uv run python -m experiments.captions_as_data --model CAPTIONER --data STORE --out OUT --keep"
    print(save("captions_as_data", command, figures) if given.keep else json.dumps(figures, indent=1))


if __name__ == "__main__":  # imported by name: other processes cannot import __main__
    import_module("experiments.captions_as_data").main()
