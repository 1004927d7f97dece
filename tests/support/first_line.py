"""The first line of a command while its imports are blocked: what a user reads before any slow work."""

import os
import subprocess
import sys
from pathlib import Path

CODE = 7  # of a command whose first line was read
# In place of torch: waits until the reader of the first line says so. 30 s without it end the command.
BLOCKED = f"""
import select, sys
if select.select([sys.stdin], [], [], 30)[0] and sys.stdin.readline() == "read\\n":
    sys.exit({CODE})
sys.exit("nobody read a line")
"""


def first_line(folder: Path, *words: str) -> str:
    """The first line of `diptych WORDS` on standard error, printed before torch is imported. Runs in `folder`."""
    (folder / "blocked").mkdir()
    (folder / "blocked" / "torch.py").write_text(BLOCKED)
    environment = os.environ | {"PYTHONPATH": str(folder / "blocked")}
    command = [sys.executable, "-m", "diptych.cli", *words]  # an interpreter: what is imported when
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, env=environment, cwd=folder, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        line = process.stderr.readline()
        if process.poll() is None:
            process.stdin.write("read\n")
            process.stdin.flush()
        rest = process.stderr.read()
    assert process.returncode == CODE, line + rest
    return line
