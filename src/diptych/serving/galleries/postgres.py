"""Vectors in PostgreSQL with pgvector, so that several machines share a gallery, and a restart costs nothing.

    diptych_gallery(model, width)             one row: whose vectors these are
    diptych_vectors(content bytea, vector)    from 10,000 on with an HNSW index over products (vector_ip_ops)

One connection is kept, and made anew where the database was away meanwhile. The password is libpq's affair
(PGPASSWORD, a service file, .pgpass); an address with one is refused, as others could read it.
"""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.runtime.errors import GalleryError, RecipeError
from diptych.runtime.extras import requires_extra
from diptych.runtime.terminal import printable
from diptych.serving.galleries.vectors import Vectors

CANDIDATES = 200  # of a search in the index: recall at 10 is measured in docs/results
PATIENCE = 10  # seconds for a connection
ANSWERED = 60  # seconds for a question, as a service has others waiting; what is added or indexed takes what it needs
MOST_WIDE = 2000  # values of a vector that an HNSW index takes
MANY = 10_000  # from here on there is an index, made at once when all were added; fewer are compared one by one
BUILDING = "1GB"  # of memory at most, to make it
SECRETS = {"password", "sslpassword", "oauth_client_secret"}
SHA256_BYTES = 32
LOCK = 0x44697074  # of those who make the tables at once


class PostgresVectors:
    def __init__(self, address: str, model: str) -> None:
        """Raises RecipeError for an address that names a password, GalleryError for a database that is not ours."""
        with requires_extra("--gallery postgresql://...", "postgres"):
            import pgvector.psycopg
            import psycopg

        self._psycopg: Any = psycopg
        self._register: Any = pgvector.psycopg.register_vector
        self.shown = _without_secrets(psycopg, address)
        self.address, self.model = address, model
        self._kept: list[Any] = []  # the connection, where there is one
        self._lock = RLock()
        weakref.finalize(self, _close, self._kept)
        self._among: tuple[Sequence[str], frozenset[str]] = ((), frozenset())  # what was searched last
        with self._connection() as connection:
            self._ready = self._is_ready(connection)

    def known(self, contents: Sequence[str]) -> set[str]:
        if not self._ready:
            return set()
        asked = [bytes.fromhex(content) for content in contents]
        with self._connection() as connection:
            rows = connection.execute("SELECT content FROM diptych_vectors WHERE content = ANY(%s)", (asked,))
            return {_content(content) for (content,) in rows}

    def add(self, contents: Sequence[str], vectors: Vectors) -> None:
        if not len(contents):
            return
        with self._connection() as connection, connection.transaction():
            connection.execute("SET LOCAL statement_timeout = 0")
            self._make(connection, vectors.shape[1])
            cursor = connection.cursor()
            cursor.execute("CREATE TEMP TABLE coming (content bytea, vector vector) ON COMMIT DROP")
            with cursor.copy("COPY coming (content, vector) FROM STDIN WITH (FORMAT BINARY)") as copy:
                copy.set_types(["bytea", "vector"])
                for content, vector in zip(contents, np.asarray(vectors, np.float32), strict=True):
                    copy.write_row((bytes.fromhex(content), vector))
            cursor.execute("INSERT INTO diptych_vectors SELECT content, vector FROM coming ON CONFLICT DO NOTHING")
        self._ready = True

    def settle(self) -> None:
        """An index that is made at once takes a tenth of the time of one that grows row by row."""
        with self._connection() as connection, connection.transaction():
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            if not self._is_ready(connection):
                return
            (made,) = connection.execute("SELECT to_regclass('diptych_nearest')").fetchone()
            (count,) = connection.execute("SELECT count(*) FROM diptych_vectors").fetchone()
            if made is None and count >= MANY:
                connection.execute(f"SET LOCAL maintenance_work_mem = '{BUILDING}'")
                # Workers would share it in /dev/shm, which is small in containers.
                connection.execute("SET LOCAL max_parallel_maintenance_workers = 0")
                connection.execute("CREATE INDEX diptych_nearest ON diptych_vectors USING hnsw (vector vector_ip_ops)")

    def search(self, query: NDArray[np.float32], contents: Sequence[str], most: int) -> list[tuple[str, float]]:
        """By the index where few are asked for; those that other galleries have are passed over. Else by all."""
        if self._among[0] is not contents:
            self._among = contents, frozenset(contents)
        there = self._among[1]
        with self._connection() as connection, connection.transaction():
            if 2 * most <= CANDIDATES:
                connection.execute(f"SET LOCAL hnsw.ef_search = {CANDIDATES}")
                rows = self._nearest(connection, query, "", (), 2 * most)
                found = [(content, score) for content, score in rows if content in there][:most]
                if len(found) == min(most, len(there)):
                    return found
            connection.execute("SET LOCAL enable_indexscan = off")  # an index over all would miss some of these
            asked = [bytes.fromhex(content) for content in there]
            found = self._nearest(connection, query, "WHERE content = ANY(%s)", (asked,), most)
            return [(content, score) for content, score in found if content in there]

    def _nearest(
        self, connection: Any, query: NDArray[np.float32], where: str, given: tuple[Any, ...], most: int
    ) -> list[tuple[str, float]]:
        rows = connection.execute(
            f"SELECT content, -(vector <#> %s) FROM diptych_vectors {where} ORDER BY vector <#> %s LIMIT %s",
            (query, *given, query, most),
        )
        found = {_content(content): float(score) for content, score in rows}  # each once
        if not all(map(isfinite, found.values())):
            raise ValueError("a product that is not finite")
        return list(found.items())

    def _is_ready(self, connection: Any) -> bool:
        """Whether the tables are there. Raises GalleryError where they hold another model's vectors."""
        (there,) = connection.execute("SELECT to_regclass('diptych_gallery')").fetchone()
        row = None if there is None else connection.execute("SELECT model FROM diptych_gallery").fetchone()
        if row is not None and row[0] != self.model:
            raise GalleryError(
                f"the gallery {self.shown} holds vectors of another model ({str(row[0])[:12]}…, and this one is "
                f"{self.model[:12]}…); nothing was changed; give another database, or a schema of its own "
                "(?options=-csearch_path%3DNAME,public)"
            )
        return row is not None

    def _make(self, connection: Any, width: int) -> None:
        """The tables, for the first vectors; whoever comes at the same time waits."""
        if width > MOST_WIDE:
            raise GalleryError(
                f"vectors of {width} values, and an index of pgvector takes {MOST_WIDE}; leave out --gallery"
            )
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        if self._is_ready(connection):
            return
        connection.execute("CREATE TABLE IF NOT EXISTS diptych_gallery (model text NOT NULL, width int NOT NULL)")
        connection.execute("INSERT INTO diptych_gallery VALUES (%s, %s)", (self.model, width))
        connection.execute(
            f"CREATE TABLE diptych_vectors (content bytea PRIMARY KEY, vector vector({int(width)}) NOT NULL)"
        )

    def _connected(self) -> Any:
        """The connection that is kept, or another where the database has ended it since."""
        if self._kept:
            try:
                self._kept[0].execute("SELECT 1")
                return self._kept[0]
            except (self._psycopg.OperationalError, self._psycopg.InterfaceError):
                _close(self._kept)
        connection = self._psycopg.connect(
            self.address, connect_timeout=PATIENCE, tcp_user_timeout=1000 * ANSWERED, autocommit=True
        )
        try:
            connection.execute(f"SET statement_timeout = '{ANSWERED}s'")
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            self._register(connection)
        except self._psycopg.Error:
            connection.close()
            raise
        self._kept.append(connection)
        return connection

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """Errors of the database are one sentence; a transaction that one of them ends leaves nothing behind."""
        errors = self._psycopg.errors
        try:
            with self._lock:
                yield self._connected()
        except (errors.DiskFull, errors.OutOfMemory, errors.ConfigurationLimitExceeded) as error:
            raise GalleryError(
                f"the database of {self.shown} is full ({_first_line(error)}); what it held stays, and these vectors "
                "were not added: make room, and give the same command again"
            ) from error
        except errors.QueryCanceled as error:
            raise GalleryError(
                f"the database of {self.shown} has not answered within {ANSWERED} s ({_first_line(error)}); nothing is "
                "lost: see what it is busy with or who locks diptych_vectors, and ask again"
            ) from error
        except (errors.FeatureNotSupported, errors.UndefinedFile, errors.UndefinedObject) as error:
            raise GalleryError(
                f"the database of {self.shown} has no pgvector ({_first_line(error)}); install it there"
            ) from error
        except errors.InsufficientPrivilege as error:
            raise GalleryError(f"{self.shown}: {_first_line(error)}; grant it, or take another user") from error
        except (self._psycopg.OperationalError, self._psycopg.InterfaceError) as error:
            raise GalleryError(
                f"the database of {self.shown} cannot be reached ({_first_line(error)}); nothing is lost: start it, "
                "or leave out --gallery"
            ) from error
        except (TypeError, ValueError) as error:  # of what it said
            raise GalleryError(
                f"the database of {self.shown} answers what no gallery of Diptych does ({_first_line(error)}); give "
                "another database"
            ) from error
        except self._psycopg.Error as error:
            raise GalleryError(
                f"the database of {self.shown} refused ({type(error).__name__}: {_first_line(error)}); nothing of "
                "this was kept"
            ) from error


def _without_secrets(psycopg: Any, address: str) -> str:
    """The address for messages. Raises RecipeError for one that libpq does not read, or that names a password."""
    try:
        parts = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.Error as error:  # what it says has the address in it, and that may have a password in it
        raise RecipeError(
            "--gallery is no address that PostgreSQL's library reads; wanted postgresql://USER@HOST:PORT/DATABASE, "
            "with what is no letter or digit in a name as %XX"
        ) from error
    if parts.keys() & SECRETS:
        raise RecipeError(
            "--gallery names a password, which others can read in the list of processes; leave it out, and set "
            "PGPASSWORD or name a service of ~/.pg_service.conf (postgresql:///?service=NAME)"
        )
    host = ":".join(str(parts[name]) for name in ("host", "port") if name in parts)
    return printable(f"postgresql://{host}/{parts.get('dbname', '')}")


def _content(found: Any) -> str:
    """Raises TypeError or ValueError for what is no SHA-256."""
    if not isinstance(found, bytes) or len(found) != SHA256_BYTES:
        raise ValueError(f"{str(found)[:60]!r} for a picture's SHA-256")
    return found.hex()


def _close(kept: list[Any]) -> None:
    while kept:
        kept.pop().close()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
