"""The training cells of the how-to, in a real Jupyter kernel on a small drawn world."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.library.api.conftest import TINY

pytestmark = pytest.mark.learns

RUN = "run = diptych.finetune('caption', data, recipe=recipe, detector='detector', epochs=1, batch_size=8)"
CELLS = (
    "import diptych\ndata = diptych.Dataset.read('world')\ndata",
    "data[0]",
    f"recipe = diptych.recipe('unified-vlp/small/caption', lr=1e-3, settings={TINY})",
    f"{RUN}\nrun",
    "run.metrics.to_pandas()",
    "run.plot()",
    f"lines = []\n{RUN[:-1]}, on_log=lines.append)\nlines",
    "diptych.evaluate(run.model, data)",
    "diptych.compare(run.model, run.model, data)",
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_cells_run_with_a_bar_and_draw_themselves(
    world: Path, detector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "world").symlink_to(world)
    (tmp_path / "detector").symlink_to(detector)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    results = [[one for one in cell.outputs if one.output_type == "execute_result"] for cell in notebook.cells]
    shown = {number: one[0].data for number, one in enumerate(results) if one}
    assert shown[0]["text/plain"].startswith("<diptych.Dataset world: 34 images (train 24, val 4, test 6); ")
    assert shown[1]["text/plain"].startswith("<diptych.Example ")
    assert shown[3]["text/plain"].startswith("<diptych.Run runs/caption-")
    assert "<table" in shown[4]["text/html"]
    assert "<svg" in shown[5]["image/svg+xml"]
    assert shown[6]["text/plain"] == "[]"  # finished before
    assert "only 6 scored: too few" in shown[7]["text/html"]
    assert shown[8]["text/plain"].startswith("<diptych.Score CIDEr, B minus A: +0.0 (")
    bars = [one.data["text/html"] for one in notebook.cells[3].outputs if "<progress" in str(one.get("data", ""))]
    assert any(f'value="{steps}" max="{steps}"' in bar for bar in bars for steps in ("15", "15.0")), bars
