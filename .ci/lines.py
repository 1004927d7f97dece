"""Count the lines of src that hold code: no blank lines, comments or docstrings; .py and .toml together.

python .ci/lines.py [SRC]    one line per room, then the sum
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src"
_SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(path: Path) -> int:
    """Lines of one file that hold code."""
    text = path.read_text("utf-8")
    if path.suffix == ".toml":
        return sum(1 for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _SILENT
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node):
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def by_room(root: Path = ROOT) -> Counter[str]:
    """Code lines of each room of the package."""
    rooms: Counter[str] = Counter()
    for path in sorted((root / "diptych").rglob("*")):
        if path.suffix in {".py", ".toml"}:
            parts = path.relative_to(root / "diptych").parts
            rooms[parts[0] if len(parts) > 1 else "."] += code_lines(path)
    return rooms


if __name__ == "__main__":
    counted = by_room(Path(sys.argv[1]) if sys.argv[1:] else ROOT)
    for room, lines in sorted(counted.items(), key=lambda one: -one[1]):
        print(f"{lines:7,} {room}")
    print(f"{counted.total():7,} in all")
