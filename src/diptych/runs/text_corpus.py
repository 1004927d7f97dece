"""Text without pictures, as a recipe names it (`data.text`)."""

from __future__ import annotations

from pathlib import Path

from diptych.data.store.corpus import Corpus, Lines
from diptych.data.store.tokens import Tokens
from diptych.runtime.errors import RecipeError
from diptych.systems import SYSTEMS
from diptych.systems.recipe import Recipe
from diptych.tasks import find_task

VOCABULARY_LINES = 20_000  # that a vocabulary is learnt from, beside all the captions


def corpus_of(recipe: Recipe, tokens: Tokens) -> Corpus | None:
    named = recipe.data
    return Corpus(Path(named.text), tokens, named.text_words, named.text_joined) if named.text is not None else None


def first_lines(recipe: Recipe) -> list[str]:
    """What a vocabulary is learnt from."""
    if recipe.data.text is None:
        return []
    lines = Lines(Path(recipe.data.text))
    return [lines[number] for number in range(min(len(lines), VOCABULARY_LINES))]


def check_text(recipe: Recipe) -> None:
    """Where text is asked for there must be some, and a model that can read it. Raises RecipeError."""
    can = sorted(name for name, system in SYSTEMS.items() if "alone" in getattr(system.model, "provides", ()))
    if recipe.data.text is None:
        if getattr(recipe.objectives, "text_alone", 0):
            raise RecipeError(
                "objectives.text_alone asks for text without pictures: name a file with a sentence a line, "
                "--set data.text=FILE, or set objectives.text_alone=0"
            )
    elif not find_task(recipe.task).pretrains:
        raise RecipeError(f"data.text is for pre-training, not for {recipe.task}; leave it out")
    elif recipe.system not in can:
        raise RecipeError(
            f"{recipe.system} reads no text without a picture; leave out data.text, or take {' or '.join(can)}"
        )
    elif pictured := recipe.objectives.of_pictures:
        raise RecipeError(
            f"{recipe.name} has tasks of pictures ({', '.join(pictured)}), which take turns with whole batches; "
            "learn from data.text in a stage of its own (xgpt/text), and go on from its model with --model"
        )
