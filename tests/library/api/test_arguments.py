"""Wrong arguments fail at once, before an image is opened, with a sentence that names the argument as Python has it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pandas import DataFrame
from PIL import Image

import diptych
from diptych.api import job, scoring
from diptych.api.arguments import as_python, check_training, python_errors
from diptych.api.job import Options, finetuning
from diptych.cli import run_verb
from diptych.runtime.errors import CheckpointError, DataError, RecipeError

CAPTION = "unified-vlp/small/caption"


@pytest.fixture(autouse=True)
def no_image_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("images were read")

    for place in (job, scoring):
        monkeypatch.setattr(place, "store_of", fail)
    monkeypatch.chdir(tmp_path)


FINETUNE: dict[str, tuple[Any, str]] = {
    "on_log": (3, "on_log: found int '3', expected a function of a dict"),
    "steps": (-1, "steps: found -1, expected a whole number from 1"),
    "batch_size": (True, "batch_size: found True, expected a whole number"),
    "patience": (2.5, "patience: found float '2.5', expected a whole number"),
    "seed": (-1, "seed: found -1, expected a whole number from 0"),
    "epochs": (float("nan"), "epochs: found nan, expected a number above 0"),
    "lr ": (True, "lr: found True, expected a number above 0"),
    "settings ": ("training.ema=0.9", "settings: found str 'training.ema=0.9', expected a dict"),
    "lr": ("fast", "lr: found str 'fast', expected a number above 0"),
    "detector": (3, "detector: found int '3', expected a folder or name"),
    "features": ("none.h5", "features: none.h5 does not exist; expected a file or folder"),
    "out": (3, "out: found int '3', expected a folder"),
    "settings": (3, "settings: found int '3', expected a dict"),
    "recipe": (3, "recipe: found int '3', expected the name"),
}


@pytest.mark.parametrize("name", FINETUNE)
def test_training_names_a_wrong_argument(name: str, world: Path) -> None:
    value, wanted = FINETUNE[name]
    with pytest.raises(RecipeError, match=f"^{wanted}"):
        diptych.finetune("caption", world, "sample", **{name.strip(): value})
    with pytest.raises(RecipeError, match=f"^{wanted}"):
        diptych.pretrain(world, **{"recipe": "unified-vlp/small/pretrain", name.strip(): value})
    assert not list(Path().iterdir())


Call = Callable[[Path], object]
CALLS: list[tuple[Call, type[Exception], str]] = [
    (lambda _: diptych.load(None), CheckpointError, "source: found None, expected a model folder"),  # type: ignore[arg-type]
    (lambda _: diptych.load(3), CheckpointError, "source: found int '3'"),  # type: ignore[arg-type]
    (lambda _: diptych.load(""), CheckpointError, "source: the path is empty; expected a model folder"),
    (lambda _: diptych.finetune("caption", "", "sample"), DataError, "found an empty path; `.` is this folder"),
    (lambda _: diptych.load("sample", device=3), RecipeError, "device: found int '3'"),  # type: ignore[arg-type]
    (lambda _: diptych.load("sample", features="none.h5"), RecipeError, "features: none.h5 does not exist"),
    (lambda _: diptych.load("sample", precision="fp17"), RecipeError, "precision: 'fp17' is unknown; did you mean"),
    (lambda _: diptych.load("sample", revision="v1"), RecipeError, "revision: found 'v1', but sample is a folder"),
    (lambda _: diptych.finetune("caption", _, "sample", without_images="no"), RecipeError, "without_images: found"),  # type: ignore[arg-type]
    (lambda _: diptych.Dataset([1]), DataError, "records: found int '1', expected records or examples"),  # type: ignore[list-item]
    (lambda _: diptych.load("sample").push_to_hub(None), RecipeError, "invalid repository name None; expected user"),  # type: ignore[arg-type]
    (lambda _: diptych.Run(None), CheckpointError, "folder: found None"),  # type: ignore[arg-type]
    (lambda _: diptych.Dataset.read(None), DataError, "path: found None, expected a store"),  # type: ignore[arg-type]
    (lambda world: diptych.Dataset.read(world, "none"), DataError, "images: none does not exist"),
    (lambda _: diptych.Dataset.from_coco(None, "a", split="val"), DataError, "captions: found None"),  # type: ignore[arg-type]
    (lambda world: diptych.finetune("caption", world, 3), CheckpointError, "model: found int '3'"),
    (lambda _: diptych.finetune("caption", 3, "sample"), DataError, "data: found int"),  # type: ignore[arg-type]
    (lambda _: diptych.pretrain({}, recipe="unified-vlp/small/pretrain"), DataError, "data: found an empty dict"),
    (lambda world: diptych.evaluate(None, world), CheckpointError, "model: found None"),
    (lambda world: diptych.evaluate("sample", world, split="tets"), DataError, "split: world has no .* 'tets'; it has"),
    (lambda world: diptych.evaluate("sample", world, task="captoin"), RecipeError, "no task 'captoin'; did you mean"),
    (lambda world: diptych.evaluate("sample", world, task="vqa"), RecipeError, "sample was not trained for vqa; run"),
    (lambda world: diptych.compare("sample", "sample", world, task="vqa"), RecipeError, "sample was not trained for v"),
    (lambda world: diptych.compare("sample", None, world), CheckpointError, "second: found None"),
    (lambda world: diptych.compare("sample", "sample", world, split="val+x"), DataError, "split: world has no .* 'x'"),
    (lambda _: diptych.finetune("caption", DataFrame({"a": [1]}), "sample"), DataError, "data: found DataFrame"),
    (lambda _: diptych.finetune("caption", _, "sample", epochs=1, steps=2), RecipeError,
     "found `epochs` 1 and a number of steps; pass one of the two"),
    (lambda _: diptych.load("sample").caption("none.png", sample=True, beams=2), RecipeError, "decoding: sample"),
    (lambda _: diptych.recipe(CAPTION, steps=-1), RecipeError, "steps: found -1"),
    (lambda _: diptych.recipe(CAPTION, lr=1, settings={"optimizer.lr": 2}), RecipeError, "optimizer.lr is set twice"),
    (lambda _: diptych.recipe(CAPTION, steps=1, settings=["training.steps=2"]), RecipeError, "training.steps is set"),
    (lambda _: diptych.register(task=3), RecipeError, "task: found int '3', expected a TaskSpec"),  # type: ignore[arg-type]
    (lambda _: diptych.load("sample").push_to_hub("a/b", license=3), RecipeError, "license: found int '3'"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CALLS)), ids=lambda number: CALLS[number][2].partition(",")[0])
def test_a_call_names_its_wrong_argument(number: int, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call, kind, wanted = CALLS[number]
    monkeypatch.chdir(world.parent)
    with pytest.raises(kind, match=f"^{wanted}"):
        call(Path(world.name))


def test_numbers_of_numpy_are_numbers() -> None:
    made = diptych.recipe(CAPTION, steps=np.int64(7), lr=np.float32(0.5))  # type: ignore[arg-type]
    assert (made.training.steps, made.optimizer.lr) == (7, 0.5)  # type: ignore[union-attr]
    set_by_key = {"training.steps": np.int64(7), "optimizer.lr": np.float32(0.5)}
    assert diptych.recipe(CAPTION, settings=set_by_key) == made


def test_errors_speak_of_python_in_python_and_of_options_on_the_command_line(world: Path) -> None:
    with pytest.raises(RecipeError) as missing:
        diptych.finetune("caption", world)
    assert "pass model=..., or recipe='SYSTEM/small/caption'" in str(missing.value)
    with pytest.raises(RecipeError) as found:
        diptych.finetune("caption", world, recipe="unified-vlp/caption")
    assert 'settings={"init": "FILE", "data.vocabulary": "vocab.txt"}; or pass a model (`model`)' in str(found.value)
    assert str(found.value).endswith('settings={"init": "none"}')
    with pytest.raises(RecipeError, match=r"--set init=FILE .*\(--model\), .* --set init=none$"):
        finetuning("caption", world, None, "unified-vlp/caption", Options())
    with pytest.raises(RecipeError, match=r'^settings=\{"optimizer.ls": \.\.\.\}: no key'):
        diptych.recipe(CAPTION, settings={"optimizer.ls": 1})


def test_commands_in_an_error_stay_commands() -> None:
    @python_errors
    def failing(split_seed: int, a: int) -> None:
        raise DataError(
            "none: run diptych extract DATA --out STORE, or pass --split-seed; see `diptych x --a b`", key="k"
        )

    with pytest.raises(DataError) as error:
        failing(0, 0)
    said = "none: run diptych extract DATA --out STORE, or pass `split_seed`; see `diptych x --a b` (record k)"
    assert (str(error.value), error.value.key) == (said, "k")


COMMANDS = {  # a wrong request, with what its error names
    "evaluate --task vqa": "was not trained for vqa; run diptych finetune vqa --data DATA --model sample ",
    "evaluate --precision fp17": "diptych: --precision: 'fp17' is unknown; did you mean fp32",
    "evaluate --revision v1": "diptych: --revision: found 'v1', but sample is a folder; leave out the revision",
    "evaluate --task captoin": "no task 'captoin'; did you mean caption",
    "evaluate --task vqa --beams 2": "was not trained for vqa",
    "rank": "was not trained for retrieval",
    "rank --folds 2 --queries 3": "leave out --queries and --shortlist",
    "rank --shortlist-by sample": "pass both",
    "evaluate --top-p 3": "diptych: --top-p: Input should be less than or equal to 1",
    "evaluate --beams 9999": "diptych: --beams 9999 is more than the 535 words of the vocabulary; lower it",
    "submit --format vqa --out a.json": "was not trained for vqa",
    "submit --format coca --out a.json": "--format coca: unknown; did you mean coco",
    "submit --format coco --out a.json --min-words 9 --max-words 2": "--min-words 9 is more than --max-words 2",
}


@pytest.mark.parametrize("words", COMMANDS)
def test_what_cannot_be_scored_is_refused_before_an_image_is_opened(
    words: str, world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_verb([*words.split(), "--model", "sample", "--data", str(world)], debug=False) == 2
    assert COMMANDS[words] in capsys.readouterr().err


def test_a_value_of_a_wrong_type_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {
        "finetune caption --data d --steps many": "'--steps': found 'many', expected a valid integer\n",
        "storybook write --out w --train -3": "'--train': found '-3', expected greater than or equal to 0\n",
    }
    for words, message in wrong.items():
        assert run_verb(words.split(), debug=False) == 2
        assert capsys.readouterr().err.endswith(f"Invalid value for {message}")


@pytest.mark.parametrize("verb", ["evaluate --model sample", "compare sample sample"])
def test_data_without_words_of_the_task_is_refused_before_an_image_is_opened(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("photos").mkdir()
    Image.new("RGB", (8, 8)).save("photos/a.png")
    assert run_verb([*verb.split(), "--data", "photos", "--split", "train"], debug=False) == 1
    wanted = "caption needs captions, but split 'train' of photos has none: found 1 image with no"
    assert wanted in capsys.readouterr().err


@cache
def messages() -> tuple[str, ...]:
    """Return each text of the library that may be an error with an option, with `X` for what is filled in."""
    found = []
    for path in Path(inspect.getfile(diptych)).parent.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        inner = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
        inner |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in inner:
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                text = "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in parts)
                if " " in text and re.search(r"--[a-z]", text) and "(?" not in text:
                    found.append(text)
    return tuple(found)


@pytest.mark.parametrize("call", ["finetune", "pretrain", "evaluate", "compare", "recipe"])
def test_every_message_names_the_arguments_of_the_function_that_raised_it(call: str) -> None:
    own = {name.replace("_", "-"): name for name in inspect.signature(getattr(diptych, call)).parameters}
    rewritten = 0
    for text in messages():
        said = as_python(text, own)
        rewritten += said != text
        dicts = re.findall(r"settings=(\{.*?\})(?=[\s.,:;)]|$)", said.replace("{X}", "X"))
        keys = [key.value for one in dicts for key in ast.parse(one, mode="eval").body.keys]
        if "settings" in own and dicts:
            assert keys == re.findall(r"(?<![^\s(])--set ([^\s=:;,)]+)", text), (text, said)
        commands = re.compile(r"diptych [a-z]+(?: [^;,()`]*)?")
        assert commands.findall(said) == commands.findall(text)
        left = set(re.findall(r"(?<![^\s(`])--([a-z][a-z-]*)(?![\w/=-])", commands.sub("", said)))
        assert not left & own.keys(), (text, said)
    assert rewritten > (0 if call == "recipe" else 5)


@pytest.mark.parametrize("given", [{"lr": 0}, {"epochs": 0.0}])
def test_nothing_is_no_number_above_nothing(given: dict[str, float]) -> None:
    with pytest.raises(RecipeError, match="expected a number above 0"):
        check_training(given)


@pytest.mark.parametrize(("call", "similar"), [(diptych.finetune, "recipe"), (diptych.evaluate, None)])
def test_an_unknown_argument_raises_an_error_with_the_most_similar_names(call: Any, similar: str | None) -> None:
    message = r"finetune\(\) has no argument 'recepie'; did you mean recipe" if similar else "'recepie'; known: "
    with pytest.raises(TypeError, match=message):
        call("model", "data", recepie="x")


def test_a_path_that_has_an_options_name_stays_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    Path("features").mkdir()
    assert run_verb(["score", "features", "--references", "features"], debug=False) == 1
    assert capsys.readouterr().err.startswith("diptych: features: cannot be read (Is a directory)")
