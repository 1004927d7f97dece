"""Experiments send their own functions to other processes, which cannot import `__main__`."""

import ast
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

EXPERIMENTS = sorted((REPOSITORY / "experiments").rglob("*.py"))


def _sends_its_own(tree: ast.Module) -> bool:
    """True if `pool.map` or `pool.submit` gets a function or a method of this module."""
    imported = {
        name.asname or name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    sent = [
        node.args[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("pool.map", "pool.submit")
    ]
    return any(not (isinstance(work, ast.Name) and work.id in imported) for work in sent)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_a_study_that_sends_its_own_functions_starts_by_its_name(path: Path) -> None:
    source = path.read_text("utf-8")
    name = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
    by_name = f'import_module("{name}").main()' in source
    assert by_name == _sends_its_own(ast.parse(source))
