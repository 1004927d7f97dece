"""What the README says is true."""

import importlib.util
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from typer._click.exceptions import UsageError

from diptych.cli import app
from diptych.cli.predict import make_verb
from diptych.systems import RECIPES, STAGED

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()


def test_links_go_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target


def test_each_command_begins_with_a_verb_that_exists() -> None:
    # an interpreter: `python -m diptych.cli` as users start it
    shown = subprocess.run([sys.executable, "-m", "diptych.cli", "--help"], capture_output=True, text=True, check=True)
    verbs = set(re.findall(r"^  ([a-z]+) {2,}\S", shown.stdout, re.MULTILINE))
    assert {"demo", "caption"} <= verbs
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for verb in re.findall(r"(?:^ {4}|`|uv run )diptych ([a-z]+)", page.read_text(), re.MULTILINE):
            assert verb in verbs, f"{page.name} names `diptych {verb}`"


def test_one_line_captions_a_photograph_one_runs_the_main_job_and_one_the_tests() -> None:
    commands = re.findall(r"^    pip install -q uv && (.*)$", README, re.MULTILINE)
    photograph = "uv run diptych caption docs/photos/cat.jpg --model photos"
    assert commands == [photograph, "uv run diptych demo", "uv run --group dev pytest"]


def commands() -> list[list[str]]:
    """The words of each `diptych` command of the page, as `make readme` reads them, in order."""
    spec = importlib.util.spec_from_file_location("readme", ROOT / ".ci/readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lines = [text for kind, text in module.blocks(README) if kind == "sh"]
    assert lines[0] == module.CLONE
    return [shlex.split(line.rpartition("diptych ")[2]) for line in lines[1:] if re.search(r"\bdiptych ", line)]


# What the reader brings, and what the demo leaves (`make readme` runs it).
BROUGHT = {"captions.jsonl", "photos"}
DEMO = {"demo/caption", "demo/vqa", "demo/store", "demo/world/pictures/test/000000.png"}
WRITES = {"--out"}


NO_FILE = {*WRITES, "--backbone"}


def test_commands_parse_and_read_what_is_there() -> None:
    """Each verb and option exists; each path is in the checkout, the reader's, or made by a command above."""
    group = typer.main.get_command(app)
    there = set(BROUGHT)
    for verb, *arguments in commands():
        command = make_verb(verb) or group.get_command(None, verb)  # type: ignore[attr-defined]
        command.make_context(verb, list(arguments))  # raises for what does not exist
        options = dict(pairwise(arguments))
        for before, word in zip(["", *arguments], arguments, strict=False):
            if before == "--recipe" or (verb == "pretrain" and word == arguments[0]):
                assert word in {**RECIPES, **STAGED}, f"`diptych {verb}` names the recipe {word}"
            elif before not in NO_FILE and re.fullmatch(r"[\w.]+(/[\w.]+)+|.*\.jsonl|photos|store", word):
                assert word in there or (ROOT / word).exists(), f"`diptych {verb}` reads {word}: not made above"
        there |= {options[option] for option in WRITES & options.keys()}
        there |= DEMO if verb == "demo" else set()
    assert {"runs/captions", "store", *DEMO} <= there


@pytest.mark.parametrize("line", ["caption a.png --modell m", "captoin a.png"])
def test_what_does_not_parse_is_seen(line: str) -> None:
    verb, *arguments = line.split()
    command = make_verb(verb) or typer.main.get_command(app).get_command(None, verb)  # type: ignore[attr-defined]
    with pytest.raises((AttributeError, UsageError)):
        command.make_context(verb, arguments)


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 130
