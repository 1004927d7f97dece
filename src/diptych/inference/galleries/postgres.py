"""Store vectors in PostgreSQL with pgvector, so that several machines can share a gallery.

    diptych_gallery(model, width)             one row: the model of the vectors, and their size
    diptych_vectors(content bytea, vector)    with an HNSW index over products (vector_ip_ops) from 10,000 rows on

One connection is kept open, and opened again if the database has closed it. libpq reads the password from PGPASSWORD, a
service file or .pgpass. A URL with a password is an error, because others could read it in the list of processes.
"""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.inference.galleries.vectors import Vectors
from diptych.runtime.errors import GalleryError, RecipeError, reason_of
from diptych.runtime.extras import requires_extra
from diptych.runtime.terminal import printable

CANDIDATES = 200  # number of candidates of a search in the index (recall: docs/results)
PATIENCE = 10  # seconds after which an attempt to connect fails
ANSWERED = 60  # seconds after which a query fails; inserts and index builds have no limit
MOST_WIDE = 2000  # maximum number of values per vector in an HNSW index
MANY = 10_000  # minimum number of rows for which an index is built
BUILDING = "1GB"  # memory limit for building the index
SECRETS = {"password", "sslpassword", "oauth_client_secret"}
SHA256_BYTES = 32
LOCK = 0x44697074  # key of the advisory lock that is held while the extension and the tables are created
COLUMNS = (
    "diptych_gallery.model text NOT NULL, diptych_gallery.width integer NOT NULL, "
    "diptych_vectors.content bytea NOT NULL, diptych_vectors.vector vector NOT NULL"
)
# Only the schema in which tables are created counts: `public`, at its end, may hold another model's gallery.
FIND_COLUMNS = """
    SELECT string_agg(concat(relname, '.', attname, ' ', format_type(atttypid, NULL),
        CASE WHEN attnotnull THEN ' NOT NULL' END), ', ' ORDER BY relname, attnum)
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace = to_regnamespace(quote_ident(current_schema()))
        AND relname IN ('diptych_gallery', 'diptych_vectors') AND attnum > 0 AND NOT attisdropped
"""
FIND_INDEX = "SELECT to_regclass(quote_ident(current_schema()) || '.diptych_nearest')"
# Adds the schema of pgvector to the search_path, after the schema in which tables are created.
SHOW_EXTENSION = """
    SELECT set_config('search_path', concat_ws(', ', current_setting('search_path'), extnamespace::regnamespace), false)
    FROM pg_extension WHERE extname = 'vector' AND current_schema() IS NOT NULL
"""
ELSEWHERE = (
    "pass another database, or create a schema (CREATE SCHEMA NAME) and add ?options=-csearch_path%3DNAME,public to "
    "the address"
)


class PostgresVectors:
    """A store of one model's vectors in a database. Thread-safe. Errors of the database are raised as GalleryError."""

    def __init__(self, address: str, model: str) -> None:
        """Open the gallery.

        Raises RecipeError if the URL has a password, and GalleryError if the gallery has another model's vectors.
        """
        with requires_extra("--gallery postgresql://...", "postgres"):
            import pgvector.psycopg
            import psycopg

        self._psycopg: Any = psycopg
        self._register: Any = pgvector.psycopg.register_vector
        self.shown = _without_secrets(psycopg, address)
        self.address, self.model = address, model
        self._kept: list[Any] = []  # the open connection, if any
        self._lock = RLock()
        weakref.finalize(self, _close, self._kept)
        self._last: tuple[Sequence[str], frozenset[str]] = ((), frozenset())  # image hashes of the last search
        with self._connection() as connection:
            self._ready = self._is_ready(connection)

    def known(self, contents: Sequence[str]) -> set[str]:
        if not self._ready:
            return set()
        keys = [bytes.fromhex(content) for content in contents]
        with self._connection() as connection:
            rows = connection.execute("SELECT content FROM diptych_vectors WHERE content = ANY(%s)", (keys,))
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
        """Build the index after all rows were added. This takes a tenth of the time that updates row by row take."""
        with self._connection() as connection, connection.transaction():
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            if not self._is_ready(connection):
                return
            (made,) = connection.execute(FIND_INDEX).fetchone()
            (count,) = connection.execute("SELECT count(*) FROM diptych_vectors").fetchone()
            if made is None and count >= MANY:
                connection.execute(f"SET LOCAL maintenance_work_mem = '{BUILDING}'")
                # Parallel workers would build the index in /dev/shm, which is small in containers.
                connection.execute("SET LOCAL max_parallel_maintenance_workers = 0")
                connection.execute("CREATE INDEX diptych_nearest ON diptych_vectors USING hnsw (vector vector_ip_ops)")

    def search(self, query: NDArray[np.float32], contents: Sequence[str], most: int) -> list[tuple[str, float]]:
        """Search the index if `most` is small, and skip images that are not in `contents`.

        If `most` is large, all rows are scanned.
        """
        if self._last[0] is not contents:
            self._last = contents, frozenset(contents)
        there = self._last[1]
        with self._connection() as connection, connection.transaction():
            if 2 * most <= CANDIDATES:
                connection.execute(f"SET LOCAL hnsw.ef_search = {CANDIDATES}")
                rows = self._nearest(connection, query, "", (), 2 * most)
                hits = [(content, score) for content, score in rows if content in there][:most]
                if len(hits) == min(most, len(there)):
                    return hits
            connection.execute("SET LOCAL enable_indexscan = off")  # the index found too few; scan all
            keys = [bytes.fromhex(content) for content in there]
            rows = self._nearest(connection, query, "WHERE content = ANY(%s)", (keys,), most)
            return [(content, score) for content, score in rows if content in there]

    def _nearest(
        self, connection: Any, query: NDArray[np.float32], where: str, given: tuple[Any, ...], most: int
    ) -> list[tuple[str, float]]:
        rows = connection.execute(
            f"SELECT content, -(vector <#> %s) FROM diptych_vectors {where} ORDER BY vector <#> %s LIMIT %s",
            (query, *given, query, most),
        )
        scores = {_content(content): float(score) for content, score in rows}  # one score per image
        if not all(map(isfinite, scores.values())):
            raise ValueError("found a score that is not finite")
        return list(scores.items())

    def _is_ready(self, connection: Any) -> bool:
        """Return True if the tables exist. Raises GalleryError if they are another model's, or not from Diptych."""
        (columns,) = connection.execute(FIND_COLUMNS).fetchone()
        if columns is None:
            return False
        has_model = "diptych_gallery.model " in columns
        row = connection.execute("SELECT model FROM diptych_gallery").fetchone() if has_model else None
        if row is not None and row[0] != self.model:
            raise GalleryError(
                f"the gallery {self.shown} holds vectors of another model ({str(row[0])[:12]}…, not "
                f"{self.model[:12]}…); nothing was changed; {ELSEWHERE}"
            )
        if row is None or columns != COLUMNS:
            raise GalleryError(
                f"the tables of {self.shown} are refused: they are not those of a gallery of Diptych (found {columns}"
                f"{'' if row else ', and no model'}; expected {COLUMNS}, and a model); nothing was changed; rename "
                f"diptych_gallery and diptych_vectors, or {ELSEWHERE}"
            )
        return True

    def _make(self, connection: Any, width: int) -> None:
        """Create the tables for vectors of `width` values. Another process that also creates them waits."""
        if width > MOST_WIDE:
            raise GalleryError(f"vectors have {width} values, pgvector allows up to {MOST_WIDE}; leave out --gallery")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        if self._is_ready(connection):
            return
        connection.execute("CREATE TABLE diptych_gallery (model text NOT NULL, width int NOT NULL)")
        connection.execute("INSERT INTO diptych_gallery VALUES (%s, %s)", (self.model, width))
        columns = f"content bytea PRIMARY KEY, vector vector({int(width)}) NOT NULL"
        connection.execute(f"CREATE TABLE diptych_vectors ({columns})")

    def _connected(self) -> Any:
        """Return the open connection. If the database has closed it, open a new one."""
        if self._kept:
            try:
                self._kept[0].execute("SELECT 1")
                return self._kept[0]
            except (self._psycopg.OperationalError, self._psycopg.InterfaceError):
                _close(self._kept)
        limits = {"connect_timeout": PATIENCE, "tcp_user_timeout": 1000 * ANSWERED}
        connection = self._psycopg.connect(self.address, **limits, autocommit=True)
        try:
            connection.execute(f"SET statement_timeout = '{ANSWERED}s'")
            connection.execute(SHOW_EXTENSION)
            if connection.execute("SELECT to_regtype('vector')").fetchone() == (None,):
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
                    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            self._register(connection)
        except self._psycopg.Error:
            connection.close()
            raise
        self._kept.append(connection)
        return connection

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """Yield the connection. Convert errors of the database to GalleryError."""
        try:
            with self._lock:
                yield self._connected()
        except (self._psycopg.Error, TypeError, ValueError) as error:
            raise GalleryError(self._explained(error, reason_of(error))) from error

    def _explained(self, error: Exception, first: str) -> str:
        """Return a message for an error of the database: what happened, the error's first line, and what to do."""
        errors = self._psycopg.errors
        match error:
            case errors.DiskFull() | errors.OutOfMemory() | errors.ConfigurationLimitExceeded():
                what = f"is full ({first}); nothing was lost or added: free space, and run the same command again"
            case errors.QueryCanceled():
                what = f"did not answer within {ANSWERED} s ({first}); nothing was lost: check its load and who "
                what += "locks diptych_vectors, and retry"
            case errors.FeatureNotSupported() | errors.UndefinedFile() | errors.UndefinedObject():
                what = f"has no pgvector ({first}); install it there"
            case errors.InsufficientPrivilege() | errors.ReadOnlySqlTransaction():
                what = f"refused ({first}); grant the permission, or use another user or server"
            case errors.InvalidSchemaName() | self._psycopg.ProgrammingError(sqlstate=None):
                what = f"has no usable schema ({first}); create that of the search_path (CREATE SCHEMA NAME), and "
                what += "grant USAGE on it and on the schema of pgvector"
            case self._psycopg.OperationalError() if self._is_refused(error):
                what = f"cannot be reached ({first}); nothing was lost: the server answers; check the user and the "
                what += "password (PGPASSWORD), or create the database (createdb NAME)"
            case self._psycopg.OperationalError() | self._psycopg.InterfaceError():
                what = f"cannot be reached ({first}); nothing was lost: start it, or leave out --gallery"
            case self._psycopg.Error():
                what = f"refused ({type(error).__name__}: {first}); nothing was stored"
            case _:  # the tables contain unexpected values
                what = f"returned values that are not from a gallery of Diptych ({first}); pass another database"
        return f"the database of {self.shown} {what}"

    def _is_refused(self, error: Exception) -> bool:
        """Return True if no connection was made although the server answers. libpq gives no SQLSTATE for that."""
        if self._kept or type(error) is not self._psycopg.OperationalError:  # subclasses have one, or are a timeout
            return False
        address = self._psycopg.conninfo.make_conninfo(self.address, connect_timeout=PATIENCE)
        return bool(self._psycopg.pq.PGconn.ping(address.encode()) == self._psycopg.pq.Ping.OK)


def _without_secrets(psycopg: Any, address: str) -> str:
    """Return the URL in a form that messages may show. Raises RecipeError if it is invalid or has a password."""
    try:
        parts = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.Error as error:  # the error's text may contain the password
        raise RecipeError(
            "--gallery is not an address of PostgreSQL; expected postgresql://USER@HOST:PORT/DATABASE, with special "
            "characters in names as %XX"
        ) from error
    if parts.keys() & SECRETS:
        raise RecipeError(
            "--gallery contains a password, which others can read in the list of processes; remove it, and set "
            "PGPASSWORD or name a service of ~/.pg_service.conf (postgresql:///?service=NAME)"
        )
    host = ":".join(str(parts[name]) for name in ("host", "port") if name in parts)
    return printable(f"postgresql://{host}/{parts.get('dbname', '')}")


def _content(value: Any) -> str:
    """Return a SHA-256 (bytes) as hex digits. Raises ValueError for any other value."""
    if not isinstance(value, bytes) or len(value) != SHA256_BYTES:
        raise ValueError(f"found {str(value)[:60]!r} instead of an image's SHA-256")
    return value.hex()


def _close(kept: list[Any]) -> None:
    while kept:
        kept.pop().close()
