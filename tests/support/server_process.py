"""The service in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time

from tests.support import zygote


class Process:
    """`diptych serve` of a model."""

    def __init__(self, *words: str, **variables: str) -> None:
        command = ["-m", "diptych.cli", "serve", *words, "--port", "0"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
        self.process = zygote.Popen(command, environment, stderr=subprocess.PIPE)
        self.lines: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"serving on (http://\S+) ", line):
                self.url = found[1]
                break
        self._rest = threading.Thread(target=lambda: self.lines.extend(self.process.stderr or ()))
        self._rest.start()

    def end(self) -> tuple[int, float]:
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code, took = self.process.wait(60), time.monotonic() - begun
        self._rest.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code, took
