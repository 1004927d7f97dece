"""The command line is quick to help, and its verbs are the ones promised."""

import subprocess
import sys

HEAVY = ("torch", "pydantic", "numpy", "PIL", "tokenizers")


def test_help_imports_nothing_heavy() -> None:
    """A count of imports, not of seconds: `benchmarks/help.py` measures the time."""
    code = f"import sys, diptych.cli; sys.exit(', '.join(m for m in {HEAVY} if m in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"`diptych --help` waits for {done.stderr}"


def test_the_verbs_are_there() -> None:
    from diptych.cli import app

    verbs = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback is not None}
    verbs |= {g.name for g in app.registered_groups}
    wanted = "demo storybook check extract augment pretrain finetune evaluate caption ask search import tokens"
    assert set(wanted.split()) <= verbs
