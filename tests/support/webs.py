"""The test web, served while a test runs."""

from threading import Thread
from typing import Self

from diptych_world.web.serve import Server


class Live(Server):
    """A `Server` in its own thread: `with Live(folder) as server: server.port`."""

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()
        self.server_close()
