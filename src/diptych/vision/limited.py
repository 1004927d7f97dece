"""Read files that may be hostile in separate processes, with a deadline and a memory limit.

A thread inside a C library cannot be stopped, and a crash of the library ends the whole process. So the library runs in
separate processes (`python -m MODULE`, which calls `answer`). A process reads requests from its standard input, one at
a time: a line of JSON, then bytes. Its reply is a line of JSON, then the bytes of an array. An array of up to SHARED
bytes is passed in shared memory instead. The array may be the concatenation of several arrays; `parts` in the line of
JSON then has their shapes and types. Replies are not trusted; they are checked like other inputs.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from select import select
from threading import BoundedSemaphore
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from diptych.runtime.errors import DiptychError
from diptych.runtime.memory import keep_some_freed_memory

SECONDS = 5.0  # a request may take this much CPU time, in seconds
PATIENCE = 10  # a request may take this many times as much elapsed time, because the machine may be busy
MEMORY = 3 * 2**30  # limit of address space per process, in bytes
IDLE = 0.5  # seconds without a request after which `rest` is called
PIPE = 2**20  # size of the pipes to a process, in bytes
SHARED = 2**24  # arrays of up to 16 MiB are passed in shared memory, which saves a copy
ALIGNED = 64  # in shared memory, each part begins at a multiple of 64 bytes
LONGEST = 2**16  # maximum length of a line of JSON in a reply, in bytes
NUMBERS = re.compile(r"[<>|][fiub]\d{1,2}")  # numpy types that an array may have, such as <f4
Values = dict[str, Any]
Array = npt.NDArray[Any]
Reply = tuple[Values, Array | None]


class Ended(Exception):
    """Raised if a process ended before it replied. The message states the reason."""


@dataclass(frozen=True)
class _Child:
    process: subprocess.Popen[bytes]
    shared: int  # file in memory; read with pread, because a mapped file could be truncated by the child


class LimitedProcesses:
    """A pool of processes that run a module. A process is started when it is needed, or to replace one that was ended.

    Args:
        module: name of a module to run with `python -m`. It calls `answer`.
        errors: exceptions that a reply may contain, by name. `ask` raises them.
        processes: largest number of processes. Each has one request at a time; further requests wait.
        seconds: CPU time per request, after which the process is ended. The limit of elapsed time is ten times as long.
        memory: limit of address space per process, in bytes.
        nice: Unix niceness of the processes, 0 to 19; 19 is the lowest priority.
    """

    def __init__(
        self, module: str, errors: Mapping[str, type[DiptychError]], processes: int, seconds: float = SECONDS,
        memory: int = MEMORY, nice: int = 0,
    ) -> None:  # fmt: skip
        self.module, self.errors = module, errors
        self.seconds, self.memory, self.nice = seconds, memory, nice
        self._idle: deque[_Child] = deque()
        self._free = BoundedSemaphore(processes)

    def ask(self, request: Values, content: bytes = b"") -> Reply:
        """Send a request, and return the values and the array of the reply.

        Raises Ended, or the exception in the reply.
        """
        with self._free:
            child = self._take()
            try:
                values, array = _exchanged(child, request, content)
                error = self.errors[values["error"]](str(values["message"])) if "error" in values else None
                self._idle.append(child)
            except Exception:  # the process ended, or its reply is not in the format of `answer`
                raise Ended(self._why(_end(child))) from None
            except BaseException:  # interrupted during a reply, such as by Ctrl-C
                _end(child)
                raise
        if error is not None:
            raise error
        return values, array

    def close(self) -> None:
        """End all processes of the pool."""
        while self._idle:
            _end(self._idle.pop())

    def _take(self) -> _Child:
        while self._idle:
            child = self._idle.pop()
            if child.process.poll() is None:
                return child
            _end(child)  # the process was killed while it was idle
        return self._start()

    def _start(self) -> _Child:
        shared = _file_in_memory()
        os.truncate(shared, SHARED)
        limits = map(str, (self.seconds, self.memory, self.nice, shared))
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", self.module, *limits], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, pipesize=PIPE, pass_fds=[shared],
            start_new_session=True,  # so that Ctrl-C reaches only the parent
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        return _Child(process, shared)

    def _why(self, code: int) -> str:
        if code in (-signal.SIGPROF, -signal.SIGALRM):
            return f"took more than {self.seconds:g} seconds"
        return f"ended its process ({code}), perhaps for lack of memory"


def _file_in_memory() -> int:
    with suppress(AttributeError):  # memfd_create exists only on Linux
        return os.memfd_create("diptych")
    file, name = tempfile.mkstemp()
    os.unlink(name)
    return file


def _exchanged(child: _Child, request: Values, content: bytes) -> Reply:
    """Send a request to a process and return its reply.

    Raises an exception of any type if the process has ended, or if its reply is not in the format of `answer`.
    """
    to, back = cast("IO[bytes]", child.process.stdin), cast("IO[bytes]", child.process.stdout)
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
    left = _bytes(array)
    begin, there = 0, len(left) <= SHARED
    while begin < len(left):
        rest = left[begin:]
        count = os.preadv(child.shared, [rest], begin) if there else cast(Any, back).readinto(rest)
        if not count:
            raise EOFError
        begin += count
    if "parts" in values:
        values["parts"] = _cut(array, values["parts"])
    return values, array


def _cut(content: Array, heads: Iterable[Any]) -> list[Array | None]:
    parts, begin = list[Array | None](), 0
    for head in heads:
        shape, kind = head or ((0,), "|u1")
        if not NUMBERS.fullmatch(kind):
            raise ValueError
        end = begin + math.prod(shape) * np.dtype(kind).itemsize
        parts.append(None if head is None else content[begin:end].view(kind).reshape(shape))
        begin = -(-end // ALIGNED) * ALIGNED
    return parts


def _end(child: _Child) -> int:
    """End a process, and return its exit code. A negative code is the number of the signal that ended it."""
    process = child.process
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            cast("IO[bytes]", pipe).close()
    os.close(child.shared)
    try:
        return process.wait(1.0)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


class Room:
    """Memory shared by a reading process and the process that sends requests."""

    def __init__(self, file: int) -> None:
        self._memory, self._file = mmap.mmap(file, SHARED), file

    def make(self, shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
        """Return a new array for a reply. A small enough array is in shared memory."""
        if math.prod(shape) * kind.itemsize > SHARED:
            return np.empty(shape, kind)
        return np.frombuffer(self._memory, kind, math.prod(shape)).reshape(shape)

    def hold(self, array: Array) -> None:
        """Copy an array to the shared memory, unless it was made there by `make`."""
        if not np.may_share_memory(array, np.frombuffer(self._memory, np.uint8)):
            os.pwrite(self._file, _bytes(array), 0)


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def answer(make: Callable[[Values, IO[bytes], Room], Reply], rest: Callable[[], None] = lambda: None) -> None:
    """Answer requests until the standard input ends. This runs in the separate process.

    Args:
        make: returns the values and the array of a reply. It may read the bytes that follow the request.
        rest: called after half a second without a request.
    """
    import resource  # imported here, because it exists only on POSIX systems

    seconds, (memory, nice, file) = float(sys.argv[1]), map(int, sys.argv[2:])
    room = Room(file)
    keep_some_freed_memory()
    os.nice(nice)
    # Linux may schedule a session as a group, whose niceness must be set separately.
    with suppress(OSError), open("/proc/self/autogroup", "w") as group:
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
            values, array = make(json.loads(line), requests, room)
        except DiptychError as error:
            values = {"error": type(error).__name__, "message": str(error)[: LONGEST // 8]}
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if array is not None:
            values["array"] = array.shape, array.dtype.str
            array = np.ascontiguousarray(array)
        if array is not None and array.nbytes <= SHARED:
            room.hold(array)
        replies.write(json.dumps(values).encode() + b"\n")
        if array is not None and array.nbytes > SHARED:
            replies.write(_bytes(array))
        replies.flush()
