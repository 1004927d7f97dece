"""Processes that do what hostile files may make costly or fatal, each with a deadline and a limit of memory.

A thread in a C library cannot be stopped, and a fault of the library ends its whole process. So each of these processes
(`python -m MODULE`, which calls `answer`) reads requests from its standard input, one at a time: a line of JSON, and
bytes. It writes a line of JSON, and the numbers of an array. What it writes is checked as another's bytes are.
"""

import json
import math
import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from select import select
from threading import BoundedSemaphore
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from diptych.runtime.errors import DiptychError

SECONDS = 5.0  # of CPU time a request
PATIENCE = 10  # times as long by the clock, as the machine may be busy
MEMORY = 3 * 2**30  # bytes of address space of a process
IDLE = 0.5  # seconds
PIPE = 2**20  # bytes
LONGEST = 2**16  # bytes of a line that a process writes
NUMBERS = re.compile(r"[<>|][fiub]\d{1,2}")  # the types of arrays
# What the reply of a process that has ended, or does not keep to the form of `answer`, raises.
WRONG = (
    OSError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    RuntimeError,
)
Values = dict[str, Any]
Array = npt.NDArray[Any]
Reply = tuple[Values, Array | None]


class Ended(Exception):
    """A process ended before it had replied. The message says why, after the name of what it did."""


class LimitedProcesses:
    """Up to `processes` processes of a module, started when needed and again after one was ended.

    Args:
        module: module of `python -m`. It calls `answer`.
        errors: exceptions that a process may pass on, by name.
        processes: requests that are answered at a time; further ones wait.
        seconds: CPU time after which the process of a request is ended; ten times as much by the clock.
        memory: bytes of address space of a process.
        nice: how far the processes yield to others on the same cores, 0 to 19.
    """

    def __init__(
        self, module: str, errors: Mapping[str, type[DiptychError]], processes: int, seconds: float = SECONDS,
        memory: int = MEMORY, nice: int = 0,
    ) -> None:  # fmt: skip
        self.module, self.errors = module, errors
        self.seconds, self.memory, self.nice = seconds, memory, nice
        self._idle: deque[subprocess.Popen[bytes]] = deque()
        self._free = BoundedSemaphore(processes)

    def ask(self, request: Values, content: bytes = b"") -> Reply:
        """Return the values and the array of a reply. Raises Ended, and the error that the process passes on."""
        with self._free:
            child = self._take()
            try:
                values, array = _exchanged(child, request, content)
                error = self.errors[values["error"]](str(values["message"])) if "error" in values else None
                self._idle.append(child)
            except WRONG:
                raise Ended(self._why(_end(child))) from None
            except BaseException:  # an interrupt amid a reply
                _end(child)
                raise
        if error is not None:
            raise error
        return values, array

    def close(self) -> None:
        """End the processes."""
        while self._idle:
            _end(self._idle.pop())

    def _take(self) -> subprocess.Popen[bytes]:
        while self._idle:
            child = self._idle.pop()
            if child.poll() is None:
                return child
            _end(child)  # it was killed while it was idle
        return self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        limits = [str(self.seconds), str(self.memory), str(self.nice)]
        return subprocess.Popen(
            [sys.executable, "-P", "-m", self.module, *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pipesize=PIPE,
            start_new_session=True,  # Ctrl-C is for the parent
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "OMP_NUM_THREADS": "1"},
        )

    def _why(self, code: int) -> str:
        if code in (-signal.SIGPROF, -signal.SIGALRM):
            return f"took more than {self.seconds:g} seconds"
        return f"ended its process ({code}), perhaps for lack of memory"


def _exchanged(child: "subprocess.Popen[bytes]", request: Values, content: bytes) -> Reply:
    """Raises one of many errors where the process has ended, or its reply is not of the form of `answer`."""
    to, back = cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout)
    to.write(json.dumps(request).encode() + b"\n")
    to.write(content)
    to.flush()
    values: Values = json.loads(back.readline(LONGEST))
    if "array" not in values:
        return values, None
    shape, kind = values.pop("array")
    if not NUMBERS.fullmatch(kind) or math.prod(shape) * np.dtype(kind).itemsize > MEMORY:
        raise ValueError
    array = np.empty(shape, kind)
    left = array.reshape(-1).view(np.uint8).data
    while left:
        count = cast(Any, back).readinto(left)
        if not count:
            raise EOFError
        left = left[count:]
    return values, array


def _end(child: "subprocess.Popen[bytes]") -> int:
    """End a process, and return its code: negative for the signal that ended it."""
    for pipe in (child.stdin, child.stdout):
        with suppress(OSError):
            cast("IO[bytes]", pipe).close()
    try:
        return child.wait(1.0)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def answer(make: Callable[[Values, IO[bytes]], Reply], rest: Callable[[], None] = lambda: None) -> None:
    """In a process: answer requests until the standard input ends.

    Args:
        make: makes the values and the array of a reply. It may read the bytes after its request.
        rest: is called where there has been no request for half a second.
    """
    import resource  # POSIX alone has it

    seconds, memory, nice = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    os.nice(nice)
    with suppress(OSError), open("/proc/self/autogroup", "w") as group:  # a session may be a group, with one of its own
        group.write(str(nice))
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    memory = memory if most == resource.RLIM_INFINITY else min(memory, most)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    while True:
        if not select([requests], [], [], IDLE)[0]:
            rest()
        if not (line := requests.readline()):
            return
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, seconds * PATIENCE)
        array = None
        try:
            values, array = make(json.loads(line), requests)
        except DiptychError as error:
            values = {"error": type(error).__name__, "message": str(error)[: LONGEST // 8]}
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if array is not None:
            values["array"] = array.shape, array.dtype.str
        replies.write(json.dumps(values).encode() + b"\n")
        if array is not None:
            replies.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        replies.flush()
