"""Commands that rows share. Names in capitals are the user's: stores made by `diptych extract`, files of weights."""

from __future__ import annotations

FROM_NOTHING = "--set init=none"
BERT = "--set init=BERT --set data.vocabulary=VOCAB"  # bert-base-uncased, or -cased for Unified VLP
UNILM = "--set init=UNILM --set data.vocabulary=VOCAB"
CAPTION_METRICS = "--extra-metrics METEOR --extra-metrics SPICE"

_FILES = {"coco": "captions_test2014_results.json", "vqa": "answers.json", "vcr": "vcr.csv"}


def pretrain(recipe: str, data: str, begin: str, out: str | None = None) -> str:
    """`begin`: options that say from which weights."""
    return f"diptych pretrain {recipe} --data {data} {begin} --out {out or folder(recipe)}"


def finetune(task: str, recipe: str, data: str, model: str, out: str, more: str = "") -> str:
    """`model`: folder that the run starts from, or `none`; `more`: further options."""
    return f"diptych finetune {task} --recipe {recipe} --data {data} --model {model}{spaced(more)} --out {out}"


def evaluate(model: str, data: str, more: str = "") -> str:
    return f"diptych evaluate --model {model} --data {data}{spaced(more)}"


def submit(model: str, data: str, form: str) -> str:
    """For the server: its file goes into the folder of the run."""
    return evaluate(model, data, f"--split test --submit {form} --predictions {model}/{_FILES[form]}")


def folder(recipe: str, what: str = "") -> str:
    """Where a run of it lies, or what goes on from that: rows that share a pre-training share its folder."""
    return f"runs/{'-'.join([*recipe.split('/'), *([what] if what else [])])}"


def spaced(more: str) -> str:
    return f" {more}" if more else ""
