"""Files stay under 400 lines and functions under 80, entry points too: in every peer those are the worst."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FILES = sorted(
    p for folder in ("src", "tests", "benchmarks", "experiments", ".ci") for p in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length < 80, f"{node.name} has {length} lines"
