"""What the README says is true."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()


def test_links_go_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target


def test_each_command_begins_with_a_verb_that_exists() -> None:
    # an interpreter: `python -m diptych.cli` as users start it
    shown = subprocess.run([sys.executable, "-m", "diptych.cli", "--help"], capture_output=True, text=True, check=True)
    verbs = set(re.findall(r"^  ([a-z]+) {2,}\S", shown.stdout, re.MULTILINE))
    assert {"demo", "caption"} <= verbs
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for verb in re.findall(r"(?:^ {4}|`|uv run )diptych ([a-z]+)", page.read_text(), re.MULTILINE):
            assert verb in verbs, f"{page.name} names `diptych {verb}`"


def test_one_line_runs_the_main_job_and_one_the_tests() -> None:
    commands = re.findall(r"^    (pip install -q uv && .*)$", README, re.MULTILINE)
    assert commands == ["pip install -q uv && uv run diptych demo", "pip install -q uv && uv run --group dev pytest"]
