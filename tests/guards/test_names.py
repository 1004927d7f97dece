"""Names that say nothing are not used for modules, classes or functions."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent / "src"
EMPTY = {"utils", "util", "helper", "helpers", "manager", "common", "misc", "base", "info", "stuff"}


def test_no_name_says_nothing() -> None:
    for path in ROOT.rglob("*.py"):
        names = [path.stem]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.append(node.name)
        for name in names:
            words = set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))
            # `base` is BERT's own word for a size.
            assert not words & (EMPTY - {"base"}), f"{path}: {name}"
        assert path.stem != "base"


def test_nothing_executes_strings_or_unpickles() -> None:
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"eval", "exec", "pickle.load", "pickle.loads", "yaml.load"}, f"{path}: {called}"
                if called in {"torch.load"}:
                    assert any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords), path
