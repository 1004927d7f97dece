"""Modules and classes do not have names that say nothing, and no code runs what it reads."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent / "src"
EMPTY = {"utils", "util", "helper", "helpers", "manager", "common", "misc", "base", "info", "stuff"}


def test_no_name_says_nothing() -> None:
    for path in ROOT.rglob("*.py"):
        classes = [node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
        for name in (path.stem, *classes):
            words = set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))
            assert not words & EMPTY, f"{path}: {name}"


def test_nothing_executes_strings_or_unpickles() -> None:
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"eval", "exec", "pickle.load", "pickle.loads", "yaml.load"}, f"{path}: {called}"
                if called in {"torch.load"}:
                    assert any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords), path


# What is not a user's file: what is packed with the code, the system's, and what runs without Diptych.
NOT_A_USERS = {"devices.py", "extras.py", "texts.py", "runner.py", "serve.py", "pages.py", "model.py"}


def test_a_file_is_read_by_what_refuses_pipes() -> None:
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                reads = node.func.attr in {"read_text", "read_bytes"}
                assert not reads or path.name in {*NOT_A_USERS, "files.py"}, f"{path}: {ast.unparse(node)}: `text_of`"
