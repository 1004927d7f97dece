"""A stub of the hub's API in this process: repositories in memory, behind the requests that `huggingface_hub` makes."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_of_a_test"


class Hub:
    """What it holds, and what it was asked."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.tagged: dict[tuple[str, str], dict[str, bytes]] = {}  # files by repository and tag
        self.private: set[str] = set()
        self.uploads: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.refuse: int | None = None  # a status for whatever writes
        self.address = ""

    def commit(self, name: str, revision: str = "main") -> str:
        return _hash(self.files(name, revision) or {})

    def files(self, name: str, revision: str) -> dict[str, bytes] | None:
        """The files of a branch, tag or commit; None if there is no such revision."""
        known = {tag: files for (of, tag), files in self.tagged.items() if of == name}
        known["main"] = self.repositories[name]
        return known.get(revision, {_hash(files): files for files in known.values()}.get(revision))


def _hash(files: dict[str, bytes]) -> str:
    return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()

    class Handler(_Handler):
        held = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    held: Hub
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one piece: of two the second waits 40 ms for an acknowledgement

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._read()

    def do_GET(self) -> None:
        self._read()

    def do_PUT(self) -> None:
        body = self._body()
        self.held.uploads[hashlib.sha256(body).hexdigest()] = body
        self._answer(200, {})

    def do_POST(self) -> None:
        path, body = self._path(), self._body()
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, {"error": "Invalid token"})
        elif self.held.refuse is not None:
            self._answer(self.held.refuse, {"error": "refused"})
        else:
            self._write(path, body)

    def _write(self, path: str, body: bytes) -> None:
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return self._answer(200, {"errors": [], "warnings": []})
        if found := re.fullmatch(r"/api/models/(.+/.+)/preupload/main", path):
            files = [
                {"path": f["path"], "uploadMode": "lfs" if f["path"].endswith(".safetensors") else "regular",
                 "shouldIgnore": False}
                for f in json.loads(body)["files"]
            ]  # fmt: skip
            return self._answer(200, {"files": files})
        if re.fullmatch(r"/(.+/.+)\.git/info/lfs/objects/batch", path):
            objects = [
                {**one, "actions": {"upload": {"href": f"{self.held.address}/upload/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            return self._answer(200, {"transfer": "basic", "objects": objects})
        found = re.fullmatch(r"/api/models/(.+/.+)/commit/main", path)
        assert found, path
        return self._commit(found[1], body)

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.held.repositories:
            return self._answer(409, {"url": f"{self.held.address}/{name}"})
        self.held.repositories[name] = {".gitattributes": b""}
        if asked.get("visibility") == "private":
            self.held.private.add(name)
        return self._answer(200, {"url": f"{self.held.address}/{name}"})

    def _commit(self, name: str, body: bytes) -> None:
        files = dict(self.held.repositories[name])
        for line in body.decode().splitlines():
            step = json.loads(line)
            match step["key"], step["value"]:
                case "file", value:
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile", value:
                    files[value["path"]] = self.held.uploads[value["oid"]]
                case "deletedFile", value:
                    del files[value["path"]]
        self.held.repositories[name] = files
        sha = self.held.commit(name)
        self._answer(200, {"commitUrl": f"{self.held.address}/{name}/commit/{sha}", "commitOid": sha})

    def _read(self) -> None:
        path = self._path()
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._file(*found.groups())
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path)
        if found is None:
            return self._answer(404, {"error": "the stub knows nothing of it"})
        if not self._may_read(found[1]):
            return self._answer(401, {"error": "Invalid username or password."}, {"X-Error-Code": "RepoNotFound"})
        revision = found[3] or "main"
        if (files := self.held.files(found[1], revision)) is None:
            return self._answer(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
        if found[2] == "tree":
            tree = [
                {"type": "file", "path": p, "size": len(c), "oid": hashlib.sha1(c).hexdigest()}
                for p, c in files.items()
            ]
            return self._answer(200, tree)
        listed = [{"rfilename": name} for name in files]
        return self._answer(200, {"id": found[1], "sha": self.held.commit(found[1], revision), "siblings": listed})

    def _file(self, repository: str, revision: str, name: str) -> None:
        if not self._may_read(repository):
            return self._answer(401, {"error": "Invalid username or password."}, {"X-Error-Code": "RepoNotFound"})
        if (files := self.held.files(repository, revision)) is None:
            return self._answer(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
        headers = {"X-Repo-Commit": self.held.commit(repository, revision)}
        content = files.get(name)
        if content is None:
            return self._answer(404, {"error": "no such file"}, {**headers, "X-Error-Code": "EntryNotFound"})
        return self._answer(200, content, {**headers, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'})

    def _may_read(self, repository: str) -> bool:
        allowed = repository not in self.held.private or self.headers.get("Authorization") == f"Bearer {TOKEN}"
        return repository in self.held.repositories and allowed

    def _path(self) -> str:
        path = unquote(urlsplit(self.path).path)
        self.held.asked.append(f"{self.command} {path}")
        return path

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
