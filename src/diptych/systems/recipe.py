"""Recipes: all settings that determine the results of a run. A recipe is saved as recipe.json in the run's folder."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, SerializeAsAny, ValidationError, ValidationInfo
from pydantic.functional_validators import field_validator

from diptych.core import Task, Vocabulary
from diptych.core.contract import Part
from diptych.core.shares import PartialShare, PositiveShare
from diptych.data.store.pixels import Colours, Pixels
from diptych.data.store.tokens import Tokens
from diptych.models import ModelConfig, ResolvedConfig
from diptych.models.decoding import DecodingOptions
from diptych.objectives.settings import Objectives
from diptych.runtime.claims import differences
from diptych.runtime.configs import assignment, explain, value_of
from diptych.runtime.errors import RecipeError, counted, explained, nearest
from diptych.runtime.files import parse_json, text_of, write_atomically
from diptych.runtime.plugins import note_use, unknown_name
from diptych.systems.system import OBJECTIVES, SYSTEMS, System
from diptych.tasks import TASKS, TaskSpec, find_task
from diptych.tasks.answers import Answers
from diptych.tasks.spec import TaskOptions
from diptych.training.config import OptimizerConfig, TrainingConfig

FILE = "recipe.json"
# `--set objectives=SYSTEM` replaces the whole section, so it is applied before all other settings.
REPLACED = ("objectives", "objectives.kind")
MULTIPLIERS = "optimizer.lr_multipliers"  # its keys are chosen by the user: prefixes of parameter names
# Settings that may change when a run is resumed: its length, its output, and how it is computed.
_LENGTH, _OUTPUT = ("steps", "patience"), ("log_every", "tensorboard", "checkpoint_every", "keep")
_COMPUTATION = ("threads", "compile", "loading_threads", "loading_processes")
CHANGEABLE = frozenset(f"training.{name}" for name in (*_LENGTH, *_OUTPUT, *_COMPUTATION))
M = TypeVar("M", bound=BaseModel)
# In recipes of the papers, `init` is a placeholder until the user gives a file. Examples are `paper: BERT base`, and
# `paper: xgpt/text` for the model of another recipe. So is `network_init`, but for OF_STORE: layers of the store's
# detector, where it has them. PUBLISHED: where to find the weights.
OF_PAPER = "paper: "
OF_STORE = "paper: the detector of the store"
PUBLISHED = {
    "ResNet-101 of a Visual Genome detector": "resnet101-pt-vgbua-0000.model, which VL-BERT's repository names",
    "BERT base": "bert-base-uncased on the hub, with its vocab.txt",
    "BERT large": "bert-large-uncased on the hub, with its vocab.txt",
    "UniLM": "LuoweiZhou/VLP's base_model_pretrained/model_153999_cpu.bin, whose vocab.txt is bert-base-cased's",
}
# Placeholder vocabulary, so that objectives can be built before a tokeniser exists.
ANY_WORDS = Vocabulary(size=5, pad=0, unknown=1, cls=2, sep=3, mask=4)
# {head: the part of stored regions that it learns to predict}
TARGETS: dict[str, Part] = {"region_class": "classes", "seen_class": "classes", "region_feature": "features"}


class DataConfig(BaseModel):
    """The records for training and validation, and how their texts and images are read."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    split: str = "train"
    """Split to train on, or several splits joined by +, such as cc+sbu."""
    validation: str = "val"
    """Split for validation, by which the best weights are chosen."""
    records: PositiveInt | None = None
    """Number of records to train on, chosen by training.seed; null: all."""
    validation_records: PositiveInt | None = None
    """Number of records of the validation split that are used, from its beginning; null: all."""
    max_words: PositiveInt = 20
    """Maximum number of tokens of a text; longer texts are cut."""
    vocabulary: str | None = None
    """Path of a vocab.txt; null: the vocabulary of the initial weights, or one learnt from the texts."""
    lowercase: bool = True
    """Whether texts are lower-cased; false for a cased vocab.txt, such as bert-base-cased."""
    split_words: bool = False
    """Whether captions are scored with words split as in BERT (t - shirt), like the papers' code. For a vocab.txt."""
    tokens: Literal["wordpiece", "bpe"] = "wordpiece"
    """Kind of the vocabulary that is learnt if none is given."""
    answers_most: PositiveInt | None = None
    """Number of answers that VQA chooses from: the most frequent ones of the training split; null: all."""
    answers_at_least: PositiveInt = 1
    """Minimum number of training questions whose most frequent answer an answer must be, to be a choice in VQA."""
    images: bool = True
    """Whether the model sees the images; false: regions are blank, a control that learns from the texts alone."""
    pixels_shorter: PositiveInt = 600
    """Pixels of an image's shorter side, for models that read pixels (model.network)."""
    pixels_longer: PositiveInt = 1000
    """Maximum number of pixels of an image's longer side, for models that read pixels."""
    pixels_colours: Colours = "rgb"
    """Order of the colours: rgb for torchvision's weights, or bgr for Caffe's."""
    mirror: PartialShare = 0.0
    """Share of samples whose images are mirrored, with left and right swapped in their texts."""
    text: str | None = None
    """Path of a text file with one sentence per line, to pre-train on in addition to the images; null: none."""
    text_share: PositiveShare = 0.5
    """Share of each batch that comes from the text file; 1: the whole batch."""
    text_words: PositiveInt = 64
    """Number of tokens in a sample of the text file."""
    text_joined: bool = True
    """Whether a sample of the text file spans several lines; false: it is one line, followed by [SEP]."""


class Recipe(BaseModel):
    """All settings of a run. `name` is the name of the preset."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    name: str
    """Name of the preset that the settings came from."""
    system: str
    """System whose model is trained."""
    task: str
    """Task that is trained."""
    model: SerializeAsAny[ModelConfig]
    init: str | None = None
    """Initial weights: a BERT, UniLM or Unified VLP file, folder, zip or wheel, or a hub id; none: random."""
    network_init: str | None = None
    """Initial weights of model.network or fc7: a detector's folder, or a file with a ResNet or fc7; none: random."""
    objectives: SerializeAsAny[Objectives]
    optimizer: OptimizerConfig
    training: TrainingConfig
    decoding: DecodingOptions = Field(default_factory=DecodingOptions)
    data: DataConfig = Field(default_factory=DataConfig)

    def __repr__(self) -> str:
        what = f"{self.name[:100]}: {self.system[:30]} for {self.task[:30]}"
        how = f"{counted(self.training.steps, 'steps')} of {self.training.batch}, lr {self.optimizer.lr:g}"
        return f"<diptych.Recipe {what}, {how}; .model_dump() has all keys>"

    @property
    def pixels(self) -> Pixels | None:
        """Return how images are read as pixels, or None if the model does not read pixels."""
        if not self.model.reads_pixels:
            return None
        data = self.data
        return Pixels(data.pixels_shorter, data.pixels_longer, data.pixels_colours, not data.images)

    @property
    def reads(self) -> frozenset[Part]:
        """Return the parts of stored regions that training reads: the model's inputs, and targets of the objectives."""
        note_use({"objectives": [self.objectives.kind]})
        heads = TARGETS.keys() & self.objectives.schedule(ANY_WORDS).heads
        return self.model.reads | {TARGETS[head] for head in heads}

    def task_with(self, tokens: Tokens, answers: Answers | None, spec: TaskSpec | None = None) -> Task:
        """Build the recipe's task, or the task `spec`, with the recipe's settings."""
        shape, objectives, spec = self.model, self.objectives, spec or find_task(self.task)
        answers = answers if answers is not None and answers.task == spec.name else None
        options = TaskOptions(
            tokens, answers, self.decoding, self.data.max_words, self.data.split_words, shape.max_regions,
            shape.answer_slot, objectives.answer_form, objectives.reads_pairs,
        )  # fmt: skip
        note_use({"objectives": [objectives.kind], "tasks": [spec.name]})
        return spec.build(options)

    @property
    def wanted(self) -> dict[str, str]:
        """Return the placeholders among `init` and `network_init`, such as `paper: BERT base`, by setting."""
        named = (("init", self.init or ""), ("network_init", self.network_init or ""))
        return {name: value for name, value in named if value.startswith(OF_PAPER)}

    @property
    def wants_model(self) -> bool:
        """Return True if `init` is a placeholder for the model of another recipe, such as `paper: xgpt/text`."""
        return "/" in self.wanted.get("init", "")

    def check_begun(self) -> None:
        """Raise RecipeError if `init` or `network_init` is still a placeholder for the paper's initial weights."""
        for name in (name for name, weights in self.wanted.items() if weights != OF_STORE):
            what = self.wanted[name].removeprefix(OF_PAPER)
            out, words = what.rpartition("/")[2].upper(), " --set data.vocabulary=vocab.txt" * (name == "init")
            given = f"{what} ({PUBLISHED.get(what, 'its file')}): --set {name}=FILE{words}"
            trained = f"a model of {what}: diptych pretrain {what} --out {out}, then --model {out}"
            raise RecipeError(
                f"{self.name} starts, as in the paper, from {trained if '/' in what else given}; or pass a model "
                f"(--model), or start from random weights with --set {name}=none"
            )

    @field_validator("init", "network_init")
    @classmethod
    def _none_is_random(cls, init: str | None, others: ValidationInfo) -> str | None:
        reads = others.field_name == "init" or getattr(others.data.get("model"), "begins_from_detector", False)
        return None if init == "none" or (not reads and str(init).startswith(OF_PAPER)) else init

    @field_validator("task")
    @classmethod
    def _known_task(cls, task: str) -> str:
        if task not in TASKS:
            raise unknown_name(f"no task {task!r}; {nearest(task, TASKS)}", ValueError)
        return task

    @field_validator("system")
    @classmethod
    def _known_system(cls, system: str) -> str:
        return named_system(system)

    @field_validator("model", mode="before")
    @classmethod
    def _model_of_system(cls, value: Any, others: ValidationInfo) -> Any:
        return value if not isinstance(value, dict) else system_of(others).config.model_validate(value)

    @field_validator("objectives", mode="before")
    @classmethod
    def _objectives_of_kind(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        kind = value.get("kind")
        if not isinstance(kind, str) or kind not in OBJECTIVES:
            raise unknown_name(f"no objectives have kind={kind!r}; {nearest(str(kind), OBJECTIVES)}", ValueError)
        return OBJECTIVES[kind].model_validate(value)

    def override(self, assignments: Sequence[str]) -> Self:
        """Return the recipe with dotted keys set, such as `optimizer.lr=3e-4`.

        Setting training.steps sets training.epochs to null.

        Raises RecipeError for unknown keys (with the nearest name), for invalid values, and for objectives that the
        model cannot train.
        """
        values = self.model_dump(mode="json")
        if any(text.partition("=")[0] == "training.steps" for text in assignments):
            values["training"]["epochs"] = None
        for text in sorted(assignments, key=lambda given: given.partition("=")[0] not in REPLACED):
            _assign(values, *assignment(text, "optimizer.lr=3e-4"))
        made = parse(type(self), values, "--set " + " --set ".join(assignments))
        model = SYSTEMS[made.system].model
        made.objectives.schedule(ANY_WORDS).check(model.provided(made.model), made.system, model)
        return made

    def save(self, folder: Path) -> None:
        """Write recipe.json to `folder`."""
        write_atomically(folder / FILE, (self.model_dump_json(indent=2) + "\n").encode())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read recipe.json from the folder of a run or model. Raises RecipeError if it is missing or invalid."""
        path = folder / FILE
        with explained(RecipeError, f"{path} is not a recipe", "pass a model folder or a run folder"):
            values = parse_json(text_of(path))
        return parse(cls, values, str(path))

    def differences(self, other: Recipe, without: Collection[str] = ()) -> list[str]:
        """Return a line for each key that differs, such as `optimizer.lr: 0.0003, was 0.0001`.

        Keys in `without` are skipped.
        """
        return differences(self.model_dump(mode="json"), other.model_dump(mode="json"), without)

    @property
    def bound(self) -> dict[str, Any]:
        """Return the settings that must be equal in a checkpoint and in the run that resumes it.

        Settings with default values are left out. So old checkpoints can still be resumed after a new setting is added
        to Diptych. A changed default is detected when recipe.json is compared.
        """
        own = self.model_dump(mode="json", exclude_defaults=True, exclude={"data": {"validation_records"}})
        chosen = {key: value for key, value in own.items() if (key, value) != ("data", {})}
        chosen["kind"] = self.objectives.kind
        training = {name: value for name, value in chosen["training"].items() if f"training.{name}" not in CHANGEABLE}
        return chosen | {"training": training}


def named_system(system: str) -> str:
    """Return `system` if it is a name in SYSTEMS. Otherwise raise ValueError with the most similar name."""
    if system not in SYSTEMS:
        raise unknown_name(f"no system {system!r}; {nearest(system, SYSTEMS)}", ValueError)
    return system


def system_of(others: ValidationInfo) -> System:
    """Return the system that the validated field `system` names.

    Raises ValueError if this field is missing or invalid.
    """
    if others.data.get("system") is None:
        raise ValueError("cannot be checked, because the field `system` is missing or invalid; correct `system`")
    return SYSTEMS[others.data["system"]]


def parse(kind: type[M], values: Any, where: str) -> M:
    """Validate values from a file or the command line. Return a config of class `kind`.

    Raises one RecipeError that lists all problems. `where`: the file or option that the values come from.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        lines = [_explain(kind, problem, values) for problem in error.errors()]
        raise RecipeError(f"{where}: " + "; ".join(lines)) from error


def _assign(values: dict[str, Any], key: str, text: str) -> None:
    """Set a dotted key in `values`, the JSON form of a recipe. `text` is the value as typed."""
    value = value_of(text)
    if key == MULTIPLIERS and not isinstance(value, dict):
        raise RecipeError(f'--set {key}={text}: expected {key}.PREFIX=NUMBER, or JSON: {key}={{"regions.": 0.1}}')
    if key in REPLACED and (key == "objectives" or text != values["objectives"]["kind"]):
        values["objectives"] = _objectives_of(text, key, values["task"])
        return
    # The key of a multiplier is a prefix of parameter names, which may contain dots (`regions.network.`).
    prefix = key.removeprefix(f"{MULTIPLIERS}.")
    *path, last = key.split(".") if prefix == key else (*MULTIPLIERS.split("."), prefix)
    section = values
    for depth, name in enumerate(path):
        if not isinstance(section.get(name), dict):
            raise RecipeError(f"--set {key}: no section {'.'.join(path[: depth + 1])!r}; {nearest(name, section)}")
        section = section[name]
    if prefix == key and last not in section:
        inside = [f"{name}.{last}" for name, inner in section.items() if isinstance(inner, dict) and last in inner]
        known = f"did you mean {' or '.join(inside)}?" if inside else nearest(last, section)
        raise RecipeError(f"--set {key}: no key {last!r} in {'.'.join(path) or 'the recipe'}; {known}")
    if isinstance(section.get(last), dict) and key != MULTIPLIERS:
        raise RecipeError(f"--set {key}: {key} is a section; set one of its keys: {', '.join(sorted(section[last]))}")
    section[last] = value


def _objectives_of(system: str, key: str, task: str) -> dict[str, Any]:
    """Return the default objectives of a system, for `--set objectives=SYSTEM`.

    `key` is the option's key, for errors.
    """
    systems = SYSTEMS.keys() & OBJECTIVES.keys()
    if system not in systems:
        wanted = f"expected the system that has the wanted objectives; {nearest(system, systems)}"
        raise unknown_name(f"--set {key}={system}: {wanted}")
    if not TASKS[task].pretrains:
        raise RecipeError(f"--set {key}={system} is for pre-training, but the recipe trains {task}; leave it out")
    return OBJECTIVES[system](kind=system).model_dump(mode="json")


def _explain(kind: type[BaseModel], problem: Any, values: Any) -> str:
    """Return one line that describes a problem found by pydantic.

    For an unknown key, the line suggests the most similar key.
    """
    key = ".".join(str(part) for part in problem["loc"]) or kind.__name__
    if problem["type"] == "extra_forbidden":
        *path, last = problem["loc"]
        return f"unknown key {key}; {nearest(str(last), _fields(kind, path, values))}"
    return explain(key, problem)


def _fields(kind: type[BaseModel], path: Sequence[Any], values: Any) -> list[str]:
    """Return the names of the keys in the section `path` of a recipe."""
    for name in path:
        inner: Any = kind.model_fields[str(name)].annotation
        # Unknown systems and kinds of objectives were reported earlier, so both are known here.
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
