"""The command line is quick to help, and each of its verbs says what it does and stands in the documents."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from diptych.cli import app
from diptych.systems import SYSTEMS

ROOT = Path(__file__).parent.parent.parent
HEAVY = ("torch", "pydantic", "numpy", "PIL", "tokenizers", "rich.console")


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every verb, those of groups as `storybook write`. Groups are told by what they hold: typer has its own click."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name, command


VERBS = dict(commands(typer.main.get_command(app)))


def test_help_imports_nothing_heavy() -> None:
    """A count of imports, not of seconds: `benchmarks/startup.py` measures the time."""
    code = f"import sys, diptych.cli; sys.exit(', '.join(m for m in {HEAVY} if m in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"`diptych --help` waits for {done.stderr}"


def test_groups_are_looked_into() -> None:
    assert {"storybook write", "storybook show", "storybook detector", "finetune", "recipes"} <= VERBS.keys()


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_says_what_it_and_its_options_do(verb: str) -> None:
    """In a plain sentence each: a capital, four words or more, a full stop."""
    first = (VERBS[verb].help or "").split("\n\n")[0]
    assert is_sentence(first, words=3), f"`diptych {verb}`: {first!r}"
    said = {parameter.name: getattr(parameter, "help", None) or "" for parameter in VERBS[verb].params}
    wanting = {name: text for name, text in said.items() if name != "help" and not is_sentence(text, words=4)}
    assert not wanting, f"`diptych {verb}` has options without a sentence of help"


def is_sentence(text: str, words: int) -> bool:
    return text[:1].isupper() and text.endswith(".") and len(text.split()) >= words


def test_each_verb_is_in_the_documents() -> None:
    pages = "\n".join(page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    unknown = [verb for verb in VERBS if not re.search(rf"\bdiptych {verb}\b", pages)]
    assert not unknown


def test_the_systems_are_named_in_help() -> None:
    """By their folders, since importing the models would keep help waiting."""
    (option,) = (one for one in VERBS["demo"].params if one.name == "system")
    assert [name for name in SYSTEMS if name not in option.help] == []
