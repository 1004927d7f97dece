"""A fork server for tests: `python ARGUMENTS` in a tenth of a second. A new interpreter takes five to import torch.

The server has imported torch and Diptych, without the type checks of tests, and has computed nothing: it asserts before
each fork that it has one thread. What it starts is a fork of it.

Isolated, as in a new interpreter: arguments, `__main__`, folder, environment (replaced, not added to), PYTHONPATH and
the entry points of packages there, the three streams, signal handlers, locks, memory, random states, temporary folder.
At its end threads are joined, functions of `atexit` run and streams flushed.

Not seen, so tests of these start a real interpreter (tests/guards/test_interpreters.py counts them): what is imported
when and how long it takes, encodings and locale, PYTHON* but for PYTHONPATH, hash seeds, OMP_NUM_THREADS (it is 1) and
malloc's variables, the loader's errors, how modules are taken down, what reaches the disk (`fsync` does nothing), and
the ways in (`diptych`, torchrun, wheels).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import random
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

PRELOADED = (
    "torch", "torch._dynamo", "torchvision", "numpy", "diptych.cli", "diptych_mine.run", "diptych_world.demo.demo",
    "diptych.runs.evaluation.augment", "diptych.data.extract.own_data", "diptych.runs.importing", "diptych.runs.stages",
    "diptych.inference.predictor",
)  # fmt: skip
FILES = (0, 1, 2)
_BEFORE = dict(os.environ)  # any test
_started: list[str] = []  # the folder of this process's server


class Popen:
    """As `subprocess.Popen(["python", *arguments])`, of text; `arguments` begin with -m, -c or a script."""

    def __init__(
        self,
        arguments: Sequence[object],
        env: Mapping[str, str] | None = None,
        cwd: object = None,
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        start_new_session: bool = False,
    ) -> None:
        self.args = [str(word) for word in arguments]
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = None, None, None
        given, ours = [], []
        for number, (name, asked) in enumerate((("stdin", stdin), ("stdout", stdout), ("stderr", stderr))):
            if asked == subprocess.PIPE:
                ends = os.pipe()
                inner, outer = ends if number == 0 else ends[::-1]
                setattr(self, name, open(outer, "w" if number == 0 else "r", encoding="utf-8"))  # noqa: SIM115
                ours.append(inner)
                given.append(inner)
            elif asked == subprocess.DEVNULL:
                ours.append(os.open(os.devnull, os.O_RDWR))
                given.append(ours[-1])
            elif asked == subprocess.STDOUT:
                given.append(given[1])
            else:
                given.append(number if asked is None else asked if isinstance(asked, int) else asked.fileno())
        told = {"arguments": self.args, "env": dict(os.environ if env is None else env), "cwd": str(cwd or Path.cwd())}
        told["session"] = start_new_session
        message = json.dumps(told).encode()
        self._link = socket.socket(socket.AF_UNIX)
        self._link.connect(start())
        socket.send_fds(self._link, [len(message).to_bytes(4, "big")], given)
        self._link.sendall(message)
        for number in ours:
            os.close(number)
        self._answers = self._link.makefile("r")
        self.pid = int(self._answers.readline())

    def __enter__(self) -> Popen:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # a timeout, say: what hangs would be waited for
            self.kill()
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                file.close()
        self.wait()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._link], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, below 0 for a signal. Raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._link], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._link.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def run(
    arguments: Sequence[object],
    env: Mapping[str, str] | None = None,
    cwd: object = None,
    check: bool = False,
    timeout: float | None = None,
    input: str = "",
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run(["python", *arguments], capture_output=True, text=True)`."""
    with tempfile.TemporaryFile("w+") as fed, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        fed.write(input)
        fed.seek(0)
        child = Popen(arguments, env, cwd, fed, out, error)
        try:
            child.wait(timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise
        done = subprocess.CompletedProcess(child.args, child.wait(), _read(out), _read(error))
    if check and done.returncode:
        raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
    return done


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def ranks(
    arguments: Sequence[object], count: int, env: Mapping[str, str], cwd: object = None, timeout: float = 600.0
) -> list[subprocess.CompletedProcess[str]]:
    """The processes that torchrun would start, by their environment; all end where one fails."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        begun, files = [], [Path(folder, f"{rank}.err") for rank in range(count)]
        for rank, file in enumerate(files):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count,
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}  # fmt: skip
            with file.open("w") as error:
                named = {name: str(value) for name, value in place.items()} if count > 1 else {}
                begun.append(Popen(arguments, {**env, **named}, cwd, subprocess.DEVNULL, error, error))
        deadline = time.monotonic() + timeout
        while any(child.poll() is None for child in begun):
            if any(child.returncode for child in begun) or time.monotonic() > deadline:
                for child in begun:
                    child.kill()
            time.sleep(0.01)
        return [
            subprocess.CompletedProcess(child.args, child.wait(), "", file.read_text())
            for child, file in zip(begun, files, strict=True)
        ]


def start() -> str:
    """The socket of this process's server, which is started when it is first asked for."""
    if not _started:
        folder = tempfile.mkdtemp()
        path = f"{folder}/socket"
        command = [sys.executable, __file__, path]  # an interpreter: the server itself
        environment = {**_BEFORE, "OMP_NUM_THREADS": "1"}
        begun = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert begun.stdin is not None
        assert begun.stdout is not None
        assert begun.stdout.readline() == b"ready\n"
        _started.append(path)

        def end(owner: int = os.getpid()) -> None:
            if os.getpid() == owner:
                begun.stdin.close()  # type: ignore[union-attr]
                begun.wait()
                shutil.rmtree(folder, ignore_errors=True)

        atexit.register(end)
    return _started[0]


def _serve(path: str) -> dict[str, Any]:
    """Fork for each who asks, until standard input is closed; return in the child, with what was asked."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    os.fsync = lambda fd: None  # as in conftest.py
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(16)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.write(1, b"ready\n")
    while True:
        if listening not in select.select([listening, 0], [], [])[0]:
            os._exit(0)
        link, _ = listening.accept()
        assert len(os.listdir("/proc/self/task")) == 1, "the child would lack a thread"
        if os.fork() == 0:
            listening.close()
            return _asked(link)
        link.close()


def _asked(link: socket.socket) -> dict[str, Any]:
    """Of two processes the inner one returns; the outer one waits for it and tells how it ended."""
    size, files, *_ = socket.recv_fds(link, 4, len(FILES))
    with link.makefile("rb") as reader:
        told = json.loads(reader.read(int.from_bytes(size, "big")))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        link.close()
        return {**told, "files": files}
    for file in (*FILES, *files):
        os.close(file)
    try:
        link.sendall(f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        link.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    finally:  # nobody may listen any more
        os._exit(0)


def _become(arguments: list[str], env: dict[str, str], cwd: str, session: bool, files: list[int]) -> None:
    """Be what an interpreter started with these would be, to its end."""
    if session:
        os.setsid()
    _surround(env, cwd, files)
    code: Any = 1
    try:
        _execute(arguments)
        code = 0
    except SystemExit as left:
        code = left.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)  # without taking down modules, which takes a second


def _surround(env: Mapping[str, str], cwd: str, files: Sequence[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number in range(1, signal.NSIG):
        if signal.getsignal(number) not in (signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    random.seed()
    importlib.import_module("numpy").random.seed()
    tempfile.tempdir = None
    importlib.invalidate_caches()


def _execute(arguments: list[str]) -> None:
    """Run a module (-m), a text (-c) or a script as `__main__`."""
    kind, *rest = arguments
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place and place not in sys.path]
    sys.path[:0] = ["" if kind in ("-m", "-c") else str(Path(kind).parent), *places]
    sys.modules["__main__"] = types.ModuleType("__main__")
    if kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), sys.modules["__main__"].__dict__)
    else:
        sys.argv = arguments
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of tests, where `data` and others lie
    _become(**_serve(sys.argv[1]))
