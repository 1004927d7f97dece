"""The demo's folder: whose it is."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console

from diptych.runs.folder import open_model
from diptych.runtime.errors import DataError, RecipeError
from diptych.systems import SYSTEMS, find_recipe
from diptych_world.demo.demo import (
    ALL,
    PRETRAINED,
    SCRATCH,
    DemoConfig,
    arm_settings,
    claim_demo,
    demo,
    pretraining_recipe,
)
from diptych_world.demo.systems import tasks_of


def test_a_folder_of_another_size_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    claim_demo(tmp_path / "demo", DemoConfig())
    claim_demo(tmp_path / "demo", DemoConfig())
    with pytest.raises(RecipeError) as refused:
        demo(tmp_path / "demo", DemoConfig.fast(seed=3), Console(quiet=True))
    told = str(refused.value)
    assert "holds a demo of another size:" in told
    assert "\n  web: 600, was 10000" in told
    assert "\n  seed: 3, was 0" in told
    assert "patience" not in told  # the same in both
    assert "choose another --out" in told
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == [".diptych", "demo.json"]


@pytest.mark.parametrize("name", ["demo.json", "stages.json"])
def test_a_damaged_file_of_a_demo_is_named(name: str, tmp_path: Path) -> None:
    claim_demo(tmp_path / "demo", DemoConfig())
    for content in ("{", "[1]"):
        (tmp_path / "demo" / name).write_text(content)
        with pytest.raises(DataError, match=rf"demo/{name} is damaged \("):
            demo(tmp_path / "demo", DemoConfig(), Console(quiet=True))


TINY = DemoConfig(web=16, train=12, val=4, test=6, labels=8, question_labels=10, detector_steps=3, pretrain_steps=2,
                  most_steps=2, taught=0.001, validate_every=2, width=16, layers=1, batch=4, arm_batch=4)  # fmt: skip


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of their own take seconds to start; what they do is the same."""
    monkeypatch.setattr("diptych_world.demo.demo.in_process", lambda work, *given: work(*given))
    monkeypatch.setattr("diptych_world.demo.demo.together", lambda work, *given, processes: work(*given))
    monkeypatch.setattr("diptych_world.demo.comparison.workers", lambda count: ThreadPoolExecutor(1))


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_systems_share_a_world_and_have_a_page_each(tmp_path: Path) -> None:
    out, quiet = tmp_path / "demo", Console(quiet=True)
    results = demo(out, TINY, quiet, "vl-bert")
    assert set(results["scores"]) == {"vqa", "nlvr"}  # it has no decoder
    assert set(results["scores"]["nlvr"]) == {SCRATCH, PRETRAINED, ALL}
    assert [run["labels"] for run in results["runs"]] == [10, 10, 12, 8, 8, 12]
    assert json.loads((out / "vl-bert" / "results.json").read_text())["config"]["system"] == "vl-bert"
    kept = open_model(out / "vl-bert" / "nlvr")
    assert kept.architecture.system == "vl-bert"
    assert kept.recipe is not None
    assert kept.recipe.data.records == 12, "the model to keep has learnt from all labels"
    assert not (out / "results.json").exists()
    seen = {shard: shard.stat().st_mtime_ns for shard in (out / "store").rglob("*.safetensors")}
    front, page = (out / "report.html"), (out / "vl-bert" / "report.html")
    assert '<a href="vl-bert/report.html">VL-BERT</a>' in front.read_text()
    assert "Statements of 6 test images" in page.read_text()
    assert "chosen for Unified VLP, not for this" in page.read_text()

    shutil.rmtree(out / "vl-bert" / "nlvr")
    row = out / "vl-bert" / "arms" / "vqa-10-from-scratch-0" / "row.json"
    row.write_text(json.dumps(json.loads(row.read_text()) | {"calibration": "an error of 3.2"}))
    demo(out, TINY, quiet, "vl-bert")
    assert open_model(out / "vl-bert" / "nlvr").weights_checksum == kept.weights_checksum, "what is gone is made again"
    assert "an error of 3.2" in (out / "vl-bert" / "report.html").read_text()

    results = demo(out, TINY, quiet)
    assert set(results["scores"]) == {"caption", "vqa"}
    assert "system" not in results["config"]
    assert seen
    assert all(shard.stat().st_mtime_ns == when for shard, when in seen.items() if "detector" not in shard.parts)
    assert 'aria-current="page">Unified VLP</a><a href="vl-bert/report.html">VL-BERT</a>' in front.read_text()
    assert "Captions of 6 test images" in front.read_text()
    assert '<a href="../report.html">Unified VLP</a>' in page.read_text()


def test_an_unknown_system_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no system 'vlbert'; .*vl-bert"):
        demo(tmp_path / "demo", TINY, Console(quiet=True), "vlbert")
    assert not (tmp_path / "demo").exists()


def test_what_each_system_learns() -> None:
    told = {system: tasks_of(system) for system in SYSTEMS}
    both, reads = ("caption", "vqa"), ("vqa", "nlvr")
    assert told == {"unified-vlp": both, "tden": both, "xgpt": both, "vl-bert": reads, "image-bert": reads}
    for system in SYSTEMS:
        recipe = pretraining_recipe(DemoConfig.fast(), 0, system)
        for task in told[system]:
            arm = find_recipe(f"{system}/small/{task}", arm_settings(DemoConfig.fast(), 100, system))
            assert arm.model == recipe.model  # so that one starts from the other
