"""Vectors in PostgreSQL with pgvector, so that several machines share a gallery, and a restart costs nothing.

    diptych_gallery(model, width)             one row: whose vectors these are
    diptych_vectors(content bytea, vector)    an HNSW index over products (pgvector's vector_ip_ops)

A connection is opened for each piece of work: a database that was away is asked again. The password is libpq's affair
(PGPASSWORD, a service file, .pgpass); an address with one is refused, as others could read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from numpy.typing import NDArray

from diptych.errors import RecipeError, ServingError
from diptych.extras import wanted
from diptych.serving.galleries import Vectors

CANDIDATES = 200  # of a search in the index: recall at 10 is measured in docs/results
PATIENCE = 10  # seconds for a connection
MOST_WIDE = 2000  # values of a vector that an HNSW index takes
LOCK = 0x44697074  # of those who make the tables at once


class PostgresVectors:
    def __init__(self, address: str, model: str) -> None:
        """Raises RecipeError for an address that names a password, ServingError for a database that is not ours."""
        with wanted("--gallery postgresql://...", "postgres"):
            import pgvector.psycopg
            import psycopg

        self._psycopg: Any = psycopg
        self._register: Any = pgvector.psycopg.register_vector
        parts = urlsplit(address)
        if parts.password or "password" in parse_qs(parts.query):
            raise RecipeError(
                "--gallery names a password, which others can read in the list of processes; leave it out, and set "
                "PGPASSWORD or name a service of ~/.pg_service.conf (postgresql:///?service=NAME)"
            )
        self.address, self.model = address, model
        with self._connection() as connection:
            self._ready = self._is_ready(connection)

    def known(self, contents: Sequence[str]) -> set[str]:
        if not self._ready:
            return set()
        asked = [bytes.fromhex(content) for content in contents]
        with self._connection() as connection:
            rows = connection.execute("SELECT content FROM diptych_vectors WHERE content = ANY(%s)", (asked,))
            return {bytes(content).hex() for (content,) in rows}

    def add(self, contents: Sequence[str], vectors: Vectors) -> None:
        if not len(contents):
            return
        with self._connection() as connection, connection.transaction():
            self._make(connection, vectors.shape[1])
            cursor = connection.cursor()
            cursor.execute("CREATE TEMP TABLE coming (content bytea, vector vector) ON COMMIT DROP")
            with cursor.copy("COPY coming (content, vector) FROM STDIN WITH (FORMAT BINARY)") as copy:
                copy.set_types(["bytea", "vector"])
                for content, vector in zip(contents, np.asarray(vectors, np.float32), strict=True):
                    copy.write_row((bytes.fromhex(content), vector))
            cursor.execute("INSERT INTO diptych_vectors SELECT content, vector FROM coming ON CONFLICT DO NOTHING")
        self._ready = True

    def search(self, query: NDArray[np.float32], contents: Sequence[str], most: int) -> list[tuple[str, float]]:
        """By the index where few are asked for; those that other galleries have are passed over. Else by all."""
        there = set(contents)
        with self._connection() as connection, connection.transaction():
            if 2 * most <= CANDIDATES:
                connection.execute(f"SET LOCAL hnsw.ef_search = {CANDIDATES}")
                rows = self._nearest(connection, query, "", (), 2 * most)
                found = [(content, score) for content, score in rows if content in there][:most]
                if len(found) == min(most, len(there)):
                    return found
            connection.execute("SET LOCAL enable_indexscan = off")  # an index over all would miss some of these
            asked = [bytes.fromhex(content) for content in there]
            return self._nearest(connection, query, "WHERE content = ANY(%s)", (asked,), most)

    def _nearest(
        self, connection: Any, query: NDArray[np.float32], where: str, given: tuple[Any, ...], most: int
    ) -> list[tuple[str, float]]:
        rows = connection.execute(
            f"SELECT content, -(vector <#> %s) FROM diptych_vectors {where} ORDER BY vector <#> %s LIMIT %s",
            (query, *given, query, most),
        )
        return [(bytes(content).hex(), float(score)) for content, score in rows]

    def _is_ready(self, connection: Any) -> bool:
        """Whether the tables are there. Raises ServingError where they hold another model's vectors."""
        (there,) = connection.execute("SELECT to_regclass('diptych_gallery')").fetchone()
        row = None if there is None else connection.execute("SELECT model FROM diptych_gallery").fetchone()
        if row is not None and row[0] != self.model:
            raise ServingError(
                f"the gallery {self.address} holds vectors of another model ({row[0][:12]}…, and this one is "
                f"{self.model[:12]}…); nothing was changed; give another database, or a schema of its own "
                "(?options=-csearch_path%3DNAME,public)"
            )
        return row is not None

    def _make(self, connection: Any, width: int) -> None:
        """The tables, for the first vectors; whoever comes at the same time waits."""
        if width > MOST_WIDE:
            raise ServingError(
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
        connection.execute("CREATE INDEX ON diptych_vectors USING hnsw (vector vector_ip_ops)")

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """Errors of the database are one sentence; a transaction that one of them ends leaves nothing behind."""
        errors = self._psycopg.errors
        try:
            with self._psycopg.connect(self.address, connect_timeout=PATIENCE, autocommit=True) as connection:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
                self._register(connection)
                yield connection
        except (errors.DiskFull, errors.OutOfMemory, errors.ConfigurationLimitExceeded) as error:
            raise ServingError(
                f"the database of {self.address} is full ({_first_line(error)}); what it held stays, and these vectors "
                "were not added: make room, and give the same command again"
            ) from error
        except (errors.FeatureNotSupported, errors.UndefinedFile, errors.UndefinedObject) as error:
            raise ServingError(
                f"the database of {self.address} has no pgvector ({_first_line(error)}); install it there"
            ) from error
        except errors.InsufficientPrivilege as error:
            raise ServingError(f"{self.address}: {_first_line(error)}; grant it, or take another user") from error
        except (self._psycopg.OperationalError, self._psycopg.InterfaceError) as error:
            raise ServingError(
                f"the database of {self.address} cannot be reached ({_first_line(error)}); nothing is lost: start it, "
                "or leave out --gallery"
            ) from error
        except self._psycopg.Error as error:
            raise ServingError(
                f"the database of {self.address} refused ({type(error).__name__}: {_first_line(error)}); nothing of "
                "this was kept"
            ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
