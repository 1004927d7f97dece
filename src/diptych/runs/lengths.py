"""What a run should say about words before it begins: texts that are longer than it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diptych.loading.store import Store
from diptych.loading.tokens import Tokens
from diptych.recipes.recipe import Recipe
from diptych.tasks import find_task
from diptych.tasks.spec import LOOKED_AT, of_the_first

MARKS = 3  # that stand with the words, at most


def cut_short(store: Store, records: Sequence[int], recipe: Recipe, tokens: Tokens) -> Iterator[str]:
    """Texts of the task of more words than data.max_words."""
    task = find_task(recipe.task)
    if not task.cuts_texts:
        return
    texts = [text for index in records[:LOOKED_AT] for text in task.texts(store.words(index))]
    most, lengths = recipe.data.max_words, [len(tokens.encode(text)) for text in texts]
    if over := [length for length in lengths if length > most]:
        first = of_the_first(len(records))
        longest = max(over)
        room = longest + MARKS <= recipe.model.max_beside
        yield (
            f"{len(over)} of {len(texts)} {task.field}{first} are longer than {most} words or pieces and are cut; "
            + (f"data.max_words={longest} takes them whole" if room else f"the longest has {longest}")
        )
