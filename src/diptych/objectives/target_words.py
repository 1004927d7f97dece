"""What objectives share that ask for the words of the target block: which are asked for, and what a wrong one costs."""

from torch import Tensor

from diptych.core import IGNORE, Batch, Model, StateRequest, States
from diptych.objectives.words import word_losses


class TargetWords:
    """Those of `Batch.target_labels`; `prepare` is the objective's own."""

    name: str
    label_smoothing: float

    @property
    def spared(self) -> int | None:
        """The word that label smoothing gives nothing to."""
        return None

    def count(self, batch: Batch) -> Tensor:
        return self.request(batch).mask.sum()

    def request(self, batch: Batch) -> StateRequest:
        assert batch.target_labels is not None
        return StateRequest(target=batch.target_labels != IGNORE)

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        assert states.target is not None
        assert batch.target_labels is not None
        places = batch.where(self.name, self.request)
        return word_losses(model, states.target, batch.target_labels, self.label_smoothing, self.spared, places).sum()
