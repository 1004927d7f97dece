"""What the documents claim can be checked, and is."""

import re
from pathlib import Path

from diptych.reports.results import render

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


def test_results_are_made_from_the_committed_files() -> None:
    assert (DOCS / "results.md").read_text() == render(ROOT / "benchmarks" / "results"), "run `make docs`"


def test_links_go_somewhere() -> None:
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_files_that_the_documents_name_exist() -> None:
    for page in DOCS.rglob("*.md"):
        for name in re.findall(r"`((?:src|tests|benchmarks|docs|runs)/[\w./-]+\.\w+)`", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_every_switch_has_the_test_that_it_names() -> None:
    tests = {
        f"{path.relative_to(ROOT)}::{name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    named = re.findall(r"`(tests/[\w/]+\.py::test_\w+)`", (DOCS / "fidelity.md").read_text())
    assert named
    assert set(named) <= tests, sorted(set(named) - tests)
