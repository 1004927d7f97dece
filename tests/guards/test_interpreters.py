"""Each place in tests that starts a Python interpreter says why a fork (tests/support/zygote.py) will not do."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
MOST = 33  # one start is five seconds of a core where torch is imported
REASON = re.compile(r"# an interpreter: .{5,}")


def starts() -> list[tuple[Path, int, str]]:
    """File, line, and that line with the three before it, of each use of `sys.executable`."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text()
        if "sys.executable" not in text:
            continue
        lines = ["", *text.splitlines()]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable":
                found.append((path, node.lineno, "\n".join(lines[max(0, node.lineno - 3) : node.lineno + 1])))
    return found


def test_who_starts_an_interpreter_names_the_reason() -> None:
    for path, line, text in starts():
        assert REASON.search(text), (
            f"{path}:{line}: use tests/support/zygote.py, or say why not: # an interpreter: REASON"
        )


def test_starts_are_counted() -> None:
    assert len(starts()) <= MOST
