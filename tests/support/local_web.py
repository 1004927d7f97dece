"""A small web on this machine, with a log of what is asked."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diptych_mine.fetch.fetching import FetchedBody


OK = b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n"


PICTURE = OK + b"Content-Length: 4\r\n\r\nkite"


OPT_OUTS = ("/.well-known/tdmrep.json", "/ai.txt")
ROBOTS = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"


class Web:
    """A server whose answers are bytes by path; `asked` has every request's host, path and time.

    Requests for a site's files of opt-outs are in `opt_outs`; the default answer to them is 404.
    """

    def __init__(self, answers: dict[str, bytes]) -> None:
        self.answers, self.asked, self.opt_outs = (
            answers,
            list[tuple[str, str, float]](),
            list[tuple[str, str, float]](),
        )
        self.tasks: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self.respond(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ")[1]
        host = head.lower().split("host: ")[1].split("\r\n")[0].partition(":")[0]
        (self.opt_outs if path in OPT_OUTS else self.asked).append((host, path, asyncio.get_running_loop().time()))
        absent = ROBOTS if path in ("/robots.txt", *OPT_OUTS) else b""
        body = self.answers.get(f"{host}{path}", self.answers.get(path, absent))
        writer.write(body)
        await writer.drain()
        if path.endswith("hang"):
            await asyncio.sleep(5)

    def fetch(self, folder: Path, *paths: str, host: str = "a.test", **settings: object) -> list[FetchedBody]:
        from diptych_mine.fetch.fetching import Fetcher, WantedAddress
        from diptych_mine.settings import Fetch

        bodies: dict[str, bytes] = {}

        async def run() -> list[FetchedBody]:
            server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            quick: dict[str, Any] = {"rate": 1000.0, "backoff": 0.0, "rest": 0.0, "first_byte": 0.3, "whole": 0.6}
            place = {"contact": "x", "allow": ("127.0.0.0/8",), "resolve": (f"*.test=127.0.0.1:{port}",)}
            told = Fetch(**(quick | place | settings))
            wanted = [WantedAddress(path if "//" in path else f"http://{host}{path}") for path in paths]
            async with Fetcher(told, folder / "robots") as fetcher:
                found = await fetcher.all(wanted, lambda answer: bodies.update({answer.address: answer.body}))
            server.close()
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            self.tasks.clear()
            return found

        found = asyncio.run(run())
        for answer in found:
            answer.body = bodies[answer.address]
        return found
