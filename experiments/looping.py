"""Compare ways to prevent captions that repeat themselves ("a red shirt and a black shirt"), in training and in
decoding.

    uv run python -m experiments.looping --data world-store --out runs/out/looping --keep

Captioners are trained from scratch on drawn scenes made as hard as photographs (`experiments.hard_world`). One uses the
recipe unified-vlp/photos/caption unchanged; each of the others has one change. All caption the test images with several
decoding settings. The reference captions are measured in the same way. If the command is stopped, repeat it to resume.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from rich.console import Console

from benchmarks.machine import of_score
from diptych.data.store.store import Store
from diptych.data.store.tokens import Tokens
from diptych.metrics.tokenise import tokens_of
from diptych.runs.distributed import workers
from diptych.runs.predict import predict
from diptych.runs.run import run
from diptych.runtime.configs import derive
from diptych.runtime.files import write_atomically
from diptych.systems import find_recipe
from diptych.tasks.caption import score_captions
from diptych_world.kinds import names_of_kinds
from experiments.figures import save
from experiments.hallucination import mentions, repeated_ngrams
from experiments.hard_world import STORE, HardWorld, goes_round

RECIPE, WORDS, ROW = "unified-vlp/photos/caption", "tokens", "row.json"
SAID_BY_PEOPLE = "what it learns from"
AS_IT_IS = "the recipe"
SMALL = 200  # number of tokens in the small vocabulary
ARMS: Mapping[str, tuple[str, ...]] = {
    AS_IT_IS: (),
    "no dropout": ("model.dropout=0", "model.attention_dropout=0"),
    "dropout of 0.3": ("model.dropout=0.3", "model.attention_dropout=0.3"),
    "label smoothing of 0.1": ("objectives.label_smoothing=0.1",),
    f"a vocabulary of {SMALL}": (),
}
SEARCHES: Mapping[str, Mapping[str, Any]] = {
    "greedy": {"beams": 1, "no_repeat_ngram": None},
    "greedy, no 2 words twice": {"beams": 1, "no_repeat_ngram": 2},
    "greedy, no 3 words twice": {"beams": 1, "no_repeat_ngram": 3},
    "greedy, no 4 words twice": {"beams": 1, "no_repeat_ngram": 4},
    "3 beams": {"beams": 3, "no_repeat_ngram": None},
    "3 beams, no 2 words twice": {"beams": 3, "no_repeat_ngram": 2},
    "3 beams, no 3 words twice": {"beams": 3, "no_repeat_ngram": 3},
    "3 beams, length penalty 1": {"beams": 3, "no_repeat_ngram": None, "length_penalty": 1.0},
    "3 beams, length penalty 1, no 3 words twice": {"beams": 3, "no_repeat_ngram": 3, "length_penalty": 1.0},
}
OF_EVERY_ARM = ("greedy", "3 beams", "3 beams, no 3 words twice")


@dataclass(frozen=True)
class LoopStudy(HardWorld):
    """The settings of the study: its data, the length of training, and the arms."""

    steps: int = 300
    batch: int = 32
    settings: tuple[str, ...] = ("training.threads=1", "training.validate_every=null", "training.patience=null")
    arms: tuple[str, ...] = tuple(ARMS)

    def of_arm(self, arm: str) -> list[str]:
        own = [*self.settings, *ARMS[arm], f"training.steps={self.steps}", f"training.batch={self.batch}"]
        own += [f"training.seed={self.seed}", f"training.checkpoint_every={self.steps}"]
        if arm == f"a vocabulary of {SMALL}":
            own.append(f"data.vocabulary={Path(self.out) / WORDS}")
        return own

    def folder(self, arm: str) -> Path:
        return Path(self.out) / arm.replace(" ", "-")


def loop_study(plan: LoopStudy, processes: int, done: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Train the arms that have no result in `plan.out` yet, and return the figures of all. `done` is called with the
    results of each new arm. If the call is interrupted, repeat it to resume."""
    kept = prepared(plan)
    waiting = [arm for arm in plan.arms if not (plan.folder(arm) / ROW).exists()]
    with workers(max(1, min(processes, len(waiting)))) as pool:
        for finished in as_completed([pool.submit(teach, plan, arm) for arm in waiting]):
            done(finished.result())
    rows = {arm: json.loads((plan.folder(arm) / ROW).read_text("utf-8")) for arm in plan.arms}
    said = {(words := kept.words(index)).key: words.captions[0] for index in kept.split("test")}
    return {SAID_BY_PEOPLE: {"as written": habits(said)}} | rows  # no scores: the references have the same sentences


def prepared(plan: LoopStudy) -> Store:
    """Return the training data, and write the small vocabulary next to it."""
    store, words = plan.made(), Path(plan.out) / WORDS
    words.mkdir(exist_ok=True)
    Tokens.train([said for index in store.split("train") for said in store.words(index).captions], SMALL).save(words)
    return store


def teach(plan: LoopStudy, arm: str) -> dict[str, Any]:
    """Train the captioner of one arm and measure its captions with each decoding setting. Called in a process of its
    own."""
    torch.set_num_threads(1)
    store, out = Store(Path(plan.out) / STORE), plan.folder(arm)
    made = run(find_recipe(RECIPE).override(plan.of_arm(arm)), store, out, console=Console(quiet=True))
    assert made.model.recipe is not None
    usual = made.model.recipe.decoding
    row: dict[str, Any] = {}
    for name in SEARCHES if arm == AS_IT_IS else OF_EVERY_ARM:
        predictions, records, _, _ = predict(made.model, store, "test", decoding=derive(usual, **SEARCHES[name]))
        said = {prediction["key"]: prediction["caption"] for prediction in predictions}
        row[name] = about(said, {record.key: record.captions for record in records})
    write_atomically(out / ROW, json.dumps(row, indent=1).encode())
    return {arm: row}


def about(said: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return CIDEr and BLEU-4 of captions, and the measures of `habits`. Both mappings have the images' keys."""
    scored = {score.name: of_score(score.to_json()) for score in score_captions(said, references).scores}
    return {name: scored[name] for name in ("CIDEr", "BLEU-4")} | habits(said)


def habits(said: Mapping[str, str]) -> dict[str, float]:
    """Return measures of captions, such as their mean length and their repetitions; shares are in percent."""
    names = names_of_kinds()
    longest, words = max(len(name.split()) for name in names), {key: tokens_of(text) for key, text in said.items()}
    named = [mentions(text, names, longest) for text in words.values()]
    return {
        "words a caption": round(mean(len(text) for text in words.values()), 1),
        "different words": len({word for text in words.values() for word in text}),
        "captions with three words twice": round(100 * mean(goes_round(text) for text in said.values()), 1),
        "repeated bigrams": round(100 * repeated_ngrams(list(said.values()), 2), 1),
        "captions that name a kind twice": round(100 * mean(len(kinds) > len(set(kinds)) for kinds in named), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a store of drawn scenes with splits train, val and test")
    parser.add_argument("--out", required=True)
    for name in ("pictures", "test", "steps", "batch", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(LoopStudy, name))
    parser.add_argument("--noise", type=float, default=LoopStudy.noise)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", action="store_true", help="write experiments/results/looping.json")
    given = parser.parse_args()
    asked = {name: getattr(given, name) for name in ("pictures", "test", "noise", "steps", "batch", "seed")}
    plan = LoopStudy(given.data, given.out, **asked, settings=(*LoopStudy.settings, *given.set))
    told = loop_study(plan, given.processes, lambda row: print(json.dumps(row), flush=True))
    figures = {"asked": asked} | {"arms": told}
    command = "uv run python -m experiments.looping --data STORE --out OUT --keep"
    print(save("looping", command, figures) if given.keep else json.dumps(figures, indent=1))


if __name__ == "__main__":  # imported by name: other processes cannot import __main__
    import_module("experiments.looping").main()
