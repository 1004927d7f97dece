"""What fuzzing found is refused, or read, for good."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack import guided
from tests.attack.fuzz import Fuzzer
from tests.attack.guided import CORPUS, folder_of, replay
from tests.attack.samples import fuzzers, without_world


def finds() -> Iterator[tuple[Fuzzer, list[bytes]]]:
    for fuzzer in without_world():
        if kept := sorted(folder_of(fuzzer.name).glob("*")):
            yield fuzzer, [path.read_bytes() for path in kept]


def test_what_fuzzing_found_is_refused(tmp_path: Path) -> None:
    broken = []
    for number, (fuzzer, inputs) in enumerate(finds()):
        (tmp_path / str(number)).mkdir()
        broken += [(fuzzer.name, how) for how in replay(fuzzer, inputs, tmp_path / str(number)) if how is not None]
    assert not broken


def test_each_folder_of_finds_is_of_a_reader() -> None:
    names = {folder_of(fuzzer.name).name for fuzzer in fuzzers(Path())}
    assert {path.name for path in CORPUS.glob("*")} <= names


@pytest.mark.parametrize("how", [None, "KeyError: 'unforeseen'"])
def test_a_find_that_is_not_mended_is_seen(how: str | None, tmp_path: Path) -> None:
    def read(folder: Path) -> None:
        if (folder / "a").read_bytes() == b"bad" and how is not None:
            raise KeyError("unforeseen")

    toy = Fuzzer("toy", lambda folder: (folder / "a").write_bytes(b"whole"), read)
    found = list(replay(toy, [b"\0whole", b"\0bad"], tmp_path))
    assert found[0] is None
    assert found[1] == (how and f"{how} (test_corpus.py:{read.__code__.co_firstlineno + 2})")


def test_guided_fuzzing_imports_the_package_only_where_it_is_instrumented() -> None:
    """A module that is imported earlier has no coverage, so its branches would not guide the search."""
    tree = ast.parse(Path(guided.__file__).read_text())
    named = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert not [name for name in named if name and name.startswith(("tests", "diptych", "benchmarks"))]
