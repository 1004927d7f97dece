"""Sentences in the package use the field's words, and are short enough to be read once."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
# Folders of the library, and the programs.
ROOMS = sorted(
    str(path.parent.relative_to(SRC))
    for path in (*SRC.glob("diptych/*/__init__.py"), *SRC.glob("diptych_*/__init__.py"))
)

# Words that have a plainer standard term.
REFUSED = {
    "told": "reported, given, passed", "tell": "report, distinguish", "tells": "reports", "said": "reported, given",
    "says": "reports, states", "beside": "next to, with", "goes on": "resumes, continues", "go on": "resume, continue",
    "stands": "is", "so many": "N", "what is not of": "name the subject", "of before": "older",
    "whoever": "name the subject", "kindly": "leave it out", "nobody": "name the subject",
}  # fmt: skip
PATTERN = re.compile(r"(?<![\w-])(" + "|".join(REFUSED) + r")(?![\w-])", re.IGNORECASE)
LONGEST = 40  # words in a sentence
LONG, LONG_SHARE = 25, 0.03  # words in a sentence of a page that few exceed, and the share that may
WIDEST = 120  # characters in a line of a page, outside tables and links

# Phrases of another language in English words.
COUNTED = "box|caption|column|file|folder|image|item|key|line|picture|process|record|region|row|task|text|word"
PHRASES = {
    r"(?<!there )\bis no (?!matter)[a-z]+": "is not a ...",
    r"\bexcludes? each other\b": "are mutually exclusive",
    rf"(?<!not )\b(?:a|one) (?:{COUNTED}) an? (?:{COUNTED}|day|head|page|query|question|run|sentence|split|step|time)\b"
    r"(?! (?:is|are|was|has)\b)": "one ... per ..., each ... has one ...",
}  # fmt: skip
PHRASE = re.compile("|".join(f"({pattern})" for pattern in PHRASES), re.IGNORECASE)

# Outside src, and phrases in src: faults that each file still has. A number may only fall.
LEFT = Path(__file__).with_name("words_left.txt")
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md", "experiments/**/*.md")
PROGRAMS = ("src/**/*.py", "experiments/**/*.py", "benchmarks/**/*.py")
SETTINGS = ("*.toml", "src/**/*.toml")
QUOTED = {"docs/papers.md"}  # lines of tables, from the papers

# Names that a reader has to decode: classes, functions, parameters, attributes, variables and modules.
NAMES = {
    "Looked", "Seen", "Kept", "Teaching", "Rewarded", "taught", "starts", "fitting", "wish", "way", "marks",
    "made_ahead", "apart", "among_slots", "asking", "asked", "found", "_thirds", "of_onnx",
}  # fmt: skip

# (path below src, without `diptych/`; word or name): why it stays.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("systems/xgpt/layers.py", "found"): "a key of saved models (refining.N.found)",
    ("diptych_world/demo/demo.py", "taught"): "a key of demo.json",
    ("diptych_world/choices.py", "tell"): "a question of the drawn world",
    ("diptych_world/web/prose.py", "nobody"): "a sentence on pages of the test web",
}


def sentences(source: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, comment and message (a string of two words or more) of a file."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def defined(stem: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of everything that a file gives a name."""
    yield 1, stem
    for node in ast.walk(tree):
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
    for path in sorted((SRC / room).rglob("*.py")):
        place = str(path.relative_to(SRC)).removeprefix("diptych/")
        source = path.read_text()
        tree = ast.parse(source)
        for line, text in sentences(source, tree):
            for match in PATTERN.finditer(text):
                word = match[1].lower()
                if (place, word) not in EXCEPTIONS:
                    refused.append(f"{place}:{line}: {word!r}: write {REFUSED[word]}")
        for line, text in docstrings(tree):
            for sentence in re.split(r"(?<=[.!?:])\s+|\n\s*\n|\n\s*[-*] ", text):
                if len(sentence.split()) > LONGEST:
                    refused.append(f"{place}:{line}: {len(sentence.split())} words in one sentence: {sentence[:60]}...")
        for line, name in defined(path.stem, tree):
            if name in NAMES and (place, name) not in EXCEPTIONS:
                refused.append(f"{place}:{line}: the name {name!r}")
    return refused


def paragraphs(text: str) -> Iterator[str]:
    """Each paragraph or list item of a page, without code, tables and headings."""
    lines: list[str] = []
    for line in (*re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines(), ""):
        item = re.match(r"\s*(?:[-*>]|\d+\.) ", line)
        if item or not line.strip() or line.startswith(("|", "#", "    ", "!")):
            if lines:
                yield " ".join(lines)
            lines = [line[item.end() :]] if item else []
        else:
            lines.append(line.strip())


def in_sentences(text: str) -> list[str]:
    """Split a paragraph, with the text of its links and without its code."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return [one for one in re.split(r"(?<=[.!?:])\s+", plain) if one.strip()]


def words_in(text: str) -> list[str]:
    """The refused words and phrases of a text, each with what to write."""
    text = re.sub(r"`[^`\n]*`|file\.tell\(\)", "", text)
    return [f"{one[0]!r}: write {REFUSED[one[0].lower()]}" for one in PATTERN.finditer(text)] + [
        f"{one[0]!r}: write {list(PHRASES.values())[one.lastindex - 1]}"
        for one in PHRASE.finditer(text)
        if one.lastindex is not None
    ]


def of_page(path: Path) -> list[str]:
    text = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), path.read_text(), flags=re.DOTALL)
    found = [f"{at}: {word}" for at, line in enumerate(text.splitlines(), 1) for word in words_in(line)]
    found += [
        f"{at}: {len(line)} characters in a line"
        for at, line in enumerate(text.splitlines(), 1)
        if len(line) > WIDEST and not line.startswith(("|", "    ")) and not re.search(r"\]\([^)]*\)", line)
    ]
    return found + [
        f"{len(one.split())} words in one sentence: {one[:60]}..."
        for part in paragraphs(text)
        for one in in_sentences(part)
        if len(one.split()) > LONGEST
    ]


def of_program(path: Path) -> list[str]:
    found = []
    in_src = path.is_relative_to(ROOT / "src")  # where `faults` looks for words
    source = path.read_text()
    tree = ast.parse(source)
    for line, text in sentences(source, tree):
        for word in words_in(text):
            if not (in_src and PATTERN.match(word[1:])):
                found.append(f"{line}: {word}")
    for line, text in docstrings(tree) if not in_src else ():
        for sentence in re.split(r"(?<=[.!?:])\s+|\n\s*\n|\n\s*[-*] ", text):
            if len(sentence.split()) > LONGEST:
                found.append(f"{line}: {len(sentence.split())} words in one sentence: {sentence[:60]}...")
    return found


def of_settings(path: Path) -> list[str]:
    return [f"{at}: {word}" for at, line in enumerate(path.read_text().splitlines(), 1) for word in words_in(line)]


def outside() -> dict[str, list[str]]:
    """What each page, program and table of settings has that the guard refuses."""
    readers = {PAGES: of_page, PROGRAMS: of_program, SETTINGS: of_settings}
    found = {
        str(path.relative_to(ROOT)): read(path)
        for patterns, read in readers.items()
        for pattern in patterns
        for path in sorted(ROOT.glob(pattern))
    }
    return {name: faults for name, faults in found.items() if faults and name not in QUOTED}


def left() -> dict[str, int]:
    return {name: int(count) for count, name in (line.split() for line in LEFT.read_text().splitlines())}


def test_pages_and_programs_are_plain() -> None:
    """Each file has at most as many faults as words_left.txt lists for it."""
    most, found = left(), outside()
    worse = {name: faults for name, faults in found.items() if len(faults) > most.get(name, 0)}
    assert not worse, "\n".join(f"{name}:{fault}" for name, faults in worse.items() for fault in faults)
    assert not (gone := most.keys() - found.keys()), f"take these out of {LEFT.name}: {sorted(gone)}"


def long_sentences(pages: list[Path]) -> tuple[int, int]:
    """Count the sentences of pages that exceed `LONG` words, and all."""
    lengths = [
        len(one.split()) for page in pages for part in paragraphs(page.read_text()) for one in in_sentences(part)
    ]
    return sum(length > LONG for length in lengths), len(lengths)


def test_few_sentences_of_pages_are_long() -> None:
    over, total = long_sentences([path for pattern in PAGES for path in ROOT.glob(pattern)])
    assert over <= LONG_SHARE * total, f"{over} of {total} sentences have more than {LONG} words"


@pytest.mark.parametrize("room", ROOMS)
def test_sentences_and_names_are_plain(room: str) -> None:
    assert not faults(room)


def test_the_guard_sees_words_sentences_and_names() -> None:
    source = '"""It tells so many."""\n\nfound = "goes on: it said"  # beside\n'
    tree = ast.parse(source)
    words = [match[1] for _, text in sentences(source, tree) for match in PATTERN.finditer(text)]
    assert sorted(words) == ["beside", "goes on", "said", "so many", "tells"]
    assert [name for _, name in defined("way", tree) if name in NAMES] == ["way", "found"]


def test_the_guard_sees_phrases_lines_and_long_sentences(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    lines = ("It is no file: `is no file`.", "A caption a picture.", "", "x" * 121, "", *["word " * 20] * 2, "word.")
    page.write_text("\n".join(lines))
    assert len(of_page(page)) == 4
    assert long_sentences([page]) == (1, 5)


if __name__ == "__main__":  # python tests/guards/test_words.py [ROOM... | outside | left]
    import sys

    if sys.argv[1:] == ["left"]:
        LEFT.write_text("".join(f"{len(faults)} {name}\n" for name, faults in sorted(outside().items())))
        raise SystemExit
    if sys.argv[1:] == ["outside"]:
        print("\n".join(f"{name}:{fault}" for name, faults in outside().items() for fault in faults))
        raise SystemExit

    print("\n".join(fault for room in sys.argv[1:] or ROOMS for fault in faults(room)))
