"""Write the programs of a model to a folder, with the settings that the runner needs (`diptych export`)."""

import json
import logging
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import getsource
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from diptych.core import Writer
from diptych.data.store.tokens import FILE as TOKENS
from diptych.inference.model_facts import offered_tasks
from diptych.runs.folder import ModelFolder
from diptych.runtime.devices import choose_precision
from diptych.runtime.errors import DataError, ServingError
from diptych.runtime.extras import requires_extra
from diptych.runtime.files import check_name
from diptych.runtime.outputs import refuse_replaced, whole_folder
from diptych.systems import SYSTEMS
from diptych.tasks import interfaces
from diptych.tasks.answers import UNKNOWN
from diptych.vision.detectors.detector import Traceable, TracedDetector
from diptych.vision.detectors.load import load_detector
from diptych_serve.export.programs import REGIONS, AnswerProgram, Begin, Follow, check_exportable, example_regions

Format = Literal["torch", "onnx"]
FACTS, RUNNER = "program.json", "run.py"
ENDINGS = {"torch": "pt2", "onnx": "onnx"}
IMPORT = re.compile(r"^from (diptych\S*) import (?:\([^)]*\)|.*)\n", re.MULTILINE)
DATA_ERROR = 'class DataError(ValueError):\n    """A file that cannot be read."""\n'
INLINE = 2**30  # maximum size in bytes of the weights in an .onnx file; larger models get a second file


def export(folder: ModelFolder, out: Path, form: Format, report: Callable[[str], object] = print) -> list[str]:
    """Write the programs of a model for captions or for answers, and return their names.

    Raises ServingError if the model cannot be exported, and OutputError if `out` contains other files.
    """
    check_name(out)
    task = _task(folder)
    check_exportable(folder.architecture.config, folder.folder)
    reduced = form == "torch" and choose_precision("auto", torch.device("cpu")) == "bf16"  # onnxruntime lacks bf16
    detector = _detector(folder, reduced)
    refuse_replaced(out, "programs")
    if form == "onnx":
        with requires_extra("--format onnx", "export"):
            import onnxscript  # noqa: F401
    with whole_folder(out, "programs") as temporary:
        made = []
        for name, program, inputs, names, outputs, dynamic in _programs(folder, detector, task):
            report(f"tracing {name}")
            _write(program, inputs, names, outputs, dynamic, temporary / f"{name}.{ENDINGS[form]}", form)
            made.append(name)
        facts = {"format": form, "programs": made, **_facts(folder, detector)}
        (temporary / FACTS).write_text(json.dumps(facts, indent=1, ensure_ascii=False), "utf-8")
        shutil.copyfile(folder.folder / TOKENS, temporary / TOKENS)
        (temporary / RUNNER).write_text(runner_source(), "utf-8")
    return made


def runner_source() -> str:
    """Return run.py: runner.py, in which the imports from Diptych are replaced by the source of the modules."""
    copied: set[str] = set()

    def source(name: str) -> str:
        if name in copied:
            return ""
        copied.add(name)
        text = DATA_ERROR if name == DataError.__module__ else getsource(import_module(name))
        return IMPORT.sub(lambda line: source(line[1]), text)

    return source("diptych_serve.export.runner")


def _task(folder: ModelFolder) -> str:
    """Return the task to export, captions or answers. Raises ServingError for models of other tasks."""
    tasks = [kind for task in offered_tasks(folder) if (kind := interfaces()[task].programs) is not None]
    if not tasks or (tasks[0] == "captions" and not isinstance(folder.model, Writer)):
        raise ServingError(
            f"{folder.name} was trained for neither captions nor questions, and only these can be exported; train "
            f"it: diptych finetune caption --model {folder.name}"
        )
    if tasks[0] == "answers" and not folder.model.answers_exported:
        able = ", ".join(name for name, entry in SYSTEMS.items() if entry.model.answers_exported)
        raise ServingError(
            f"answers can be exported for {able}, but {folder.name} is a model of {folder.architecture.system}; "
            "captions can be exported for every system with a decoder"
        )
    return tasks[0]


def _detector(folder: ModelFolder, reduced: bool) -> TracedDetector:
    if folder.detector is None:
        raise ServingError(f"{folder.name} has no detector/ folder to find regions with; copy its detector there")
    detector = load_detector(folder.detector)
    traced = detector.traced(reduced) if isinstance(detector, Traceable) else None
    if traced is None:
        raise ServingError(
            f"{folder.name} uses detector {folder.contract.extractor}; only the Storybook detector, NanoDet, CenterNet "
            "and grids can be exported, without networks in ONNX files"
        )
    return traced


TracedProgram = tuple[str, nn.Module, tuple[Tensor, ...], tuple[str, ...], tuple[str, ...], Any]


def _programs(folder: ModelFolder, detector: TracedDetector, task: str) -> Iterator[TracedProgram]:
    """Yield the programs: name, module, example inputs, names of inputs and outputs, and the dynamic dimensions."""
    any_size = torch.export.Dim.DYNAMIC
    rows, pairs = {0: any_size}, {0: any_size, 1: any_size}
    config, contract, side = folder.architecture.config, folder.contract, detector.side
    squares = torch.zeros(2, 3, side, side, dtype=torch.uint8)
    yield "detect", detector.program, (squares,), ("squares",), detector.outputs, (rows,)
    if detector.maps is not None:
        side = detector.settings["maps"]
        yield "maps", detector.maps, (squares.new_zeros(2, 3, side, side),), ("squares",), ("map",), (rows,)
    whole = (contract.whole_size or config.feature_size) if contract.whole else 0
    regions = example_regions(3, 5, config.feature_size, len(contract.class_names), whole)
    of_regions = (pairs, pairs, rows, pairs, pairs, pairs, rows)
    if task == "answers":
        text = torch.full((3, 7), config.vocabulary.sep)
        inputs = (text, torch.ones(3, 7, dtype=torch.bool), *regions)
        names = ("text", "text_present", *REGIONS)
        yield "answer", AnswerProgram(folder.model), inputs, names, ("logits",), (pairs, pairs, of_regions)
        return
    begin = Begin(folder.model)
    yield "begin", begin, regions, REGIONS, ("first_scores", "closed", "read", "written"), (of_regions,)
    with torch.no_grad():
        follow = Follow.of(folder.model, regions)
        first, closed, read, written = begin(*regions)
        words = first.argmax(-1)
        for _ in range(3):  # generate a few words, so that tracing does not start with an empty text
            _, written = follow(words, closed, read, written)
    dynamic = (rows, {0: any_size, 3: any_size}, {1: any_size, 3: any_size}, {1: any_size, 4: any_size})
    state = ("words", "closed", "read", "written")
    yield "follow", follow, (words, closed, read, written), state, ("next_scores", "more"), dynamic


def _write(
    program: nn.Module, inputs: tuple[Tensor, ...], names: tuple[str, ...], outputs: tuple[str, ...], dynamic: Any,
    path: Path, form: Format,
) -> None:  # fmt: skip
    config: Any = import_module("torch.fx.experimental._config")
    with torch.no_grad(), _quiet(), config.patch(backed_size_oblivious=True):  # allow sizes 0 and 1 too
        traced = torch.export.export(program.eval(), inputs, dynamic_shapes=dynamic, strict=False)
        if form == "torch":
            content = BytesIO()  # torch ends the process if the disk is full
            torch.export.save(traced, content)
            path.write_bytes(content.getbuffer())
            return
        size = sum(tensor.numel() * tensor.element_size() for tensor in program.state_dict().values())
        torch.onnx.export(
            traced, (), path, input_names=names, output_names=outputs, dynamo=True, verbose=False,
            external_data=size > INLINE,
        )  # fmt: skip


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the exporter's warnings. Tests compare the outputs of programs and models (docs/sharing.md)."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)


def _facts(folder: ModelFolder, detector: TracedDetector) -> dict[str, Any]:
    """Return the settings for the runner: vocabulary, lengths, answers and detector."""
    recipe, config, vocabulary = folder.recipe, folder.architecture.config, folder.tokens.vocabulary
    assert recipe is not None
    return {
        "system": folder.architecture.system,
        "recipe": recipe.name,
        "vocabulary": {name: getattr(vocabulary, name) for name in ("pad", "unknown", "cls", "sep", "mask")},
        "max_words": recipe.decoding.max_words if folder.answers is None else recipe.data.max_words,
        "min_words": recipe.decoding.min_words,
        "no_repeat_ngram": recipe.decoding.no_repeat_ngram,
        "answer_slot": config.answer_slot,
        "answers": None if folder.answers is None else list(folder.answers.names),
        "unknown_first": folder.answers is not None and folder.answers.names[0] == UNKNOWN,
        "max_regions": config.max_regions,
        "detector": detector.settings,
        "contract": folder.contract.to_json(),
    }
