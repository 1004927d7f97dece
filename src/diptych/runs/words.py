"""The tokeniser of a run, and the texts from which a new one is trained."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from diptych.core import Expression, Question, Record, Statement, TaskItem, names_for_tags
from diptych.core.record import READ, WORDED
from diptych.data.store.corpus import Lines
from diptych.data.store.store import Store, iterate, splits_in
from diptych.data.store.tokens import FILE as TOKENS
from diptych.data.store.tokens import Tokens
from diptych.metrics.tokenise import WORD
from diptych.runs.run_folder import RunFolder
from diptych.runtime.errors import CheckpointError
from diptych.runtime.files import MARKER
from diptych.runtime.outputs import is_unedited, write_noted
from diptych.tasks import find_task
from diptych.tasks.caption import pretraining_texts

VOCABULARY_SIZE = 8000
VOCABULARY_LINES = 20_000  # a vocabulary is trained on all captions and this many lines of a text corpus
RECORDS_COUNTED = 5000  # out-of-vocabulary words and example texts are counted in this many records
EXAMPLES, LONGEST_EXAMPLE = 5, 60  # number of example texts of a model, and most characters of each
TEXTED = (Question, Statement, Expression, TaskItem)


def words_of(record: Record) -> list[str]:
    """Return all texts of a record that a vocabulary should cover. Tags such as [0] are replaced by object names."""
    return record.changed({"tagged": lambda text: names_for_tags(text, record.objects)}).marked(*READ)


def training_texts(store: Store, validation: str = "val") -> list[str]:
    """Return the texts of all splits except validation and test splits.

    Texts of `Record.more` are included only if they have a word that no other text has. So a new task whose texts have
    no new words does not change the vocabulary.
    """
    scored = splits_in(validation) | {"test", "test_rare"}
    texts: list[str] = []
    more: list[str] = []
    for record in iterate(store):
        if record.split not in scored:
            texts += words_of(replace(record, more={}))
            more += words_of(Record(record.key, more=record.more))
    known = {word for text in texts for word in text.split()} if more else set()
    return texts + [text for text in more if not known.issuperset(text.split())]


def example_texts(store: Store, records: Sequence[int], field: str) -> tuple[str, ...]:
    """Return the most frequent short texts of an annotation, such as "questions", in the first records."""
    entries = [entry for number in records[:RECORDS_COUNTED] for entry in store.words(number).words().get(field, ())]
    texts = (entry.text if isinstance(entry, TEXTED) else entry for entry in entries)
    counts = Counter(text for text in texts if isinstance(text, str) and 0 < len(text) <= LONGEST_EXAMPLE)
    return tuple(text for text, _ in counts.most_common(EXAMPLES))


def unknown_words(tokens: Tokens, store: Store, split: str, fields: Collection[str]) -> Counter[str]:
    """Count the out-of-vocabulary words in `fields` of a split's records.

    The result is empty if they are less than 1% of all words.
    """
    numbers = [number for one in splits_in(split) for number in store.split(one)]
    counts: Counter[str] = Counter()
    for number in numbers[:: math.ceil(len(numbers) / RECORDS_COUNTED) or 1]:
        read = store.words(number)
        other: dict[str, Any] = {name: () for name in WORDED if name not in fields}
        kept = replace(read, more={name: items for name, items in read.more.items() if name in fields}, **other)
        counts.update(word for text in words_of(kept) for word in WORD.findall(text))
    unknown = Counter({word: n for word, n in counts.items() if tokens.vocabulary.unknown in tokens.encode(word)})
    return unknown if unknown.total() >= 0.01 * counts.total() else Counter()


def tokens_of_run(folder: RunFolder, store: Store) -> Tokens:
    """Return the run's tokeniser: from the recipe's vocabulary, from the run's folder, or newly trained on the data."""
    recipe, out = folder.recipe, folder.path
    if recipe.data.vocabulary is not None:
        return Tokens.from_vocabulary(Path(recipe.data.vocabulary), recipe.data.lowercase)
    if folder.resumes and (out / TOKENS).is_file():
        return _kept_tokens(out)
    texts = training_texts(store, recipe.data.validation)
    if find_task(recipe.task).pretrains:  # pre-training also reads questions with their answers
        records = (one for one in iterate(store, recipe.data.split) if not one.captions)
        texts += [text for record in records for text in pretraining_texts(record)]
    if recipe.data.text is not None:
        lines = Lines(Path(recipe.data.text))
        texts += [lines[number] for number in range(min(len(lines), VOCABULARY_LINES))]
    return Tokens.train(texts, VOCABULARY_SIZE, recipe.data.lowercase, recipe.data.tokens)


def keep_tokens(tokens: Tokens, out: Path) -> None:
    """Write the tokeniser to a run's folder. When the run resumes, it refuses a tokeniser that has changed."""
    write_noted(out, out / TOKENS, tokens.to_json().encode())


def _kept_tokens(out: Path) -> Tokens:
    if not is_unedited(out, out / TOKENS):
        raise CheckpointError(
            f"{out / TOKENS} has changed since it was written (as {MARKER} shows), so ids could mean "
            "other tokens; copy the run's whole folder again, or start again in another folder"
        )
    return Tokens.load(out)
