"""Imports go one way: the contract stands in pyproject.toml."""

from importlinter.cli import lint_imports


def test_imports_go_one_way(capsys: object) -> None:
    assert lint_imports(no_cache=True) == 0
