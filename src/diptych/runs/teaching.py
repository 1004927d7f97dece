"""How records teach: what a plan asks of them, and what a user should know before the run."""

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

MARKS = 3  # special tokens that stand with the words, at most


@dataclass(frozen=True)
class Teaching:
    """What people have said is imitated: the usual way. `self_critical.Rewarded` is the other."""

    recipe: Recipe

    def check(self, start: ModelFolder | None) -> None:
        """Refuse a model that cannot begin so, with RecipeError."""

    def schedule(self, store: Store, tokens: Tokens, records: list[int], out: Path) -> Schedule:
        """What is trained; `records` are those of the store to train on, `out` is the folder of the run."""
        return self.recipe.objectives.schedule(tokens.vocabulary)

    def samples(self, task: Task, record: Record) -> list[Sample]:
        return task.samples(record)

    def notes(self, spec: TaskSpec, store: Store, records: Sequence[int], tokens: Tokens) -> Iterator[str]:
        """What is no error, and what a user should know before the run: texts that data.max_words cuts."""
        if not spec.training.cuts_texts:
            return
        texts = [text for index in records[:SAMPLED] for text in spec.texts(store.words(index))]
        most, lengths = self.recipe.data.max_words, [len(tokens.encode(text)) for text in texts]
        if over := [length for length in lengths if length > most]:
            longest = max(over)
            room = longest + MARKS <= self.recipe.model.max_beside
            yield (
                f"{len(over)} of {len(texts)} {spec.field}{sample_scope(len(records))} are longer than {most} words or "
                "pieces and are cut; "
                + (f"data.max_words={longest} takes them whole" if room else f"the longest has {longest}")
            )


def more_regions(store: Store, records: Sequence[int], most: int) -> Iterator[str]:
    """Whether pictures have more regions than a model reads."""
    over = [index for index in records if store.region_count(index) > most]
    if over:
        yield (
            f"{len(over)} of {len(records)} pictures have more than {most} regions: the best {most} are kept "
            f"(the first: {store.words(over[0]).key}, {store.region_count(over[0])})"
        )
