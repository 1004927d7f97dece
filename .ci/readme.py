"""Run README's commands as printed, in their order, in a fresh clone, and print the minutes of each.

python .ci/readme.py [--fast] [--work FOLDER] [--photographs FOLDER]

About 15 minutes on two idle CPU cores, 5 with `--fast`, which adds that option to the demo. Not run: the tests (`make
test` runs them), and the section on photographs unless `--photographs` (`make readme PHOTOGRAPHS=FOLDER`) names a
folder with `captions.jsonl` and `photos/`. The only difference from the page: the clone is of this checkout.
The service is asked for its page and then stopped.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLONE = "git clone https://github.com/OWNER/diptych && cd diptych"
ADDRESS = "http://127.0.0.1:8000"


def blocks(page: str) -> list[tuple[str, str]]:
    """Return (kind, text) of each command line and each Python program of a page; kind is `sh` or `python`."""
    found, program = [], None
    for line in page.splitlines():
        if line.startswith("```"):
            if program is not None:
                found.append(("python", "\n".join(program)))
            program = [] if line == "```python" else None
        elif program is not None:
            program.append(line)
        elif line.startswith("    "):
            found.append(("sh", line.strip()))
    return found


def serve(command: str, folder: Path, environment: dict[str, str]) -> int:
    """Start the service, ask it for its page, and stop it."""
    process = subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=folder, env=environment)
    try:
        for _ in range(120):
            if process.poll() is not None:
                return process.returncode or 1
            try:
                with urllib.request.urlopen(ADDRESS) as answer:
                    print(f"    {ADDRESS}: {answer.status}, {len(answer.read())} bytes")
                    break
            except OSError:
                time.sleep(1)
        process.send_signal(signal.SIGTERM)
        return process.wait(timeout=60)
    finally:
        process.kill()


def run_program(text: str, folder: Path, environment: dict[str, str], page: str) -> int:
    """Run a Python program; the page must state what it prints."""
    program = ["python", "-c", text]
    done = subprocess.run(program, check=False, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="")
    return done.returncode or int(f"This prints `{done.stdout.strip()}`" not in page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="Run the demo with --fast.")
    parser.add_argument("--work", type=Path, help="New folder for the clone; default: a temporary one, removed.")
    parser.add_argument("--photographs", type=Path, help="Folder with captions.jsonl and photos/ of yours.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        work = (given.work or Path(temporary) / "readme").resolve()
        work.mkdir(parents=True)
        folder = work / "diptych"
        page = (ROOT / "README.md").read_text()
        commands = blocks(page)
        if commands[0] != ("sh", CLONE):
            sys.exit(f"README's first command is {commands[0]}; wanted: {CLONE}")
        subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
        if given.photographs:
            for name in ("captions.jsonl", "photos"):
                (folder / name).symlink_to((given.photographs / name).resolve())
        venv = folder / ".venv"
        environment = {**os.environ, "VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:{os.environ['PATH']}"}
        ran, failed, photographs = 0, [], False
        for kind, text in commands[1:]:
            photographs = (photographs or text.startswith("diptych check")) and kind == "sh"
            if "pytest" in text or (photographs and not given.photographs):
                print(f"not run: {text}")
                continue
            command = f"{text} --fast" if given.fast and text.endswith("diptych demo") else text
            print(f"+ {command if kind == 'sh' else 'python'}", flush=True)
            start = time.monotonic()
            if "diptych serve" in text:
                code = serve(command, folder, environment)
            elif kind == "python":
                code = run_program(text, folder, environment, page)
            else:
                code = subprocess.run(["bash", "-c", command], check=False, cwd=folder, env=environment).returncode
            print(f"    exit code {code}, {(time.monotonic() - start) / 60:.1f} minutes", flush=True)
            ran += 1
            failed += [text] if code else []
    print(f"{ran} commands, {len(failed)} failed", *failed, sep="\n    ")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
