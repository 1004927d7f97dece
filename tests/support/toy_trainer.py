"""A model with everything that is hard to train in parallel, and a program that trains it.

Dropout, a tied weight, a list of layers, a head that no objective uses, a head that only every second step uses,
parts in which an objective predicts nothing, and an update of two passes.
"""

import hashlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.runtime.errors import DiptychError
from diptych.training import OptimizerConfig, Result, TrainingConfig, train
from diptych.training.ranks import join_ranks, leave

WIDTH, WORDS, CLASSES = 8, 11, 3


class ToyModel(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(2))
        self.norm, self.drop = nn.LayerNorm(WIDTH), nn.Dropout(dropout)
        word = nn.Linear(WIDTH, WORDS)
        word.weight = self.words.weight
        self.heads = nn.ModuleDict({"word": word, "kind": nn.Linear(WIDTH, CLASSES), "unused": nn.Linear(WIDTH, 2)})
        self.register_buffer("mean_seen", torch.zeros(()))

    def forward(self, words: Tensor) -> Tensor:
        states = self.words(words)
        for layer in self.layers:
            states = states + layer(states)
        return self.drop(self.norm(states))


@dataclass
class ToyBatch:
    keys: list[str]
    words: Tensor  # (B, T)
    labels: Tensor  # (B, T), -1: not predicted
    kinds: Tensor  # (B,), -1: not predicted
    moves: list[str] = field(default_factory=list)

    def to(self, device: Any) -> "ToyBatch":
        return replace(self, words=self.words.to(device), labels=self.labels.to(device), kinds=self.kinds.to(device))


@dataclass(frozen=True)
class ToyBatches:
    """Samples numbered over all steps. Only the first sample of a step has a kind, so all other parts have none."""

    batch: int
    seed: int = 0
    pause: float = 0.0

    def sample(self, number: int, has_kind: bool) -> tuple[str, list[int], list[int], int]:
        rng = Random(f"{self.seed}/{number}")
        words = [rng.randrange(WORDS) for _ in range(5)]
        labels = [(w * 3 + 1) % WORDS if rng.random() < 0.5 else -1 for w in words]
        return f"toy/{number}", words, labels, sum(words) % CLASSES if has_kind else -1

    def at(self, step: int, part: int, parts: int) -> ToyBatch:
        time.sleep(self.pause)
        size = self.batch // parts
        inside = range(part * size, (part + 1) * size)
        keys, words, labels, kinds = zip(*(self.sample(step * self.batch + i, i == 0) for i in inside), strict=True)
        return ToyBatch(list(keys), torch.tensor(words), torch.tensor(labels), torch.tensor(kinds))


@dataclass(frozen=True)
class ToyUpdate:
    """`word` and `kind`; with `passes` 2 a second pass reads the words guessed in the first."""

    names: tuple[str, ...] = ("word", "kind")
    passes: int = 1
    weights: dict[str, float] = field(default_factory=lambda: {"kind": 0.5})
    objectives: tuple[Any, ...] = ()

    def prepare(self, samples: Any, rng: Random, partners: Any = None) -> Any:
        return samples

    def counts(self, batch: ToyBatch) -> dict[str, Tensor]:
        both = {"word": (batch.labels >= 0).sum(), "kind": (batch.kinds >= 0).sum()}
        return {name: both[name] for name in self.names}

    def losses(self, model: Any, batch: ToyBatch) -> Iterator[dict[str, Tensor]]:
        words = batch.words
        for _ in range(self.passes):
            states = model(words)
            guessed = model.heads["word"](states)
            words = guessed.argmax(-1)
            found = {}
            for name in self.names:
                logits, labels = (
                    (guessed.flatten(0, 1), batch.labels.flatten())
                    if name == "word"
                    else (model.heads["kind"](states.mean(1)), batch.kinds)
                )
                # A mean times its count: the value and the gradient are NaN where nothing is predicted.
                count = (labels >= 0).sum()
                found[name] = F.cross_entropy(logits, labels, ignore_index=-1, reduction="sum") / count * count
            yield found


@dataclass(frozen=True)
class ToySchedule:
    """`kind` only in every second step."""

    passes: int = 1

    def at(self, step: int) -> ToyUpdate:
        return ToyUpdate(("word", "kind") if step % 2 == 0 else ("word",), self.passes)


@dataclass(frozen=True)
class Bad(ToyUpdate):
    """Where sample 6 is, the loss is not finite, or only its gradient."""

    gradient_only: bool = False

    def losses(self, model: Any, batch: ToyBatch) -> Iterator[dict[str, Tensor]]:
        for found in super().losses(model, batch):
            if "toy/6" in batch.keys:
                word = found["word"]
                found["word"] = word + (word * 0).sqrt() if self.gradient_only else word * math.inf
            yield found


@dataclass(frozen=True)
class Silent(ToyBatches):
    """Nothing to predict at all."""

    def at(self, step: int, part: int, parts: int) -> ToyBatch:
        batch = super().at(step, part, parts)
        return replace(batch, labels=torch.full_like(batch.labels, -1), kinds=torch.full_like(batch.kinds, -1))


@dataclass(frozen=True)
class Always:
    update: ToyUpdate

    def at(self, step: int) -> ToyUpdate:
        return self.update


def interrupted(module: nn.Module, step: int) -> dict[str, float]:
    """Validation during which the last rank alone is asked to stop, in step 2."""
    if step == 2 and os.environ.get("RANK") == "1":
        signal.raise_signal(signal.SIGTERM)
    return {"goodness": 0.0}


def weight_hash(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def score(module: nn.Module, step: int) -> dict[str, float]:
    """How well it guesses, as a pure function of its weights."""
    batch = ToyBatches(32, seed=99).at(0, 0, 1)
    with torch.no_grad():
        logits = module.heads["word"](module(batch.words))  # type: ignore[index,operator]
    return {"goodness": -float(F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-1))}


def toy_train(
    folder: Path,
    *,
    model: nn.Module | None = None,
    batches: Any = None,
    schedule: Any = None,
    optimizer: Mapping[str, Any] | None = None,
    passes: int = 1,
    validate: Any = score,
    fingerprint: str = "",
    console: Console | None = None,
    begin: Callable[[], None] | None = None,
    on_log: Callable[[dict[str, Any]], Any] | None = None,
    **training: Any,
) -> Result:
    """Trains a toy, with much that can be told by its weights switched on."""
    config = TrainingConfig(
        **{"steps": 6, "batch": 4, "log_every": 1, "checkpoint_every": 2, "device": "cpu"} | training
    )
    validated = config.validate_every is not None
    return train(
        model if model is not None else ToyModel(dropout=0.1),
        schedule if schedule is not None else ToySchedule(passes),
        batches if batches is not None else ToyBatches(config.batch),
        optimizer=OptimizerConfig(**{"lr": 0.02, "weight_decay": 0.1, "clip": 1.0} | dict(optimizer or {})),
        training=config,
        folder=folder,
        validate=validate if validated else None,
        score="goodness" if validated else None,
        fingerprint=fingerprint,
        console=console or Console(stderr=True, quiet="PYTEST_CURRENT_TEST" in os.environ),
        begin=begin,
        on_log=on_log,
    )


def lines(folder: Path) -> list[dict[str, Any]]:
    """The log, without what depends on the clock and without a line that is being written."""
    found = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().split("\n")[:-1]]
    return [{name: value for name, value in line.items() if name != "samples_per_second"} for line in found]


def weights_hash(folder: Path) -> str:
    return weight_hash(load_file(folder / "weights.safetensors"))


def killable(folder: str, options: dict[str, Any], pause: float) -> None:
    """A process that a test kills."""
    torch.set_num_threads(1)
    toy_train(Path(folder), batches=ToyBatches(4, pause=pause), **options)


def main() -> int:
    """Arguments: JSON objects, each the arguments of one `toy_train`, run one after the other."""
    torch.set_num_threads(1)
    with join_ranks(torch.device("cpu")):
        for text in sys.argv[1:]:
            options = json.loads(text)
            pause = options.pop("pause", 0.0)
            batches = ToyBatches(options.get("batch", 4), pause=pause)
            goes_on = options.pop("goes_on", False)
            options |= {"schedule": Always(Bad())} if options.pop("bad", False) else {}
            batches = Silent(4) if options.pop("silent", False) else batches
            options |= {"validate": interrupted} if options.pop("interrupted", False) else {}
            try:
                toy_train(Path(options.pop("folder")), batches=batches, **options)
            except DiptychError as error:
                print(f"{type(error).__name__} on rank {os.environ.get('RANK', '0')}: {error}", file=sys.stderr)
                if not goes_on:
                    return error.exit_code
    return 0


if __name__ == "__main__":
    leave(main())
