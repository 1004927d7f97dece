"""Whether a statement is true of a picture (NLVR and the like)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.core import BIDIRECTIONAL, Asked, Batch, Capability, Model, Sample, States
from diptych.runtime.devices import sent


@dataclass(frozen=True)
class ClassifyStatement:
    """Cross-entropy over two classes, false and true; `truth["true"]` says which is right."""

    name: str = "classify_statement"

    needs: ClassVar[frozenset[Capability]] = frozenset({"regions", "text"})
    heads: ClassVar = frozenset({"nlvr"})
    changes: ClassVar = "nothing"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [replace(sample, attention=BIDIRECTIONAL) for sample in samples]

    def count(self, batch: Batch) -> Tensor:
        return torch.tensor(len(batch))

    def asked(self, batch: Batch) -> Asked:
        return Asked(heads=frozenset({"nlvr"}))

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        scores: Tensor = model.heads["nlvr"](states).float()
        wanted = sent([int(truth["true"]) for truth in batch.truths], scores.device)
        return F.cross_entropy(scores, wanted, reduction="sum")
