"""The first steps of every small recipe, through the command line as users type it: what each step costs.

    python -m tests.golden.losses --write    measures anew: a change of numbers, which the changelog names

All names of Diptych that the net depends on stand in this file: its command line, its recipes and their keys, its log.
"""

import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from diptych import cli
from diptych.systems import RECIPES

FILE = Path(__file__).parent / "losses.json"
RECIPE = re.compile(r"[\w-]+/small/(pretrain|caption|vqa|retrieval|vcr|referring|nlvr|scst)")
SCENES, STEPS = 48, 20
SETTINGS = {
    "model.dropout": 0, "model.attention_dropout": 0, "training.batch": 8, "training.precision": "fp32",
    "training.device": "cpu", "training.threads": 1, "training.loading_threads": 0, "training.seed": 0,
    "training.validate_every": "null", "training.log_every": 1,
}  # fmt: skip
# Of tasks that take long, and of those where the recipe's own optimizer makes whole steps of gradients that are but
# rounding: another machine would be more than a thousandth off within the 20.
OWN: dict[str, dict[str, object]] = {
    "retrieval": {"optimizer.lr": 5e-4},
    "vcr": {"optimizer.kind": "sgd", "optimizer.lr": 0.02, "training.batch": 4},
    "scst": {"training.batch": 4},
}
UNTAUGHT = {"training.steps": 1, "optimizer.lr": 1e-12}  # a model to begin from, the same on every machine
Losses = dict[str, list[float]]  # "loss" and "gradient_norm" (before clipping), a number a step


def recipes() -> list[str]:
    """Each system's pre-training, and all that it can be taught after that."""
    return sorted(name for name in RECIPES if RECIPE.fullmatch(name))


def read() -> dict[str, Losses]:
    found: dict[str, Losses] = json.loads(FILE.read_text())
    return found


class Runs:
    """On a few drawn scenes with their true regions, each done when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, folder / "store"
        torch.set_num_threads(1)

    def losses(self, recipe: str) -> Losses:
        lines = [json.loads(line) for line in (self._run(recipe) / "metrics.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
        return {"loss": [line["total"] for line in lines], "gradient_norm": [line["gradient_norm"] for line in lines]}

    def _run(self, recipe: str, taught: bool = True) -> Path:
        """Its run folder."""
        out = self.folder / ("taught" if taught else "untaught") / recipe
        if out.exists():
            return out
        self._draw()
        system, _, task = recipe.split("/")
        settings = {"training.steps": STEPS, **SETTINGS, **OWN.get(task, {}), **({} if taught else UNTAUGHT)}
        options = ["--data", self.store, "--out", out, *(f"--set={key}={value}" for key, value in settings.items())]
        if task == "pretrain":
            _diptych("pretrain", recipe, *options)
        elif task == "scst":  # rewards differ only between captions of a model that knows some words
            start = self._run(f"{system}/small/caption")
            _diptych("finetune", "caption", "--recipe", recipe, "--model", start, *options)
        else:
            start = self._run(f"{system}/small/pretrain", taught=False)
            _diptych("finetune", task, "--recipe", recipe, "--model", start, *options)
        return out

    def _draw(self) -> None:
        if not self.store.exists():
            scenes, others = self.folder / "scenes", ("--web=0", "--val=0", "--test=0", "--test-rare=0")
            _diptych("storybook", "write", "--out", scenes, f"--train={SCENES}", *others, "--processes=1")
            _diptych("extract", scenes, "--out", self.store, "--detector=ground-truth", "--processes=1")


def _diptych(*arguments: object) -> None:
    """The command line, in this process."""
    said, before = StringIO(), sys.argv
    sys.argv = ["diptych", *map(str, arguments)]
    try:
        with redirect_stdout(said), redirect_stderr(said):
            cli.main()
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"{' '.join(sys.argv)}\n{said.getvalue()}") from ended
    finally:
        sys.argv = before


def _write() -> None:
    before = read() if FILE.exists() else {}
    with TemporaryDirectory() as folder:
        runs = Runs(Path(folder))
        found = {recipe: runs.losses(recipe) for recipe in recipes()}
    for recipe in sorted(before.keys() | found.keys()):
        if before.get(recipe) != found.get(recipe):
            print("new" if recipe not in before else "gone" if recipe not in found else "changed", recipe)
    lines = (
        f"{json.dumps(recipe)}: {{\n"
        + ",\n".join(f" {json.dumps(kind)}: {json.dumps(numbers)}" for kind, numbers in losses.items())
        + "\n}"
        for recipe, losses in found.items()
    )
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit("python -m tests.golden.losses --write measures all recipes anew")
    _write()
