"""Base classes of objectives: `PerSample` prepares each sample separately; `TargetWords` also predicts target words."""

from dataclasses import replace
from random import Random
from typing import ClassVar

from torch import Tensor

from diptych.core import BIDIRECTIONAL, IGNORE, Batch, Sample, StateModel, StateRequest, States
from diptych.objectives.words import word_losses


class PerSample:
    """Base class of objectives that prepare each sample separately.

    By default, regions and text attend to each other. `request` requests the states that the heads read. `count` is the
    number of requested positions.
    """

    @property
    def heads(self) -> frozenset[str]:
        """Names of the heads that `loss` calls."""
        raise NotImplementedError

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [self.prepare_one(sample, rng) for sample in samples]

    def prepare_one(self, sample: Sample, rng: Random) -> Sample:
        return replace(sample, attention=BIDIRECTIONAL)

    def request(self, batch: Batch) -> StateRequest:
        return StateRequest(heads=self.heads)

    def count(self, batch: Batch) -> Tensor:
        return self.request(batch).mask.sum()


class TargetWords(PerSample):
    """Base class of objectives that predict `Batch.target_labels` from the states of the target."""

    name: str
    label_smoothing: float
    heads: ClassVar = frozenset({"word"})
    changes: ClassVar = "input"

    @property
    def unsmoothed(self) -> int | None:
        """Id of a token, such as [PAD], that gets no probability from label smoothing.

        None: all tokens get some probability.
        """
        return None

    def request(self, batch: Batch) -> StateRequest:
        assert batch.target_labels is not None
        return StateRequest(target=batch.target_labels != IGNORE)

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        assert states.target is not None
        assert batch.target_labels is not None
        places, labels = batch.where(self.name, self.request), batch.target_labels
        return word_losses(model, states.target, labels, self.label_smoothing, self.unsmoothed, places).sum()
