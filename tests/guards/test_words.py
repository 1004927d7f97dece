"""Sentences in the package use the field's words, and are short enough to be read once."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = sorted(path.name for path in (ROOT / "src/diptych").iterdir() if path.is_dir() and path.name != "__pycache__")

# Words that have a plainer standard term.
REFUSED = {
    "told": "reported, given, passed", "tell": "report, distinguish", "tells": "reports", "said": "reported, given",
    "says": "reports, states", "beside": "next to, with", "goes on": "resumes, continues", "go on": "resume, continue",
    "stands": "is", "so many": "N", "what is not of": "name the subject", "of before": "older",
    "whoever": "name the subject", "kindly": "leave it out", "nobody": "name the subject",
}  # fmt: skip
PATTERN = re.compile(r"(?<![\w-])(" + "|".join(REFUSED) + r")(?![\w-])", re.IGNORECASE)
LONGEST = 40  # words in a sentence

# Names that a reader has to decode: classes, functions, parameters, attributes, variables and modules.
NAMES = {
    "Looked", "Seen", "Kept", "Teaching", "Rewarded", "taught", "starts", "fitting", "wish", "way", "marks",
    "made_ahead", "apart", "among_slots", "asking", "asked", "found", "_thirds", "of_onnx",
}  # fmt: skip

# (path below src/diptych, word or name): why it stays.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("systems/xgpt/layers.py", "found"): "a key of saved models (refining.N.found)",
    ("runs/demo/demo.py", "taught"): "a key of demo.json",
    ("storybook/choices.py", "tell"): "a question of the drawn world",
    ("storybook/web/prose.py", "nobody"): "a sentence on pages of the test web",
}


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, comment and message (a string of two words or more) of a file."""
    source = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def defined(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of everything that a file gives a name."""
    yield 1, path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def faults(room: str) -> list[str]:
    """What a room has that the guard refuses, each with its place."""
    refused = []
    for path in sorted((ROOT / "src/diptych" / room).rglob("*.py")):
        place = str(path.relative_to(ROOT / "src/diptych"))
        for line, text in sentences(path):
            for match in PATTERN.finditer(text):
                word = match[1].lower()
                if (place, word) not in EXCEPTIONS:
                    refused.append(f"{place}:{line}: {word!r}: write {REFUSED[word]}")
        for line, text in docstrings(path):
            for sentence in re.split(r"(?<=[.!?:])\s+|\n\s*\n|\n\s*[-*] ", text):
                if len(sentence.split()) > LONGEST:
                    refused.append(f"{place}:{line}: {len(sentence.split())} words in one sentence: {sentence[:60]}...")
        for line, name in defined(path):
            if name in NAMES and (place, name) not in EXCEPTIONS:
                refused.append(f"{place}:{line}: the name {name!r}")
    return refused


@pytest.mark.parametrize("room", ROOMS)
def test_sentences_and_names_are_plain(room: str) -> None:
    assert not faults(room)


def test_the_guard_sees_words_sentences_and_names(tmp_path: Path) -> None:
    path = tmp_path / "way.py"
    path.write_text('"""It tells so many."""\n\nfound = "goes on: it said"  # beside\n')
    words = [match[1] for _, text in sentences(path) for match in PATTERN.finditer(text)]
    assert sorted(words) == ["beside", "goes on", "said", "so many", "tells"]
    assert [name for _, name in defined(path) if name in NAMES] == ["way", "found"]


if __name__ == "__main__":  # python tests/guards/test_words.py ROOM...
    import sys

    print("\n".join(fault for room in sys.argv[1:] or ROOMS for fault in faults(room)))
