"""Write a model card (README.md on the Hugging Face hub) from a model folder and the publisher's statements."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from diptych.data.leakage import FILE as SEEN
from diptych.data.leakage import UNKNOWN
from diptych.inference.model_facts import is_drawn_world, model_facts, offered_tasks
from diptych.runs.folder import ModelFolder
from diptych.runtime.configs import first_problem
from diptych.runtime.errors import DataError, RecipeError, counted
from diptych.runtime.files import parse_json, text_of
from diptych.runtime.terminal import printable
from diptych.systems import SYSTEMS
from diptych.tasks import find_task, interfaces, tasks_by_verb
from diptych.tasks.answers import OF_VQA
from diptych.tasks.scores import Score, Scores

NOT_STATED = "not stated by the publisher"
LONGEST_QUOTE = 500  # maximum number of characters that are quoted from a file


@dataclass(frozen=True)
class Publisher:
    """Statements of the publisher that cannot be read from the model's files."""

    licence: str | None = None  # licence of the weights, in the hub's form, such as apache-2.0
    data: str | None = None  # description of the training data
    data_licence: str | None = None
    scores: tuple[Path, ...] = ()  # files written by `diptych evaluate --json`


class ScoredModel(BaseModel):
    """The entry `of` in a file of scores: the weights, data and precision with which the scores were computed."""

    weights: int  # CRC-32 of the weights
    data: str
    split: str
    precision: str


def model_card(folder: ModelFolder, repository: str, publisher: Publisher) -> str:
    """Return the text of README.md: metadata for the hub in YAML, then facts.

    Raises DataError if a file of scores is invalid or was computed with other weights.
    """
    from huggingface_hub import ModelCardData

    tasks = offered_tasks(folder)
    words = [interfaces()[task].words for task in tasks]
    known = model_facts(repository, folder, tasks)
    system = SYSTEMS[folder.architecture.system]
    metadata = ModelCardData(
        license=publisher.licence,
        library_name="diptych",
        pipeline_tag=next((word.pipeline for word in words if word.pipeline is not None), None),
        tags=["diptych", folder.architecture.system, *tasks],
    )
    packages = folder.architecture.packages.items()
    install = [f"It needs {package}: `pip install {package}=={version}`." for package, version in packages]
    usage = [
        "import diptych",
        "",
        f'model = diptych.load("{repository}")',
        *(_example(folder, task) for task in tasks[:1]),
    ]
    parts = [
        f"---\n{metadata.to_yaml()}\n---\n",
        f"# {_line(repository)}\n",
        f"{system.title} ([arXiv {system.paper}](https://arxiv.org/abs/{system.paper})), made with Diptych. "
        + (f"It {'; it '.join(word.does for word in words)}." if words else "Pre-trained, without a task."),
        "## How to load",
        *install,
        "\n".join(["```python", *usage, "```"]),
        "## What it is\n\n" + _table(_about(folder, known.parameters, known.knows, publisher)),
        "## Scores\n\n" + _scores(folder, known.scores, publisher.scores),
        "## Limits\n\n" + "".join(f"- {limit}\n" for limit in _limits(folder, tasks)),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _example(folder: ModelFolder, task: str) -> str:
    """Return the task's line of Python, with a text of the training data if the model has one."""
    interface, line = interfaces()[task], interfaces()[task].words.example
    hint = next((one for one in (json.dumps(form.hint) for form in interface.forms.values()) if one in line), None)
    texts = [json.dumps(_plain(text), ensure_ascii=False) for text in folder.architecture.examples]
    return line.replace(hint, texts[0]) if hint is not None and texts else line


def _about(folder: ModelFolder, parameters: int, knows: str, publisher: Publisher) -> Mapping[str, str | None]:
    """Return {fact: text} for the table of facts. Facts whose text is None are left out."""
    recipe, contract = folder.recipe, folder.contract
    trained = None if folder.untrained else recipe
    data = publisher.data or (knows if is_drawn_world(folder) else NOT_STATED)
    return {
        "system": folder.architecture.system,
        "parameters": f"{parameters:,}",
        "weights": "the authors' checkpoint, imported" if folder.untrained
        else NOT_STATED if recipe is None else f"trained by the recipe `{_plain(recipe.name)}`",
        "training": None if trained is None else (
            f"task {trained.task}; up to {counted(trained.training.steps, 'steps')} of "
            f"{counted(trained.training.batch, 'samples')}, "
            f"seed {trained.training.seed}, learning rate {trained.optimizer.lr:g}; recipe.json has all settings"
        ),
        "data": data,
        "splits": None if trained is None else (
            f"trained on `{_plain(trained.data.split)}`"
            + (f" ({counted(trained.data.records, 'records')} of it)" if trained.data.records else "")
            + f", weights chosen on `{_plain(trained.data.validation)}`"
        ),
        "detector": f"{_plain(contract.extractor)}; {len(contract.class_names)} classes; "
        + f"regions: {_plain(contract.selection)}"
        + ("" if folder.detector is not None else "; not in this folder: pass features"),
        "words": f"{folder.architecture.config.vocabulary.size:,} pieces"
        + ("" if recipe is None else ", lower-cased" if recipe.data.lowercase else ", cased"),
        "answers": None if folder.answers is None else f"{len(folder.answers.names):,}"
        + (f", the labels of {folder.answers.task}" if folder.answers.task != OF_VQA else ""),
        "licence of the code": "Apache-2.0 (Diptych)",
        "licence of the weights": publisher.licence or NOT_STATED,
        "licence of the data": publisher.data_licence or NOT_STATED,
    }  # fmt: skip


def _limits(folder: ModelFolder, tasks: Sequence[str]) -> list[str]:
    most = folder.architecture.config.max_regions
    limits = [
        "It was trained only on drawn scenes, so its output for photographs is meaningless."
        if is_drawn_world(folder)
        else "Its output is meaningful only for images like its training images; it gives one for any image.",
        f"It uses at most {most} regions of an image, found by its detector; it cannot see what the detector misses.",
    ]
    if folder.recipe is not None and not folder.recipe.data.images:
        limits.append("It is a control model: it was trained without images, and reads blank regions.")
    if folder.seen is not None:
        limits.append(f"The fingerprints of its training images ({SEEN}) are not published: {UNKNOWN.text}.")
    for spec in (tasks_by_verb()[task] for task in tasks if folder.recipe is not None):
        with suppress(RecipeError):  # raised if the model has no list of answers
            limit = spec.required_interface.words.limit
            limits += [limit(folder.task(spec.name))] if limit is not None else []
    return [*limits, "It was not checked for bias or harmful output; it is for research."]


def _scores(folder: ModelFolder, validated: str | None, files: Sequence[Path]) -> str:
    if files:
        return "\n\n".join(_scored(folder, path) for path in files)
    measured = "" if validated is None else _plain(validated.removeprefix("validation: "))
    return (f"On the records by which its weights were chosen, so optimistic: {measured}. " if measured else "") + (
        "No scores with intervals and a blind baseline were given (`diptych evaluate --json`)."
    )


def _scored(folder: ModelFolder, path: Path) -> str:
    """Return a section about a file of scores.

    Raises DataError if the file has no scores, or scores of other weights.
    """
    try:
        saved = parse_json(text_of(path))
        scores, of = Scores.from_json(saved), ScoredModel.model_validate(saved["of"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecipeError) as error:
        raise DataError(
            f"--scores {path} is not the output of `diptych evaluate --model MODEL --data DATA --json` "
            f"({first_problem(error) if isinstance(error, ValueError) else repr(error)}); write it again"
        ) from error
    if of.weights != folder.weights_checksum:
        raise DataError(
            f"the scores in {path} were computed with other weights than {folder.name} has; score this model: "
            f"diptych evaluate --model {folder.name} --data DATA --json > scores.json"
        )
    split, data, precision = (_line(_plain(text)) for text in (of.split, Path(of.data).name, of.precision))
    rows = [
        f"{find_task(scores.task).title}: {scores.items:,} of {scores.pictures:,} images, split `{split}` of "
        f"`{data}`, computed in {precision}{f'; {scores.warning}' if scores.few else ''}.",
        "",
        "| score | value | 95% interval | blind | ceiling |",
        "|---|---|---|---|---|",
    ]
    rows += [f"| {' | '.join(_cells(score))} |" for score in scores.scores]
    notes = [scores.trained_on.text, *scores.notes] if scores.trained_on is not None else scores.notes
    return "\n".join([*rows, "", *(f"- {_line(_plain(note))}." for note in notes)])


def _cells(score: Score) -> list[str]:
    interval = "" if score.low is None or score.high is None else f"{score.low:.1f} to {score.high:.1f}"
    bounds = ["" if bound is None else f"{bound:.1f}" for bound in (score.blind, score.ceiling)]
    return [_line(_plain(score.name)), f"{score.value:.1f}", interval, *bounds]


def _table(rows: Mapping[str, str | None]) -> str:
    lines = [f"| {name} | {_line(value)} |" for name, value in rows.items() if value is not None]
    return "\n".join(["| | |", "|---|---|", *lines])


def _line(text: str) -> str:
    """Return a text without line breaks, escaped for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def _plain(text: str) -> str:
    """Escape text of unknown origin, so that it cannot add links, images or HTML, or end a quotation."""
    return printable(text[:LONGEST_QUOTE]).replace("`", "'").replace("<", "&lt;").replace("[", "\\[")
