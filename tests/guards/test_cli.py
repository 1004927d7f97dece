"""The command line is quick to help, and each of its verbs says what it does and stands in the documents."""

import re
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import typer

from diptych.cli import app, run_verb, verbs
from diptych.cli.completion import completed
from diptych.cli.predict import make_verb
from diptych.runtime.verbs import TASK_VERBS
from diptych.systems import SYSTEMS
from diptych.tasks import TASKS, tasks_by_verb
from tests.attack.outputs import commands
from tests.support import zygote

ROOT = Path(__file__).parent.parent.parent
HEAVY = ("torch", "pydantic", "numpy", "PIL", "tokenizers", "rich.console")


OWN_TASKS, OWN_SYSTEMS = frozenset(TASKS), frozenset(SYSTEMS)  # before tests add theirs
GROUP: Any = typer.main.get_command(app)
VERBS = dict(commands(GROUP))


def test_help_imports_nothing_heavy() -> None:
    """A count of imports, not of seconds: `benchmarks/startup.py` measures the time."""
    code = f"import sys, diptych.cli; sys.exit(', '.join(m for m in {HEAVY} if m in sys.modules) or 0)"
    # an interpreter: what is imported when
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"`diptych --help` waits for {done.stderr}"


def test_groups_are_looked_into() -> None:
    assert {"storybook write", "storybook show", "storybook detector", "finetune", "recipes"} <= VERBS.keys()


def test_each_task_s_verb_is_in_help(capsys: pytest.CaptureFixture[str]) -> None:
    """With its arguments, whichever way the task's file imports the interface."""
    made = {verb: spec.required_interface for verb, spec in tasks_by_verb().items() if spec.name in OWN_TASKS}
    assert run_verb(["--help"], debug=False) == 0
    listed = {words[0] for line in capsys.readouterr().out.splitlines() if (words := line.split())}
    assert made.keys() <= listed
    pictured = {verb: one for verb, one in made.items() if one.pictured}
    asked = {
        verb: (one.help, *(form.argument for form in one.forms.values() if form.argument))
        for verb, one in pictured.items()
    }
    assert asked == {verb: (one.help, *one.arguments) for verb, one in TASK_VERBS.items()}


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
    """By the folders of their room, since importing the models would keep help waiting."""
    (option,) = (one for one in VERBS["demo"].params if one.name == "system")
    assert option.help.startswith(f"System to run: {', '.join(sorted(OWN_SYSTEMS))}, or one of")


@pytest.mark.slow
def test_verbs_are_listed_by_group_with_exit_codes() -> None:
    shown = zygote.run(["-m", "diptych.cli", "-h"], check=True)
    titles = re.findall(r"^([A-Z]\w+):$", shown.stdout, re.MULTILINE)
    assert titles == ["Options", "Use", "Train", "Data", "Share", "World"], (
        "a verb without rich_help_panel is in Commands"
    )
    assert "75 stopped and saved" in " ".join(shown.stdout.split())


MISSING = {  # words -> what the error names; nothing for those that are right
    "caption a.png": "Missing --model", "ask a.png what": "Missing --model",
    "caption --model x": "Missing argument IMAGE", "ask --model=x a.png": "Missing argument QUESTIONS",
    "choose a.png --server http://x what": "Missing argument ANSWERS", "search": "Missing argument 'query'",
    "evaluate": "Missing option",
    "finetune caption --data a --out b": "--from-scratch", "tokenizer train --out a": "Missing --data",
    "score a": "--references", "extract a --out b": "Missing option '--detector'",
    "extract a --out=": "'--out': found an empty path", "search dog --images=": "'--images': found an empty path",
    "push a b/c --out d": "needs --dry-run", "data": "", "data coco .": "", "completion bash": "",
    "completion b": "'shell': 'b' is not one of", "export a --out b --format c": "'--format': 'c' is not one of",
    "finetune caption --data a --model b --out c --lr -1": "--lr: found -1, expected a number above 0",
    "finetune caption --data a --model b --out c --epochs nan": "--epochs: found nan",
}  # fmt: skip
EACH = """
import os, sys
from diptych.cli import run_verb
codes = []
for words in sys.argv[1:]:
    if os.fork() == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(f"{len(codes)}.err", os.O_WRONLY | os.O_CREAT), 2)
        code = run_verb(words.split(), False)
        assert "torch" not in sys.modules
        sys.exit(code)
    codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
print(*codes)
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Exit code and error of each, in a fork of one process that has imported the command line alone."""
    folder = tmp_path_factory.mktemp("missing")
    # an interpreter: what is imported when
    done = subprocess.run(
        [sys.executable, "-c", EACH, *MISSING], cwd=folder, capture_output=True, text=True, check=True
    )
    codes = map(int, done.stdout.split())
    errors = ((folder / f"{place}.err").read_text() for place in range(len(MISSING)))
    return dict(zip(MISSING, zip(codes, errors, strict=True), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("words", "wanted"), MISSING.items())
def test_what_is_missing_is_named_before_torch_is_imported(
    words: str, wanted: str, ended: dict[str, tuple[int, str]]
) -> None:
    code, error = ended[words]
    assert (code, wanted in error) == (2 if wanted else 0, True), error


def test_what_load_refuses_is_named_as_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_verb(["caption", "a.png", "--model", "sample", "--device", "quantum"], debug=False) == 2
    assert capsys.readouterr().err.startswith("opening sample\ndiptych: --device: 'quantum' is not a device")


def test_a_misspelt_model_is_not_reported_as_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_verb(["caption", "a.png", "--modle", "sample"], debug=False) == 2
    assert "No such option: --modle (Possible options: --model" in capsys.readouterr().err


def options(verb: str) -> set[str]:
    """The options of a verb, as its help lists them."""
    given = {name for one in VERBS[verb].params for name in (*one.opts, *one.secondary_opts)}
    return {name for name in given if name.startswith("-")}


@pytest.mark.parametrize("verb", sorted({*VERBS, *TASK_VERBS}))
def test_no_verb_has_too_many_options(verb: str) -> None:
    """`mine run` has more: rules, judges, fetching."""
    given = (VERBS[verb] if verb in VERBS else make_verb(verb)).params
    assert len([one for one in given if one.param_type_name == "option"]) <= {"mine run": 29}.get(verb, 25)


def test_completion_knows_every_verb_and_option() -> None:
    found = {path: (set(names), set(given)) for path, names, given in completed(GROUP)}
    for verb in VERBS:
        path = "/" + verb.replace(" ", "/").replace("SYSTEM", "tden")
        assert found[path] == (set(), options(verb) | {"-h", "--help"}), verb
    assert found[""][0] == {verb.split()[0] for verb in VERBS} | {
        "ask",
        "caption",
        "choose",
        "classify",
        "entail",
        "ground",
        "verify",
    }
    for verb in TASK_VERBS:
        made = [one.opts for one in make_verb(verb).params if one.param_type_name == "option"]
        assert found[f"/{verb}"] == (set(), {*chain(*made), "-h", "--help"})


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [("storybook w", "write web"), ("caption --num", "--num-captions"), ("im", "import"), ("import td", "tden"),
     ("import tden --voc", "--vocab"), ("plot ", "")],
)  # fmt: skip
def test_bash_completes(words: str, wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_verb(["completion", "bash"], debug=False) == 0
    typed = " ".join(word or "''" for word in ("diptych", *words.split(" ")))
    call = f"COMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _diptych"
    script = f"{capsys.readouterr().out}\n{call}\necho ${{COMPREPLY[*]}}"
    assert subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.strip() == wanted


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_offered_the_same(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_verb(["completion", shell], debug=False) == 0
    printed = capsys.readouterr().out
    assert all(name.lstrip("-") in printed for verb in VERBS for name in options(verb))
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n", "/dev/stdin"], input=printed, text=True, check=True)


@pytest.mark.parametrize("name", verbs.VERBS)
def test_help_reads_what_a_verb_states_itself(name: str) -> None:
    """`diptych --help` imports no verb."""
    listed, verb = GROUP.listed(None, name), GROUP.get_command(None, name)
    assert listed.get_short_help_str(1_000) == verb.get_short_help_str(1_000) != ""
    assert verbs.VERBS[name][0] in verbs.PANELS
