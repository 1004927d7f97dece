"""How records teach: what a plan asks of them, and what a user should know before the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from diptych.core import Record, Sample, Task
from diptych.data.store.store import Store
from diptych.data.store.tokens import Tokens
from diptych.objectives import Schedule
from diptych.runs.folder import ModelFolder
from diptych.systems.recipe import Recipe
from diptych.tasks import find_task
from diptych.tasks.spec import SAMPLED, of_the_first

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

    def notes(self, store: Store, records: Sequence[int], tokens: Tokens) -> Iterator[str]:
        """What is no error, and what a user should know before the run."""
        return cut_short(store, records, self.recipe, tokens)


def cut_short(store: Store, records: Sequence[int], recipe: Recipe, tokens: Tokens) -> Iterator[str]:
    """Texts of the task of more words than data.max_words."""
    task = find_task(recipe.task)
    if not task.cuts_texts:
        return
    texts = [text for index in records[:SAMPLED] for text in task.texts(store.words(index))]
    most, lengths = recipe.data.max_words, [len(tokens.encode(text)) for text in texts]
    if over := [length for length in lengths if length > most]:
        first = of_the_first(len(records))
        longest = max(over)
        room = longest + MARKS <= recipe.model.max_beside
        yield (
            f"{len(over)} of {len(texts)} {task.field}{first} are longer than {most} words or pieces and are cut; "
            + (f"data.max_words={longest} takes them whole" if room else f"the longest has {longest}")
        )
