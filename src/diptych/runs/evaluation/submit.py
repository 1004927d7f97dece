"""Write predictions in the formats of evaluation servers (`diptych submit`).

coco   [{"image_id": 1, "caption": "a red kite"}, ...]          captions_SPLIT_NAME_results.json
vqa    [{"question_id": 1, "answer": "two"}, ...]               one entry for every question of the split
vcr    annot_id, answer_0..3, rationale_conditioned_on_a0_0..3, ..., rationale_conditioned_on_a3_0..3
       one line per question, of probabilities (rowanz/r2c, models/eval_for_leaderboard.py)
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from diptych.core import Choices, Record, Sample, Task
from diptych.data.formats.parsing import key_of_name, number_of_name
from diptych.data.store.store import Store
from diptych.models.decoding import DecodingOptions
from diptych.objectives import split_candidates
from diptych.runs.evaluation.evaluate import check_decoding
from diptych.runs.folder import ModelFolder
from diptych.runs.predict import predict, predict_by
from diptych.runtime.errors import DataError, RecipeError, counted, nearest
from diptych.runtime.files import write_atomically
from diptych.tasks import find_task
from diptych.tasks.vcr import Vcr

CHOICES = 4  # each question of VCR has four answers and four rationales
_GROUPS = ("answer", *(f"rationale_conditioned_on_a{number}" for number in range(CHOICES)))
VCR_COLUMNS = ("annot_id", *(f"{group}_{number}" for group in _GROUPS for number in range(CHOICES)))
_QUESTION_ID = re.compile(r"0|[1-9][0-9]{0,17}")


Written = Callable[[Sequence[Mapping[str, Any]]], str]


@dataclass(frozen=True)
class Leaderboard(Vcr):
    """VCR as its server needs it.

    The right answer is unknown, so rationales are scored after each of the four answers.
    """

    def queries(self, record: Record) -> list[Sample]:
        """Return 20 samples per question: four answers, and four rationales after each answer."""
        return [one for choices in record.choices for sample in self._groups(record, choices) for one in sample]

    def _groups(self, record: Record, choices: Choices) -> Iterator[list[Sample]]:
        if len(choices.answers) != CHOICES or len(choices.rationales) != CHOICES:
            raise DataError(
                f"the question has {len(choices.answers)} answers and {len(choices.rationales)} rationales, but VCR's "
                f"leaderboard needs {CHOICES} of each; correct the question",
                key=choices.key,
            )
        firsts = (choices.question, *(f"{choices.question} {answer}" for answer in choices.answers))
        for group, first in zip(_GROUPS, firsts, strict=True):
            texts = choices.answers if group == _GROUPS[0] else choices.rationales
            yield split_candidates(self.build_sample(record, f"{choices.key}/{group}", first, texts))


def submit(
    model: ModelFolder,
    store: Store,
    split: str,
    form: str,
    path: Path,
    decoding: DecodingOptions | None = None,
    console: Console | None = None,
) -> str:
    """Write the predictions of a split in a server's format. Return a line that describes the file.

    `form` is "coco", "vqa" or "vcr". Raises RecipeError if it is unknown or the model has not learnt its task. Raises
    DataError if a prediction is missing, because servers accept only complete splits.
    """
    built = submitted_task(model, form, decoding)
    task, write = FORMS[form]
    if isinstance(built, Vcr):
        made = predict_by(Leaderboard(built.tokens, built.max_words), model, store, split, console)
    else:
        made = predict(model, store, split, task, decoding, console)
    if made.damaged:
        raise DataError(
            f"cannot read {len(made.damaged)} records of {split!r} ({', '.join(made.damaged[:5])}), but the server "
            "needs all of them; extract them again"
        )
    if not made.predictions:
        raise DataError(f"{store.folder} has nothing to predict for {task} in {split!r}; choose another split")
    ids = {record.key: record.image_id for record in made.records if record.image_id is not None}
    write_atomically(
        path, write([{**one, "image_id": ids.get(str(one.get("key")))} for one in made.predictions]).encode()
    )
    line = f"{path}: {task} of {counted(made.records, 'images')} of {split!r}, in the format {form}"
    if form != "coco" or not (guessed := [record.key for record in made.records if record.key not in ids]):
        return line
    return f"{line}; for {len(guessed)} images, the id is the number in the name (the first: {guessed[0]})"


def submitted_task(model: ModelFolder, form: str, decoding: DecodingOptions | None = None) -> Task:
    """Build the task of a server's format.

    Raises RecipeError if the format is unknown, or the model or `decoding` does not fit.
    """
    if form not in FORMS:
        raise RecipeError(f"--format {form}: unknown; {nearest(form, FORMS)}")
    spec, trained_for = find_task(FORMS[form][0]), model.recipe.task if model.recipe is not None else None
    spec.check_offered(model.model, trained_for, model.name)
    task = model.task(spec.name)
    check_decoding(model, task, decoding)
    return task


def _coco(predictions: Sequence[Mapping[str, Any]]) -> str:
    return _entries([(_image_id(p), p["key"], "image_id", {"caption": p["caption"]}) for p in predictions])


def _vqa(predictions: Sequence[Mapping[str, Any]]) -> str:
    return _entries([(_number(p["key"]), p["key"], "question_id", {"answer": p["answer"]}) for p in predictions])


def _entries(rows: Sequence[tuple[int, str, str, dict[str, str]]]) -> str:
    """Return a JSON list with one entry per row. Raises DataError for a duplicate id."""
    once: dict[int, str] = {}
    for number, key, name, _ in rows:
        if number in once:
            raise DataError(f"the {name} {number} also belongs to {once[number]!r}; make each {name} unique", key=key)
        once[number] = key
    return json.dumps([{name: number, **value} for number, _, name, value in rows], ensure_ascii=False)


def _image_id(prediction: Mapping[str, Any]) -> int:
    """Return the image's id from the data, or else from its name, such as 1 from COCO_test2014_000000000001."""
    if (number := prediction.get("image_id")) is None:
        number = number_of_name(key_of_name(prediction["key"]))
    if number is None:
        wanted = "as in COCO_test2014_000000000001, and the record has no `image_id`; add one of them"
        key = prediction["key"]
        raise DataError(f"the image's name does not end with its number in COCO, {wanted}", key=key)
    return int(number)


def _number(key: str) -> int:
    if not _QUESTION_ID.fullmatch(key):
        raise DataError(
            "the key is not a question number of VQA v2 (1 to 18 digits, no leading 0); --format vqa only takes VQA v2",
            key=key,
        )
    return int(key)


def _vcr(predictions: Sequence[Mapping[str, Any]]) -> str:
    scores: dict[str, dict[str, list[float]]] = {}
    for prediction in predictions:  # a question's predictions are in the order of its candidates
        question, _, group = prediction["group"].rpartition("/")
        scores.setdefault(question, {}).setdefault(group, []).append(prediction["score"])
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(VCR_COLUMNS)
    for question, groups in scores.items():
        if any(len(group) != CHOICES for group in groups.values()):
            raise DataError("two questions of VCR have this key; make each key unique", key=question)
        shares = torch.tensor([groups[group] for group in _GROUPS], dtype=torch.float64).softmax(1)
        table.writerow([question, *(f"{share:.6g}" for share in shares.flatten().tolist())])
    return text.getvalue()


# {format: (task, function that formats the task's predictions)}.
FORMS: dict[str, tuple[str, Written]] = {"coco": ("caption", _coco), "vqa": ("vqa", _vqa), "vcr": ("vcr", _vcr)}
