"""Imports go one way: the contract of rooms stands in pyproject.toml, that of files here."""

import ast
import re
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from importlinter.cli import lint_imports

from diptych.runtime.packages import OWN

ROOT = Path(__file__).parent.parent.parent


def test_imports_go_one_way(capsys: object) -> None:
    assert lint_imports(no_cache=True) == 0


def test_no_files_import_each_other() -> None:
    """Not in a circle either, however long; imports inside functions count."""
    assert circle(files_of_src()) is None


def test_one_module_opens_images() -> None:
    """Orientation, 16 bits, limits and odd metadata are handled there, for an exported folder too."""
    assert files_with(lambda node: isinstance(node, ast.Attribute) and ast.unparse(node) == "Image.open") == {
        "upright.py"
    }


def test_one_module_encodes_texts() -> None:
    """There "[SEP]" in a text is text. The other two make a tokeniser from its file, and pass it to that module."""
    assert files_with(
        lambda node: isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "tokenizers"
    ) == {"texts.py", "tokens.py", "runner.py"}
    assert files_with(lambda node: isinstance(node, ast.keyword) and node.arg == "add_special_tokens") == {"texts.py"}


def files_with(wanted: Callable[[ast.AST], bool]) -> set[str]:
    """Names of the files of src that have such a node."""
    return {
        path.name
        for path in (ROOT / "src").rglob("*.py")
        if any(map(wanted, ast.walk(ast.parse(path.read_text("utf-8")))))
    }


def test_packages_from_outside_import_the_public_modules_alone() -> None:
    """UNITER, the sixth system, and the package and the task of the tests; also where they are code in a string."""
    own = (ROOT / "tests" / "support" / name for name in ("sixth.py", "outside.py", "broken_off.py"))
    for path in (*(ROOT / "examples").rglob("*.py"), *own):
        imported = set(re.findall(r"^ *(?:from|import) (diptych[\w.]*)", path.read_text(), re.MULTILINE))
        assert imported <= {"diptych.plugin", "diptych.testing"}, path


def test_the_command_line_does_not_import_the_door_of_packages() -> None:
    """Nothing in src does: it imports most of Diptych, and `diptych --help` is quick."""
    assert not [name for name, to in files_of_src().items() if "diptych.plugin" in to]


def test_benchmarks_know_no_experiments() -> None:
    """What both need is in benchmarks/machine.py."""
    both = graph(ROOT, "benchmarks") | graph(ROOT, "experiments")
    assert not [name for name in both if name.startswith("benchmarks") for to in both[name] if "experiments" in to]
    assert circle(both) is None


def test_a_circle_is_seen(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    for name, text in (
        ("a", "from made import b"),
        ("b", "def f():\n    from made.c import x"),
        ("c", "import made.a"),
    ):
        (tmp_path / "made" / f"{name}.py").write_text(text)
    found = circle(graph(tmp_path, "made"))
    assert found is not None
    assert set(found) == {"made.a", "made.b", "made.c"}
    (tmp_path / "made" / "c.py").write_text("import json")
    assert circle(graph(tmp_path, "made")) is None


def circle(imports: dict[str, set[str]]) -> list[str] | None:
    """Files that import each other, in turn; None where there are none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return None


def files_of_src() -> dict[str, set[str]]:
    return {name: to for package in OWN for name, to in graph(ROOT / "src", package).items()}


def graph(root: Path, package: str) -> dict[str, set[str]]:
    """Each file of a package, and the files of it and of others that it imports."""
    files = {_module(path.relative_to(root)): path for path in (root / package).rglob("*.py")}
    return {name: {to for to in _imported(path, files) if to != name} for name, path in files.items()}


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path, files: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                yield inner if (inner := f"{node.module}.{one.name}") in files else node.module


def test_no_test_imports_a_test() -> None:
    """What several tests use is in tests/support."""
    for path in (ROOT / "tests").rglob("*.py"):
        tree = ast.parse(path.read_text())
        modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert not [name for name in modules if name.rpartition(".")[2].startswith("test_")], path
