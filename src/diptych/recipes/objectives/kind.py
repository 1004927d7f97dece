"""What is trained, as names and numbers, and how that becomes a schedule of objectives."""

from pydantic import BaseModel, ConfigDict

from diptych.core import Vocabulary
from diptych.objectives import Schedule


class Objectives(BaseModel):
    """One kind of training. `kind`, of each subclass its own, tells a saved recipe which."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        raise NotImplementedError
