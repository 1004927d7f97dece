"""What the documents claim can be checked, and is."""

import re
from collections.abc import Iterator
from pathlib import Path

from experiments.figures import FIELDS, is_figure
from experiments.pages import pages, results
from experiments.studies import page_of
from experiments.tables import leaves, number

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


def test_results_are_made_from_the_committed_files() -> None:
    found = results()
    made = pages(found)
    there = {f"results/{page.name}" for page in (DOCS / "results").iterdir()} | {"results.md", "papers.md"}
    assert there == set(made), "run `make docs`"
    for name, text in made.items():
        assert (DOCS / name).read_text() == text, f"{name}: run `make docs`"
    assert made["results.md"].count("\n") < 400


def test_results_are_numbers_and_none_is_left_out_of_the_pages() -> None:
    """Text names a thing (a system, a network); a figure has no fields but the known ones."""
    found = results()
    made = pages(found)
    for name, result in found.items():
        page = made[page_of(name)]
        for path, leaf in leaves(result["figures"]):
            if isinstance(leaf, str):
                assert re.fullmatch(r"[A-Za-z][\w-]*( [\w-]+)*", leaf), f"{name}, {path}: {leaf!r} is a sentence"
            if is_figure(leaf):
                assert set(leaf) <= set(FIELDS), f"{name}, {path}"
            for figure in _numbers(leaf):
                assert number(figure) in page, f"{name}, {path}: {figure} is not on its page"


def _numbers(leaf: object) -> Iterator[object]:
    if isinstance(leaf, dict | list):
        for one in leaf.values() if isinstance(leaf, dict) else leaf:
            yield from _numbers(one)
    elif not isinstance(leaf, str):
        yield leaf


def test_links_go_somewhere() -> None:
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_files_that_the_documents_name_exist() -> None:
    for page in DOCS.rglob("*.md"):
        for name in re.findall(r"`((?:src|tests|benchmarks|experiments|docs|runs)/[\w./-]+\.\w+)`", page.read_text()):
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
