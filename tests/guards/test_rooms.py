"""Rooms, names and lists that must not grow again (docs/decisions/0010-rooms.md)."""

import ast
import re
import runpy
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest

from diptych.tasks import TASKS

ROOT = Path(__file__).parent.parent.parent
SRC = ROOT / "src"
PACKAGE = SRC / "diptych"
# Lines of code of each package. A landing raises its number by what its issue may still add, and says so.
MOST_LINES = {"diptych": 34_610, "diptych_mine": 5_450, "diptych_serve": 1_750, "diptych_world": 3_440}


class Read(NamedTuple):
    """What is kept of a file: all trees together would take 110 MB."""

    defined: list[tuple[str, str]]
    words: list[tuple[int, set[object]]]
    imported: list[str]
    guesses: list[str]


@pytest.fixture(scope="module")
def files() -> dict[Path, Read]:
    return {path: read(ast.parse(path.read_text())) for path in SRC.rglob("*.py")}


def room_of(path: Path) -> str:
    """A folder of the library; a program is one room, but for its verbs."""
    package, room, *_ = path.relative_to(SRC).parts
    if package == "diptych":
        return room
    return "cli" if room == "cli.py" else package


def read(tree: ast.Module) -> Read:
    nodes = list(ast.walk(tree))
    imported = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    asked = [(ast.unparse(one.func), len(one.args), one) for one in calls]
    guesses = [ast.unparse(one) for name, count, one in asked if name == "hasattr" or (name, count) == ("getattr", 3)]
    words = [(line, found) for line, found in _words(nodes) if len(found) > 1]
    return Read(list(defined(tree)), words, imported, guesses)


def test_all_is_in_at_most_sixteen_rooms() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}
    assert sum((path / "__init__.py").exists() for path in PACKAGE.iterdir()) <= 16  # two are doors: `api` and `plugin`


def test_the_code_does_not_grow() -> None:
    counted = runpy.run_path(str(ROOT / ".ci" / "lines.py"))["by_package"]()
    assert counted.keys() == MOST_LINES.keys()
    assert not {package: lines for package, lines in counted.items() if lines > MOST_LINES[package]}


def test_a_public_class_name_is_used_once(files: dict[Path, Read]) -> None:
    places = defaultdict(list)
    for path, file in files.items():
        for name, meaning in file.defined:
            if meaning == "class":
                places[name].append(path.name)
    assert not {name: files for name, files in places.items() if len(files) > 1}


# Names that files of one room share on purpose.
TWINS = {
    ("cli", "main"): "the entry point, and the options of all verbs",
    ("core", "Count"): "counts in a contract and in settings have other limits",
    ("data", "fits"): "formats have functions of these names: the modules are the entries of FORMATS",
    ("data", "known"): "each lists the formats of its own module",
    ("data", "read"): "as fits",
    ("data", "read_lines"): "as fits",
    ("objectives", "Form"): "the forms of two papers' objectives, next to the class that has the setting",
    ("objectives", "Scheme"): "as Form",
    ("diptych_world", "captions"): "`official` writes what the module of this name draws, as the public sets have it",
    ("diptych_world", "file_of"): "a picture of the book, and of the test web",
    ("diptych_world", "hypotheses"): "as captions",
    ("diptych_world", "plan"): "plans a scene, and a page of the test web",
    ("diptych_world", "questions"): "as captions",
    ("diptych_world", "statements"): "as captions",
    ("diptych_world", "write"): "writes a world, and the test web",
    ("systems", "Structure"): "the structures of two systems' models, next to the class that has the setting",
}


def defined(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The public functions with their arguments, and the aliases and classes, of a file."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name, args=given):
                named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
                meaning = ", ".join(one.arg for one in named)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name[:1].isupper() and not name.isupper():
                meaning = ast.unparse(value)
            case ast.ClassDef(name=name):
                meaning = "class"
            case _:
                continue
        if not name.startswith("_"):
            yield name, meaning


def test_a_name_has_one_meaning_in_a_room(files: dict[Path, Read]) -> None:
    """No two public functions, or aliases of types and classes, of one name with different arguments."""
    meanings = defaultdict(set)
    for path, file in files.items():
        for name, meaning in file.defined:
            meanings[room_of(path), name].add(meaning)
    assert {key for key, found in meanings.items() if len(found) > 1} == TWINS.keys()


def test_tests_import_public_names() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("diptych"):
                private = [one.name for one in node.names if one.name.startswith("_") and one.name != "__version__"]
                assert not private, f"{path}: {private}"


def test_few_places_list_tasks(files: dict[Path, Read]) -> None:
    """Literals, `dict(...)` and match arms with two or more tasks' names; tables of tasks follow from TASKS."""
    names = {name for name, spec in TASKS.items() if not spec.pretrains}
    listing = [
        f"{path.relative_to(SRC)}:{line}"
        for path, file in files.items()
        for line, found in file.words
        if len(names & found) > 1
    ]
    assert len(listing) <= 5, listing


def _words(nodes: list[ast.AST]) -> Iterator[tuple[int, set[object]]]:
    for node in nodes:
        match node:
            case ast.Dict(keys=keys):
                yield node.lineno, {key.value for key in keys if isinstance(key, ast.Constant)}
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                yield node.lineno, {part.value for part in parts if isinstance(part, ast.Constant)}
            case ast.Call(func=ast.Name(id="dict"), keywords=given):
                yield node.lineno, {one.arg for one in given}
            case ast.Match(cases=cases):
                inside = (part for case in cases for part in ast.walk(case.pattern))
                yield node.lineno, {part.value for part in inside if isinstance(part, ast.Constant)}


def test_runs_ask_their_start_and_guess_nothing(files: dict[Path, Read]) -> None:
    """`Start` knows where weights come from; objectives and models have attributes for what they do."""
    asking = [path for room in ("runs", "cli") for path in (PACKAGE / room).rglob("*.py")]
    assert not [path for path in asking if re.search(r"\b\w*start is (not )?None", path.read_text())]
    assert not [files[path].guesses for path in asking if path.is_relative_to(PACKAGE / "runs") and files[path].guesses]


DOORS = {"api", "cli", "plugin"}  # verbs have the names of what they do
MEETING = {
    "Tokens": "a text's tokens as the metrics read them, and the tokeniser",
}


def test_a_name_has_one_meaning_where_two_rooms_meet(files: dict[Path, Read]) -> None:
    """Of two names alike with different arguments no file can see both: neither imports the other, nor a third both."""
    seen: dict[Path, set[str]] = {}
    meanings: dict[str, list[tuple[Path, str]]] = defaultdict(list)
    for path, file in files.items():
        if (room := room_of(path)) in DOORS:
            continue
        seen[path] = {*file.imported, module_of(path)}
        for name, meaning in file.defined:
            if (room, name) not in TWINS and not meaning.startswith("TypeVar"):
                meanings[name].append((path, meaning))
    met = {
        name
        for name, found in meanings.items()
        for (one, first), (other, second) in combinations(found, 2)
        if first != second and any({module_of(one), module_of(other)} <= modules for modules in seen.values())
    }
    assert met == MEETING.keys()


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")
