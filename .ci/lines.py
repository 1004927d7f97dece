"""Count the lines of src that hold code: no blank lines, comments or docstrings; .py and .toml together.

python .ci/lines.py [SRC]              one line per package and room, then the sum
python .ci/lines.py --defence [SRC]    lines that refuse, check or catch, per package, and the functions of a high load
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src"
_SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_REFUSES = re.compile(
    r"_*(refus|check|requir|reject|forbid|ensure|guard|valid|verif|need|must|invalid|damaged|missing)"
)
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.Match)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOAD = 20  # from this cognitive load on, a function is listed


def code_in(path: Path) -> set[int]:
    """Numbers of the lines of one .py file that hold code."""
    text = path.read_text("utf-8")
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
    return lines


def code_lines(path: Path) -> int:
    """Lines of one file that hold code."""
    if path.suffix == ".toml":
        lines = path.read_text("utf-8").splitlines()
        return sum(1 for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return len(code_in(path))


def files(root: Path = ROOT) -> Iterator[tuple[str, str, Path]]:
    """Package, room ("." for files beside the rooms) and path of each file of src that holds code."""
    for path in sorted(root.rglob("*")):
        if path.suffix in {".py", ".toml"}:
            package, *parts = path.relative_to(root).parts
            yield package, parts[0] if len(parts) > 1 else ".", path


def by_room(root: Path = ROOT) -> Counter[tuple[str, str]]:
    """Code lines of each (package, room)."""
    rooms: Counter[tuple[str, str]] = Counter()
    for package, room, path in files(root):
        rooms[package, room] += code_lines(path)
    return rooms


def by_package(root: Path = ROOT) -> Counter[str]:
    """Code lines of each package of src."""
    packages: Counter[str] = Counter()
    for (package, _), lines in by_room(root).items():
        packages[package] += lines
    return packages


def defence_in(path: Path) -> set[int]:
    """Lines of one file in a `raise`, an `if` that ends in one, a handler, or a function that only checks."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        ends = isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)
        if isinstance(node, _FUNCTIONS):
            ends = _REFUSES.match(node.name) is not None
        if ends or isinstance(node, ast.Raise | ast.ExceptHandler):
            lines |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return lines & code_in(path)


def load(node: ast.AST, depth: int = 0) -> int:
    """Cognitive load: a branch counts one more than it is deep; `elif`, `else`, `and` and `or` count one."""
    total = 0
    for child in ast.iter_child_nodes(node):
        inner = depth
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                inner += 1
            case ast.BoolOp():
                total += 1
            case ast.comprehension():
                total += 1 + depth + len(child.ifs)
            case ast.If() if isinstance(node, ast.If) and node.orelse == [child]:
                total += 1 + _ends_with_else(child)
            case _ if isinstance(child, _BRANCHES):
                total += 1 + depth + _ends_with_else(child)
                inner += 1
        total += load(child, inner)
    return total


def _ends_with_else(node: ast.AST) -> bool:
    """Whether an `if` has an `else` that is no `elif`."""
    return isinstance(node, ast.If) and bool(node.orelse) and not isinstance(node.orelse[0], ast.If)


def print_defence(root: Path) -> None:
    defence: Counter[str] = Counter()
    heavy: list[tuple[int, str]] = []
    for package, _, path in files(root):
        if path.suffix == ".py":
            defence[package] += len(defence_in(path))
            functions = (one for one in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(one, _FUNCTIONS))
            heavy += [(load(one), f"{path.relative_to(root)}:{one.lineno} {one.name}") for one in functions]
    for package, lines in by_package(root).items():
        print(f"{defence[package]:7,} of {lines:,} ({defence[package] / lines:.1%}) {package}: refuse, check or catch")
    heavy = sorted((one for one in heavy if one[0] >= LOAD), reverse=True)
    print(f"{len(heavy):7,} functions with a cognitive load of {LOAD} or more")
    for number, name in heavy:
        print(f"{number:11} {name}")


if __name__ == "__main__":
    given = [one for one in sys.argv[1:] if one != "--defence"]
    root = Path(given[0]) if given else ROOT
    if "--defence" in sys.argv[1:]:
        print_defence(root)
        sys.exit()
    counted = by_room(root)
    for (package, room), lines in sorted(counted.items(), key=lambda one: -one[1]):
        print(f"{lines:7,} {package}/{room}")
    print(f"{counted.total():7,} in all")
