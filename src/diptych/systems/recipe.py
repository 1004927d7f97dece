"""A recipe: everything that decides the numbers of a run, as names and numbers. Saved beside the run it made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from diptych.core import Vocabulary
from diptych.core.shares import PartialShare, PositiveShare
from diptych.data.store.pixels import Colours
from diptych.models import ModelConfig, ResolvedConfig
from diptych.models.decoding import DecodingOptions
from diptych.objectives.settings import Objectives
from diptych.runtime.claims import differences, refuse_other
from diptych.runtime.configs import assignment, explain, value_of
from diptych.runtime.errors import RecipeError, nearest
from diptych.runtime.files import parse_json, text_of, write_atomically
from diptych.systems.system import OBJECTIVES, SYSTEMS, System
from diptych.tasks import TASKS
from diptych.training.config import OptimizerConfig, TrainingConfig

FILE = "recipe.json"
TAUGHT = "objectives"  # the one section that is replaced as a whole, by those of another system
WHOLE = (TAUGHT, f"{TAUGHT}.kind")  # set before the keys of that section, in whatever order they are given
FREE = "optimizer.lr_multipliers"  # the one table whose keys are the user's: prefixes of parameter names
# What may change while a run goes on: its length, when it gives up, what it writes and how it is computed the same.
CHANGEABLE = frozenset(
    f"training.{name}"
    for name in (
        "steps",
        "patience",
        "log_every",
        "tensorboard",
        "checkpoint_every",
        "keep",
        "threads",
        "compile",
        "loading_threads",
        "loading_processes",
    )
)
M = TypeVar("M", bound=BaseModel)
# What recipes of the papers' size begin from until a file is given: `paper: BERT base`, or, for a model of a recipe,
# `paper: xgpt/text`. Where published weights are:
OF_PAPER = "paper: "
PUBLISHED = {
    "BERT base": "bert-base-uncased on the hub, with its vocab.txt",
    "BERT large": "bert-large-uncased on the hub, with its vocab.txt",
    "UniLM": "LuoweiZhou/VLP's base_model_pretrained/model_153999_cpu.bin, whose vocab.txt is bert-base-cased's",
}
ANY_WORDS = Vocabulary(size=5, pad=0, unknown=1, cls=2, sep=3, mask=4)  # what objectives need, no word decides


class DataConfig(BaseModel):
    """Which records are trained on, and how much of each."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    split: str = "train"
    """Split to train on, or several joined by +, such as cc+sbu."""
    validation: str = "val"
    """Split by which the best weights are chosen."""
    records: PositiveInt | None = None
    """Train on so many records only, chosen by training.seed; null: all."""
    validation_records: PositiveInt = 200
    """Records of the validation split that are used, from its beginning."""
    max_words: PositiveInt = 20
    """Tokens of a text at most; what is longer is cut."""
    vocabulary: str | None = None
    """Path of a vocab.txt; null: the start's own, or one learnt from the texts."""
    lowercase: bool = True
    """Whether texts are lower-cased; false for a cased vocab.txt, such as bert-base-cased."""
    tokens: Literal["wordpiece", "bpe"] = "wordpiece"
    """Kind of the vocabulary that is learnt where none is given."""
    answers_most: PositiveInt | None = None
    """Answers that VQA chooses among at most, the most frequent of the training split; null: all."""
    answers_at_least: PositiveInt = 1
    """Questions of the training split that must have an answer as their most frequent one for it to be among them."""
    pixels_shorter: PositiveInt = 600
    """Pixels of a picture's shorter side, where the model reads pixels (model.network)."""
    pixels_longer: PositiveInt = 1000
    """Pixels of a picture's longer side at most, where the model reads pixels."""
    pixels_colours: Colours = "rgb"
    """Order of the colours: rgb as torchvision's weights read them, or bgr as Caffe's."""
    mirror: PartialShare = 0.0
    """Share of samples that are mirrored, with left and right swapped in their texts."""
    text: str | None = None
    """Path of a text file, a sentence a line, to pre-train on beside the pictures; null: none."""
    text_share: PositiveShare = 0.5
    """Share of each batch that comes from the text file; 1: all of it."""
    text_words: PositiveInt = 64
    """Tokens of a sample of the text file."""
    text_joined: bool = True
    """Whether a sample of the text file runs on over lines; false: it is one line, ended by [SEP]."""


class Recipe(BaseModel):
    """The resolved choice of a run. `name` says which preset it began as."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    name: str
    """Name of the recipe that the run began as."""
    system: str
    """System whose model is trained."""
    task: str
    """What is learnt."""
    model: SerializeAsAny[ModelConfig]
    init: str | None = None
    """Weights to begin from: a BERT, UniLM or Unified VLP file or folder, or a hub id; none: random."""
    network_init: str | None = None
    """What model.network begins as: a Faster R-CNN's folder, or a file with its ResNet; null: random."""
    objectives: SerializeAsAny[Objectives]
    optimizer: OptimizerConfig
    training: TrainingConfig
    decoding: DecodingOptions = Field(default_factory=DecodingOptions)
    data: DataConfig = Field(default_factory=DataConfig)

    @field_validator("init")
    @classmethod
    def _begins(cls, init: str | None) -> str | None:
        return None if init == "none" else init

    @property
    def wants_init(self) -> bool:
        """Whether `init` names what the paper begins from, and no file yet."""
        return self.init is not None and self.init.startswith(OF_PAPER)

    @property
    def wants_model(self) -> bool:
        """Whether that is a model of another recipe."""
        return self.wants_init and "/" in str(self.init)

    def check_begun(self) -> None:
        """Raises RecipeError where the paper begins from weights that nobody has given."""
        if not self.wants_init:
            return
        what = str(self.init).removeprefix(OF_PAPER)
        out = what.rpartition("/")[2].upper()
        given = f"{what} ({PUBLISHED.get(what, 'its file')}): --set init=FILE --set data.vocabulary=vocab.txt"
        trained = f"a model of {what}: diptych pretrain {what} --out {out}, then --model {out}"
        raise RecipeError(
            f"{self.name} begins, as in the paper, from {trained if self.wants_model else given}; or give a model "
            "(--model), or begin from nothing with --set init=none"
        )

    @field_validator("task")
    @classmethod
    def _known_task(cls, task: str) -> str:
        if task not in TASKS:
            raise ValueError(f"no task {task!r}; {nearest(task, TASKS)}")
        return task

    @field_validator("system")
    @classmethod
    def _known(cls, system: str) -> str:
        return named_system(system)

    @field_validator("model", mode="before")
    @classmethod
    def _of_its_system(cls, value: Any, others: ValidationInfo) -> Any:
        return value if not isinstance(value, dict) else system_of(others).config.model_validate(value)

    @field_validator("objectives", mode="before")
    @classmethod
    def _of_their_kind(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        kind = value.get("kind")
        if not isinstance(kind, str) or kind not in OBJECTIVES:
            raise ValueError(f"no objectives are of the kind {kind!r}; {nearest(str(kind), OBJECTIVES)}")
        return OBJECTIVES[kind].model_validate(value)

    def override(self, assignments: Sequence[str]) -> Self:
        """With dotted keys set, such as `optimizer.lr=3e-4`. Unknown keys are refused with the nearest name."""
        values = self.model_dump(mode="json")
        for text in sorted(assignments, key=lambda given: given.partition("=")[0] not in WHOLE):
            _assign(values, *assignment(text, "optimizer.lr=3e-4"))
        made = parse(type(self), values, "--set " + " --set ".join(assignments))
        provided = SYSTEMS[made.system].model.provided(made.model)
        made.objectives.schedule(ANY_WORDS).check(provided, made.system)
        return made

    def save(self, folder: Path) -> None:
        write_atomically(folder / FILE, (self.model_dump_json(indent=2) + "\n").encode())

    @classmethod
    def load(cls, folder: Path) -> Self:
        path = folder / FILE
        try:
            values = parse_json(text_of(path))
        except (OSError, ValueError) as error:
            raise RecipeError(f"{path} is no recipe ({error}); a model folder and a run folder hold one") from error
        return parse(cls, values, str(path))

    def differences(self, other: Recipe, without: Collection[str] = ()) -> list[str]:
        """`optimizer.lr: 0.0003, was 0.0001`, one line for each key that differs, but those left out."""
        return differences(self.model_dump(mode="json"), other.model_dump(mode="json"), without)

    @property
    def bound(self) -> dict[str, Any]:
        """What a run shares with its checkpoints. Defaults are left out: a setting that a later version adds stops no
        run."""
        chosen = self.model_dump(mode="json", exclude_defaults=True) | {"kind": self.objectives.kind}
        training = {name: value for name, value in chosen["training"].items() if f"training.{name}" not in CHANGEABLE}
        return chosen | {"training": training}


def named_system(system: str) -> str:
    """The name, if it is in SYSTEMS. Raises ValueError with the nearest one that is."""
    if system not in SYSTEMS:
        raise ValueError(f"no system {system!r}; {nearest(system, SYSTEMS)}")
    return system


def system_of(others: ValidationInfo) -> System:
    """The system that a validator's other fields name. Raises ValueError where they name none."""
    if others.data.get("system") is None:
        raise ValueError("cannot be read without the system it belongs to; see system")
    return SYSTEMS[others.data["system"]]


def parse(kind: type[M], values: Any, where: str) -> M:
    """The typed form of what a file or a command line holds; all that is wrong with it in one RecipeError."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        lines = [_explain(kind, problem, values) for problem in error.errors()]
        raise RecipeError(f"{where}: " + "; ".join(lines)) from error


def claim(out: Path, recipe: Recipe) -> None:
    """Make `out` the folder of this recipe's run, or of one that it goes on with."""
    if not claimed(out, recipe) or Recipe.load(out) != recipe:
        out.mkdir(parents=True, exist_ok=True)
        recipe.save(out)


def claimed(out: Path, recipe: Recipe) -> bool:
    """Whether a run of this recipe lies there, or one that it can go on with. Raises RecipeError, with the difference,
    where it is another's."""
    if not (out / FILE).exists():
        return False
    there = Recipe.load(out)
    lines = recipe.differences(there, without=CHANGEABLE)
    if recipe.training.steps < there.training.steps:
        lines.append(f"training.steps: {recipe.training.steps}, was {there.training.steps}, and a run may only grow")
    refuse_other(out, "a run of another recipe", lines)
    return True


def _assign(values: dict[str, Any], key: str, text: str) -> None:
    if key == FREE or key.startswith(f"{FREE}."):
        _assign_free(values["optimizer"], key.removeprefix(FREE).removeprefix("."), text)
        return
    if key in WHOLE and (key == TAUGHT or text != values[TAUGHT]["kind"]):
        values[TAUGHT] = _objectives_of(text, key, values["task"])
        return
    *path, last = key.split(".")
    here, seen = values, ""
    for name in path:
        seen = f"{seen}.{name}".lstrip(".")
        if not isinstance(here.get(name), dict):
            raise RecipeError(f"--set {key}: no section {seen!r}; {nearest(name, here)}")
        here = here[name]
    if last not in here:
        raise RecipeError(f"--set {key}: no key {last!r} in {seen or 'the recipe'}; {nearest(last, here)}")
    if isinstance(here.get(last), dict):
        raise RecipeError(f"--set {key}: that is a section; set one of its keys: {', '.join(sorted(here[last]))}")
    here[last] = value_of(text)


def _objectives_of(system: str, key: str, task: str) -> dict[str, Any]:
    """Those of a system's paper with their defaults, whose keys can be set after that."""
    systems = SYSTEMS.keys() & OBJECTIVES.keys()
    if system not in systems:
        raise RecipeError(
            f"--set {key}={system}: wanted a system, to learn by its objectives; {nearest(system, systems)}"
        )
    if not TASKS[task].pretrains:
        raise RecipeError(
            f"--set {key}={system}: objectives are chosen in pre-training (diptych pretrain); in fine-tuning a model "
            f"learns what the task asks, {task}"
        )
    return OBJECTIVES[system](kind=system).model_dump(mode="json")


def _assign_free(optimizer: dict[str, Any], prefix: str, text: str) -> None:
    """One of the groups, whose name may have dots (`regions.network.`), or all of them as JSON."""
    value = value_of(text)
    if prefix:
        optimizer["lr_multipliers"][prefix] = value
        return
    if not isinstance(value, dict):
        raise RecipeError(
            f'--set {FREE}={text}: wanted {FREE}.PREFIX=NUMBER, or all groups as JSON: {FREE}={{"regions.": 0.1}}'
        )
    optimizer["lr_multipliers"] = value


def _explain(kind: type[BaseModel], problem: Any, values: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"]) or kind.__name__
    if problem["type"] == "extra_forbidden":
        *path, last = problem["loc"]
        return f"unknown key {key}; {nearest(str(last), _fields(kind, path, values))}"
    return explain(key, problem)


def _fields(kind: type[BaseModel], path: Sequence[Any], values: Any) -> list[str]:
    for name in path:
        inner: Any = kind.model_fields[str(name)].annotation
        # A section of an unknown system or kind is refused as a whole, so both are known here.
        if inner is ModelConfig:
            inner = SYSTEMS[values["system"]].config
        elif inner is ResolvedConfig:
            inner = SYSTEMS[values["system"]].resolved
        elif inner is Objectives:
            inner = OBJECTIVES[values["objectives"]["kind"]]
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        kind = inner
    return list(kind.model_fields)
