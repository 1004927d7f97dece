"""Runs from Python: begun, repeated, stopped, resumed and refused."""

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from diptych.api.dataset import Dataset
from diptych.api.run import Run
from diptych.api.scoring import compare
from diptych.api.training import finetune, pretrain, recipe, register
from diptych.cli import run_verb
from diptych.core import Record
from diptych.data.extract.own_data import store_of
from diptych.data.store.store import Store
from diptych.data.store.tokens import Tokens
from diptych.runtime.configs import derive
from diptych.runtime.errors import CheckpointError, DataError, DiptychError, RecipeError
from diptych.runtime.files import SETTLED
from diptych.runtime.lock import held
from diptych.systems import RECIPES, find_recipe
from tests.library.api.conftest import TINY
from tests.support import zygote
from tests.support.learning import learner_of

CAPTION = "unified-vlp/small/caption"


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def pretrained(world: Path, detector: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("pretrained") / "run"
    settings = TINY | {"data.split": "train"}
    return pretrain(
        world, recipe="unified-vlp/small/pretrain", out=out, detector=detector, steps=2, batch_size=8, settings=settings
    )


def test_a_run_has_its_metrics_curves_and_model(pretrained: Run, world: Path) -> None:
    lines: list[dict[str, Any]] = []
    run = finetune("caption", world, pretrained.model, steps=4, batch_size=8, lr=1e-3, seed=3, on_log=lines.append,
                   settings={"training.validate_every": 4, "training.log_every": 2})  # fmt: skip
    assert run.folder.parent == Path("runs")
    assert run.folder.name.startswith("caption-")
    assert (run.recipe.training.batch, run.recipe.optimizer.lr, run.recipe.training.seed) == (8, 1e-3, 3)
    assert [line["step"] for line in lines] == [2, 4] == [row["step"] for row in run.metrics]
    assert lines == list(run.metrics)
    assert {"total", "lr", "losses/masked_queries", "validation/CIDEr"} <= lines[-1].keys()
    table = run.metrics.to_pandas()
    assert table["validation/CIDEr"].isna().tolist() == [True, False]
    assert "<svg" in run.plot()
    run.plot().save("curves.svg")
    with pytest.raises(RecipeError, match=r"^path: found curves.png, expected a name ending in \.svg"):
        run.plot().save("curves.png")
    assert Path("curves.svg").read_text() == str(run.plot())
    assert isinstance(run.model.caption(next(world.rglob("*.png"))), str)
    assert 0 < len(run.model.predictor.folder.architecture.examples) <= 5, "captions of training, for page and card"
    assert repr(run) == f"<diptych.Run {run.folder}: {CAPTION}, finished at step 4>"


def test_the_same_call_returns_the_finished_run(
    pretrained: Run, world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def again(**changes: Any) -> Run:
        return finetune("caption", world, pretrained.folder, steps=2, batch_size=8, **changes)

    settled = max(path.stat().st_ctime_ns for path in world.rglob("*")) + SETTLED
    time.sleep(max(0, settled - time.time_ns()) / 1e9 + 0.01)  # before, each call gives an image another stamp
    first, lines = again(), list[Any]()
    written = {path: path.stat().st_mtime_ns for path in first.folder.rglob("*") if path.is_file()}
    assert again(on_log=lines.append).folder == first.folder
    assert "already finished with this recipe" in capsys.readouterr().err
    assert lines == []
    assert {path: path.stat().st_mtime_ns for path in first.folder.rglob("*") if path.is_file()} == written
    assert again(seed=1).folder != first.folder
    assert finetune("caption", Dataset.read(world)["train"], pretrained.folder, steps=2).folder != first.folder


def test_a_run_leaves_random_state_and_threads_as_they_were(pretrained: Run, world: Path) -> None:
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    finetune("caption", world, pretrained.folder, steps=1, batch_size=8, settings={"training.threads": threads + 1})
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_epochs_are_counted_on_the_records(pretrained: Run, world: Path) -> None:
    data = Dataset.read(world)
    captions = sum(len(one.captions) for one in data["train"])
    for _ in range(2):
        run = finetune("caption", data, pretrained.folder, epochs=0.5, batch_size=8, out="run")
        assert run.recipe.training.steps == -(-(captions // 8) // 2)
    taken = {"expected a number above 0": {"epochs": 0}, "pass one of the two": {"epochs": 1, "steps": 4}}
    for message, wrong in taken.items():
        with pytest.raises(RecipeError, match=message):
            finetune("caption", data, pretrained.folder, **wrong)


@pytest.mark.parametrize("longer", [{"steps": 4}, {"epochs": 4}])
def test_a_resumed_run_opens_its_recipe_once(
    pretrained: Run, world: Path, tmp_path: Path, longer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, opened = tmp_path / "run", []

    def counted(path: Path, *more: Any, **named: Any) -> Any:
        if path == out / "recipe.json":
            opened.append(path)
        return open(path, *more, **named)

    finetune("caption", world, pretrained.folder, out=out, steps=2, batch_size=8)
    monkeypatch.setattr(Path, "open", counted)
    monkeypatch.setattr("diptych.api.job.TrainingJob._report", lambda *_: None)  # opens the finished run
    finetune("caption", world, pretrained.folder, out=out, batch_size=8, **longer)
    assert len(opened) == 1


def test_on_log_ends_a_run_that_keeps_its_best_weights(pretrained: Run, world: Path) -> None:
    def stop(line: dict[str, Any]) -> bool:
        return line["step"] < 4

    settings = {"training.validate_every": 2, "training.log_every": 2}
    run = finetune("caption", world, pretrained.folder, steps=40, batch_size=8, on_log=stop, settings=settings)
    assert [row["step"] for row in run.metrics] == [2, 4]
    assert (run.folder / "model" / "config.json").is_file()


def test_an_error_of_on_log_is_the_callers(pretrained: Run, world: Path) -> None:
    def fail(line: dict[str, Any]) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        finetune("caption", world, pretrained.folder, steps=10, batch_size=8, on_log=fail)


SCRIPT = """
import signal, sys
import diptych
from diptych.api.run import Run
from diptych.runtime.errors import Stopped

def interrupt(line):
    print(line["step"], flush=True)
    if sys.argv[3] == "stop" and line["step"] == 3:
        signal.raise_signal(signal.SIGINT)  # as Ctrl-C sends it

try:
    run = diptych.finetune("caption", sys.argv[1], sys.argv[2], steps=8, batch_size=8, out="run", on_log=interrupt,
                           settings={"training.log_every": 1, "training.checkpoint_every": 100,
                                     "training.validate_every": None})
except Stopped as error:
    print("stopped:", error)
    sys.exit(75)
print(run)
"""


def test_ctrl_c_keeps_a_run_and_the_same_call_resumes_it(pretrained: Run, world: Path) -> None:
    def script(how: str) -> subprocess.CompletedProcess[str]:
        return zygote.run(["-c", SCRIPT, world, pretrained.folder, how])

    stopped = script("stop")
    assert stopped.returncode == 75, stopped.stderr
    assert "stopped after step 4 of 8" in stopped.stdout
    resumed = script("end")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.split("<")[0].split() == ["5", "6", "7", "8"]
    straight = finetune("caption", world, pretrained.folder, steps=8, batch_size=8, out="straight",
                        settings={"training.log_every": 1, "training.validate_every": None})  # fmt: skip
    assert [row["total"] for row in Run("run").metrics] == [row["total"] for row in straight.metrics]


def test_a_folder_that_another_process_writes_is_refused(pretrained: Run, world: Path) -> None:
    Path("run").mkdir()
    code = """import sys; from pathlib import Path; from diptych.runtime.lock import held
with held(Path("run")):
    print(1, flush=True)
    sys.stdin.read()"""
    with zygote.Popen(["-c", code], stdin=-1, stdout=-1) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(DiptychError, match="is writing to"):
            finetune("caption", world, pretrained.folder, steps=1, out="run")
    with held(Path("run")):
        assert finetune("caption", world, pretrained.folder, steps=1, batch_size=8, out="run").folder == Path("run")


def test_data_without_what_the_task_learns_from_is_refused_before_anything_is_written(
    pretrained: Run, world: Path, detector: str
) -> None:
    images = sorted(world.rglob("*.png"))[:3]
    data = Dataset.from_rows([{"image": path, "caption": "a dog", "split": "train"} for path in images])
    with pytest.raises(DataError, match="vqa needs questions with answers, but split 'train' of rows has none"):
        finetune("vqa", data, pretrained.folder, out="run")
    with pytest.raises(DataError, match=r"world\[val\] has no records in split 'train'; it has val \(4\)"):
        finetune("caption", Dataset.read(world)["val"], pretrained.folder, out="run")
    assert not Path("run").exists()


@pytest.mark.parametrize("system", ["unified-vlp", "xgpt"])
def test_pre_training_reads_questions_with_answers_where_there_are_no_captions(
    system: str, world: Path, detector: str
) -> None:
    images = sorted(world.rglob("*.png"))[:12]
    asked = {"question": "what beast is it?", "answers": ["big dog", "cat", "big dog"], "split": "train"}
    kept, tiny = f"{system}/small/pretrain", TINY | {"data.split": "train"}
    data = Dataset.from_rows([{"image": path, **asked} for path in images])
    run = pretrain(data, recipe=kept, out="run", detector=detector, steps=2, batch_size=4, settings=tiny)
    tokens = Tokens.load(run.folder)
    assert tokens.knows(tokens.encode("big dog"))
    shutil.copy(images[0], "0.png")
    Path("judged.jsonl").write_text('{"image": "0.png", "statement": "a dog", "true": true, "split": "train"}')
    with pytest.raises(DataError, match=r"pretrain needs captions or questions with answers, but split 'train' of "):
        pretrain("judged.jsonl", recipe=kept, out="none", detector=detector, settings=tiny)


def test_a_recipe_lasts_by_epochs_and_validates_on_the_whole_split(world: Path, detector: str) -> None:
    kept: dict[str, Any] = {"recipe": "unified-vlp/photos/vqa", "detector": detector, "batch_size": 8}
    settings = TINY | {"model.positions": 48, "training.epochs": 2, "training.validate_every": 100}
    run = finetune("vqa", world, out="run", settings=settings, **kept)
    store = Store(run.folder / "store")
    asked = sum(len(store.words(number).questions) for number in store.split("train"))
    assert (run.recipe.training.epochs, run.recipe.training.steps) == (None, 2 * (asked // 8))
    again = finetune("vqa", world, out="run", settings=settings, **kept)
    assert again.recipe == run.recipe
    shorter_settings = settings | {"training.epochs": None}
    kept.pop("detector")
    shorter = finetune("vqa", store, out="shorter", steps=2, settings=shorter_settings, **kept)
    assert shorter.recipe.training.steps == 2
    lasting = find_recipe("unified-vlp/photos/vqa")
    with pytest.raises(RecipeError, match=r"sets training\.epochs, .*; set training\.steps"):
        learner_of(Path("none"), lasting, store)
    some = derive(lasting, training={"epochs": None})
    assert learner_of(Path("none"), some, store).held_out == store.split("val")


def test_what_a_call_lacks_is_named(world: Path, pretrained: Run) -> None:
    with pytest.raises(RecipeError, match="'captions' is not a task for fine-tuning; did you mean caption"):
        finetune("captions", world, pretrained.folder)
    with pytest.raises(RecipeError, match=r"found neither a recipe nor a model; pass model=\.\.\., or recipe='SYSTEM"):
        finetune("caption", world)
    with pytest.raises(RecipeError, match="regions must be extracted first"):
        finetune("caption", world, recipe=CAPTION)
    with pytest.raises(RecipeError, match="no key 'stps'"):
        finetune("caption", world, pretrained.folder, settings={"training.stps": 1})
    with pytest.raises(CheckpointError, match="is not the folder of a run"):
        Run(world)
    assert not Path("runs").exists()


def test_a_recipe_by_name_and_one_of_a_notebook() -> None:
    changed = recipe(CAPTION, lr=2e-3, settings={"training.keep": 3})
    assert changed == find_recipe(CAPTION, ["optimizer.lr=2e-3", "training.keep=3"])
    assert len(recipe("image-bert/small/pretrain/web-then-train").recipes) == 2  # type: ignore[union-attr]
    own = changed.model_copy(update={"name": "mine/caption"})
    try:
        for _ in range(2):
            register(recipe=own)
        assert recipe("mine/caption") == own
    finally:
        RECIPES.pop("mine/caption")
    with pytest.raises(RecipeError, match="a recipe named"):
        register(recipe=changed)
    assert recipe(CAPTION, settings={"name": "mine/caption"}).name == "mine/caption"  # type: ignore[union-attr]
    with pytest.raises(RecipeError, match=r"^register: found nothing, expected system=, task= or recipe=$"):
        register()
    with pytest.raises(RecipeError, match=r"^recipe: found str 'x', expected a Recipe$"):
        register(recipe="x")  # type: ignore[arg-type]


def test_the_verbs_train_and_compare_by_the_same_functions(
    pretrained: Run, world: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {}
    for name, lr in (("a", "1e-3"), ("b", "0.01")):
        words = ["finetune", "caption", "--data", world, "--model", pretrained.folder, "--out", name, "--lr", lr,
                 "--steps", 2, "--batch-size", 8, "--patience", 3, "--seed", 3, "--set", "training.log_every=1",
                 "--json"]  # fmt: skip
        assert run_verb([str(word) for word in words], debug=False) == 0
        made[name] = json.loads(capsys.readouterr().out)
        assert (made[name]["model"], made[name]["last"]["step"]) == (str(Path(name) / "model"), 2)
    training, lr = Run("b").recipe.training, Run("b").recipe.optimizer.lr
    assert (training.steps, training.batch, training.patience, training.seed, lr) == (2, 8, 3, 3, 0.01)
    assert run_verb(["compare", "a", "b", "--data", str(world), "--json"], debug=False) == 0
    gain = compare("a", "b", world)
    assert json.loads(capsys.readouterr().out) == {"score": gain.name, **gain.to_json()}
    found: list[set[str]] = []

    def watched(records: list[Record], *given: Any) -> Store:
        found.append({record.split for record in records})
        return store_of(records, *given)

    monkeypatch.setattr("diptych.api.scoring.store_of", watched)
    assert run_verb(["compare", "a", "a", "--data", str(world)], debug=False) == 0
    assert found == [{"test"}], "the regions of both, of the split that is scored"
    first, *seen = capsys.readouterr().out.splitlines()
    assert first == f"{gain.name}: +0.0 (+0.0 to +0.0); no difference is shown"
    few = "only 6 images: too few for a reliable comparison"
    assert seen == [*(f"{name}: 0 of 6 scored images were trained on, and 0 near copies" for name in "AB"), few]
    words = ["finetune", "caption", "--data", str(world), "--model", "a", "--out", "c", "--epochs", "1", "--steps", "3"]
    assert run_verb(words, debug=False) == 2
    assert "pass one of the two" in capsys.readouterr().err


def test_words_and_images_unlike_the_first_model_s_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """On 12 plain images the sample's familiarity refused images that the run itself had trained on."""
    colours = {"red": "red", "green": "green", "blue": "blue"}
    rows = [
        {"image": Image.new("RGB", (64, 64), colour), "caption": f"a {colour} square", "split": split}
        for colour in colours
        for n, split in enumerate(("train", "val"))
    ]
    for number, row in enumerate(rows):
        row["image"].putpixel((number, number), (0, 0, 0))
    run = finetune("caption", Dataset.from_rows(rows), "sample", steps=1, batch_size=2)
    said = capsys.readouterr().err
    assert "has no tokens for" in said
    assert "square (3)" in said
    assert "--from-scratch" in said
    assert run.model.caption(rows[0]["image"]).familiar is None


def test_rows_that_are_no_data_set_yet_are_refused_with_the_way_out() -> None:
    rows: Any = [{"image": "a.png", "caption": "a kite"}]
    with pytest.raises(DataError, match=r"found list, expected a path, store or Dataset \(.*Dataset\.from_rows\("):
        finetune("caption", rows, "sample")
