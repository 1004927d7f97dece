"""The command line is quick to help, and each of its verbs says what it does and stands in the documents."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from diptych.cli import app

ROOT = Path(__file__).parent.parent.parent
HEAVY = ("torch", "pydantic", "numpy", "PIL", "tokenizers", "rich.console")


def commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every verb, those of groups as `storybook write`."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name, command


VERBS = dict(commands(typer.main.get_command(app)))


def test_help_imports_nothing_heavy() -> None:
    """A count of imports, not of seconds: `benchmarks/startup.py` measures the time."""
    code = f"import sys, diptych.cli; sys.exit(', '.join(m for m in {HEAVY} if m in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"`diptych --help` waits for {done.stderr}"


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_says_what_it_and_its_options_do(verb: str) -> None:
    assert VERBS[verb].help
    options = [parameter for parameter in VERBS[verb].params if parameter.name != "help"]
    silent = [parameter.name for parameter in options if not getattr(parameter, "help", None)]
    assert not silent, f"`diptych {verb}` has options without a word of help"


def test_each_verb_is_in_the_documents() -> None:
    pages = "\n".join(page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    unknown = [verb for verb in VERBS if not re.search(rf"\bdiptych {verb}\b", pages)]
    assert not unknown
