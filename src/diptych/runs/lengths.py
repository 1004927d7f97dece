"""What a run should say about words before it begins: texts that are longer than it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diptych.loading.store import Store
from diptych.loading.tokens import Tokens
from diptych.recipes.recipe import Recipe

MARKS = 3  # that stand with the words, at most
LOOKED_AT = 1000  # records whose words are read to count; more would keep a large run waiting


def cut_short(store: Store, records: Sequence[int], recipe: Recipe, tokens: Tokens) -> Iterator[str]:
    """Captions, or questions, of more words than data.max_words. VCR cuts two sentences together, by its own rule."""
    if recipe.task not in ("pretrain", "caption", "retrieval", "vqa"):
        return
    looked = [store.words(index) for index in records[:LOOKED_AT]]
    if recipe.task == "vqa":
        kind, texts = "questions", [question.text for record in looked for question in record.questions]
    else:
        kind, texts = "captions", [text for record in looked for text in record.captions]
    most, lengths = recipe.data.max_words, [len(tokens.encode(text)) for text in texts]
    if over := [length for length in lengths if length > most]:
        first = "" if len(looked) == len(records) else f" (of the first {len(looked):,} pictures)"
        longest = max(over)
        room = longest + MARKS <= recipe.model.max_beside
        yield (
            f"{len(over)} of {len(texts)} {kind}{first} are longer than {most} words or pieces and are cut; "
            + (f"data.max_words={longest} takes them whole" if room else f"the longest has {longest}")
        )
