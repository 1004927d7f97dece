"""The cells of the how-to, in a real Jupyter kernel; and a plain script."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from PIL import Image

from diptych.api.arguments import python_errors
from diptych.runtime.errors import DataError
from tests.support.service import make_model, picture

CELLS = (
    "import diptych\nmodel = diptych.load('model')\nmodel",
    "model.caption('a.png', beams=3, max_words=8)",
    "from PIL import Image\nmodel.caption([Image.open('a.png'), open('a.png', 'rb')])",
    "model.explain('a.png', 'a red kite')",
    "model.ask('a.png', 'what colour is the dog')",
    "model.ground('a.png', 'the dog')",
    "model.verify('a.png', 'there is a dog')",
    "model.choose('a.png', 'what is [0]', ['a dog', 'a bird'])",
    "model.search('a red kite', '.', top_k=2)",
    "model.match('a.png', ['a red kite', 'a dog'])",
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_cells_run_and_draw_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model(tmp_path)
    (tmp_path / "a.png").write_bytes(picture())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    shown = [cell["outputs"][-1]["data"] for cell in notebook.cells]
    assert shown[0]["text/plain"].startswith("<diptych.Model model: unified-vlp, ")
    assert all(len(data["text/plain"]) <= 300 for data in shown[:2])
    for number in (1, 4, 5, 6, 7, 8):
        assert "<image href=" in shown[number]["text/html"], CELLS[number]
        assert number == 8 or "<rect" in shown[number]["text/html"]
    assert "<table>" in shown[3]["text/html"]
    assert "<rect" in shown[3]["text/html"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_an_error_is_the_line_of_the_cell_and_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    cells = [
        "import diptych\nmodel = diptych.load('sample')",
        "def show(name):\n    return model.caption(name)",
        "show('nix.png')",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    with pytest.raises(CellExecutionError):
        client.execute()
    (output,) = notebook.cells[2]["outputs"]
    assert output["ename"] == "DataError"
    lines = "\n".join(output["traceback"]).split("\n")
    assert lines[-1].startswith("DataError: no image at nix.png")
    assert [line.strip() for line in lines[:-1] if line.strip("^ ") and "File" not in line] == [
        "show('nix.png')",
        "return model.caption(name)",
    ]


SCRIPT = """
from pathlib import Path
from diptych.core import Record
from diptych.data.extract.own_data import extract_regions
from diptych.vision.detectors.load import load_detector

records = [Record(key=path.name, image=path) for path in sorted(Path("photos").iterdir())]
print(extract_regions(records, load_detector(Path("seen")), Path("store")).written)
"""


@pytest.mark.slow
def test_a_script_of_500_images_needs_no_guard(tmp_path: Path) -> None:
    make_model(tmp_path)
    (tmp_path / "photos").mkdir()
    for number in range(500):
        Image.fromarray(np.full((8, 8, 3), number % 256, np.uint8)).save(tmp_path / "photos" / f"{number:03}.png")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py"]  # an interpreter: a script as users start it
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert (done.returncode, done.stdout, done.stderr) == (0, "500\n", "")


def test_an_error_shows_the_callers_lines_in_callbacks_and_its_cause() -> None:
    def callback() -> None:
        error = DataError("found a \x1b[31m, expected none")
        error.add_note("in row 3")
        raise error from OSError("no such file")

    with pytest.raises(DataError) as raised:
        python_errors(callback)()
    *frames, message, note, cause = raised.value._render_traceback_()
    assert [Path(__file__).name in one for one in frames] == [True, True]
    assert "raise error from" in frames[-1]
    assert message == "DataError: found a \\x1b[31m, expected none"
    assert (note, cause) == ("in row 3", "caused by OSError: no such file")
