"""Each program can be deleted: the library is imported, its command line works and its order of imports holds."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from diptych.cli.verbs import VERBS
from diptych.runtime.packages import OWN

ROOT = Path(__file__).parents[2]
# The checkout's src is not on the path: an editable install leaves it there.
CODE = """
import sys
sys.path = ["src", *(one for one in sys.path if one != sys.argv[1])]
import diptych
from importlib.util import find_spec
from importlinter.cli import lint_imports
from diptych.cli import run_verb
assert diptych.__file__ == sys.argv[2], diptych.__file__
assert find_spec(sys.argv[3]) is None
assert run_verb(["--help"], debug=False) == 0
if sys.argv[3] != "diptych_mine":
    import diptych_mine.run  # each process of a miner would take five seconds and 250 MB more
assert "torch" not in sys.modules
assert lint_imports(no_cache=True) == 0
if sys.argv[3] == "diptych_world":
    assert len(diptych.load("sample").examples) == 3
"""


COLLECT = """
import sys
sys.path = ["src", *(one for one in sys.path if one != sys.argv[1])]
from importlib.util import find_spec
assert find_spec(sys.argv[2]) is None
import pytest
code = pytest.main(["--collect-only", "-qq", "-n", "0", "-m", "", "tests/library"])
sys.exit(code or pytest.main(["-q", "-n", "0", "tests/library/test_journey.py"]))
"""


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fork")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("gone", [name for name in OWN if name != "diptych"])
def test_the_library_works_without_a_program(gone: str, fork: Path, tmp_path: Path) -> None:
    """Its verbs are not listed, and the sample model opens without the drawn world."""
    settings = (ROOT / "pyproject.toml").read_text()
    assert f', "{gone}"' in settings or f'"{gone}", ' in settings
    (fork / "pyproject.toml").write_text(settings.replace(f', "{gone}"', "").replace(f'"{gone}", ', ""))
    (fork / "src" / gone).rename(tmp_path / gone)
    try:
        where = (ROOT / "src", fork / "src" / "diptych" / "__init__.py", gone)
        # an interpreter: what is imported from where
        done = subprocess.run(
            [sys.executable, "-c", CODE, *map(str, where)], cwd=fork, capture_output=True, text=True, check=False
        )
    finally:
        (tmp_path / gone).rename(fork / "src" / gone)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ") and line.strip()}
    without = {name for name, (_, place) in VERBS.items() if place.startswith(f"{gone}.")}
    assert without
    assert not without & listed
    assert VERBS.keys() - without <= listed


@pytest.mark.thorough
@pytest.mark.parametrize("gone", [name for name in OWN if name != "diptych"])
def test_the_library_s_tests_are_collected_without_a_program_and_its_tests(
    gone: str, fork: Path, tmp_path: Path
) -> None:
    """And its journey passes."""
    its_tests = gone.removeprefix("diptych_")
    for name in ("tests", "docs", "examples", "benchmarks", "experiments"):
        left = shutil.ignore_patterns("__pycache__", *([its_tests] if name == "tests" else []))
        shutil.copytree(ROOT / name, fork / name, ignore=left, dirs_exist_ok=True)
    shutil.rmtree(fork / "tests" / its_tests, ignore_errors=True)
    shutil.copy(ROOT / "pyproject.toml", fork)
    (fork / "src" / gone).rename(tmp_path / gone)
    try:
        # an interpreter: what is imported from where
        done = subprocess.run(
            [sys.executable, "-c", COLLECT, str(ROOT / "src"), gone],
            cwd=fork,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        (tmp_path / gone).rename(fork / "src" / gone)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
