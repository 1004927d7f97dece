"""How a run trains on records: schedule, samples, and warnings before the run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from diptych.core import Record, Sample, Task
from diptych.data.store.store import Store
from diptych.data.store.tokens import Tokens
from diptych.objectives import Schedule
from diptych.runs.folder import ModelFolder
from diptych.systems.recipe import Recipe
from diptych.tasks.spec import SAMPLED, TaskSpec, sample_scope

SPECIAL_TOKENS = 3  # most special tokens in a text


@dataclass(frozen=True)
class SupervisedTraining:
    """Supervised training on the reference texts (the default). `SelfCriticalTraining` is the alternative."""

    recipe: Recipe

    def check(self, start: ModelFolder | None) -> None:
        """Raise RecipeError if training cannot start from this model."""

    def schedule(self, store: Store, tokens: Tokens, records: list[int], out: Path) -> Schedule:
        """Return the training schedule. `records`: numbers of training records; `out`: folder of the run."""
        return self.recipe.objectives.schedule(tokens.vocabulary)

    def samples(self, task: Task, record: Record) -> list[Sample]:
        """Return the training samples of a record."""
        return task.samples(record)

    def notes(self, spec: TaskSpec, store: Store, records: Sequence[int], tokens: Tokens) -> Iterator[str]:
        """Yield warnings before the run: the number of texts that data.max_words cuts."""
        if not spec.training.cuts_texts:
            return
        texts = [text for index in records[:SAMPLED] for text in spec.texts(store.words(index))]
        most, lengths = self.recipe.data.max_words, [len(tokens.encode(text)) for text in texts]
        if over := [length for length in lengths if length > most]:
            longest = max(over)
            room = longest + SPECIAL_TOKENS <= self.recipe.model.max_beside
            yield (
                f"{len(over)} of {len(texts)} {spec.field}{sample_scope(len(records))} are longer than {most} words or "
                "pieces and are cut; "
                + (f"data.max_words={longest} takes them whole" if room else f"the longest has {longest}")
            )


def more_regions(store: Store, records: Sequence[int], most: int) -> Iterator[str]:
    """Warn if images have more regions than a model reads."""
    over = [index for index in records if store.region_count(index) > most]
    if over:
        yield (
            f"{len(over)} of {len(records)} pictures have more than {most} regions: the best {most} are kept "
            f"(the first: {store.words(over[0]).key}, {store.region_count(over[0])})"
        )
