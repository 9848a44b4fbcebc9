"""MySQL 8.0.15: SHOW MASTER STATUS, no transaction compression, the old words for replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
import test_key_kinds as key_kinds
from avrolib.fake_registry import running_registry
from kit.incremental_rig import FLAT
from kit.private_mysql import Pool, PrivateServer
from kit.records import compacted, duplicates, payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from test_row_of_defaults import require_stored_defaults
from test_ticdc_jobs import EMPTY, FULL, TYPES, Flat, require_rows, selected

from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk, split_table


@pytest.fixture(scope="module")
def server(pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent("8.0.15") as made:
        yield made


@pytest.fixture
def old(server: PrivateServer) -> Iterator[Any]:
    """Return a root connection to the old server."""
    with server.connect() as conn:
        yield conn


@pytest.fixture
def pipeline(properties: dict[str, str], server: PrivateServer, old: Any, database: str) -> Pipeline:
    execute(old, f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4")
    given = {"snapshot.chunk.rows": "50", "drain.writers": "2", "drain.small.batch.bytes": "0"}
    return Pipeline(properties | server.properties() | FLAT | given)


def fill(old: Any, db: str) -> None:
    execute(
        old,
        f"CREATE TABLE `{db}`.orders (id BIGINT PRIMARY KEY AUTO_INCREMENT, customer INT NOT NULL, note VARCHAR(80), "
        "j JSON, e ENUM('x', 'ÿ'), price DECIMAL(8,2))",
        f"CREATE TABLE `{db}`.names (k VARCHAR(30) CHARACTER SET latin1 PRIMARY KEY, v TEXT CHARACTER SET utf8)",
        f"INSERT INTO `{db}`.orders (customer, note, j, e, price) VALUES "
        + ",".join(f"({i % 7}, 'é 語 {i}', '{{\"n\": {i}}}', 'ÿ', {i}.25)" for i in range(200)),
        f"INSERT INTO `{db}`.names VALUES ('Ärger', 'Müller'), ('b', NULL)",
    )


def change(old: Any, db: str) -> None:
    execute(
        old,
        f"UPDATE `{db}`.orders SET note = 'changed', j = JSON_OBJECT('m', id) WHERE id % 3 = 0",
        f"DELETE FROM `{db}`.orders WHERE id % 10 = 0",
        f"ALTER TABLE `{db}`.orders ADD COLUMN flag TINYINT(1) NOT NULL DEFAULT 1 AFTER note, DROP COLUMN e",
        f"UPDATE `{db}`.orders SET id = id + 1000 WHERE id < 5",
        f"CREATE TABLE `{db}`.fresh LIKE `{db}`.names",
        f"INSERT INTO `{db}`.fresh SELECT * FROM `{db}`.names",
        f"RENAME TABLE `{db}`.names TO `{db}`.people",
        f"INSERT INTO `{db}`.people VALUES ('ß', 'neu')",
    )


def check(pipeline: Pipeline, old: Any, db: str, table: str, columns: str) -> None:
    records = pipeline.records(table)
    assert duplicates(records) == []
    names = [c.strip() for c in columns.split(",")]
    found = sorted(tuple(row[n] for n in names) for row in compacted(records).values())
    assert found == sorted(rows(old, f"SELECT {columns} FROM `{db}`.`{table}`"))


@pytest.mark.req("SETUP-07", "SNAP-01", "STRM-01")
@pytest.mark.parametrize("metadata", ["MINIMAL", "FULL"])
@pytest.mark.exhaustive(but="MINIMAL")
def test_snapshot_drain_and_ddl(metadata: str, pipeline: Pipeline, old: Any, database: str) -> None:
    with pytest.raises(pymysql.err.ProgrammingError):
        execute(old, "SHOW BINARY LOG STATUS")
    execute(old, f"SET GLOBAL binlog_row_metadata = {metadata}")
    fill(old, database)
    assert pipeline.snapshot().complete
    assert any("with 3 task(s)" in line for line in pipeline.lines), pipeline.lines
    change(old, database)
    outcome = pipeline.drain()
    assert outcome is not None and outcome.complete
    check(pipeline, old, database, "orders", "id, customer, note")
    check(pipeline, old, database, "fresh", "k, v")
    streamed = [payload(r.value) for r in pipeline.records("people")]
    assert [(v["op"], v["after"]) for v in streamed] == [("c", {"k": "ß", "v": "neu"})]
    source = streamed[0]["source"]
    assert source["gtid"] and source["file"].startswith("binlog.") and source["server_id"] == 1
    ddl = [payload(r.value)["ddl"] for r in pipeline.read(pipeline.properties["topic.prefix"])]
    for word in ("ADD COLUMN flag", "CREATE TABLE", "RENAME TABLE"):
        assert any(word in d for d in ddl), word
    # The offset is a place in this server's binlog, and the next batch begins there.
    execute(old, "FLUSH BINARY LOGS", f"DELETE FROM `{database}`.fresh WHERE k = 'b'")
    assert pipeline.drain() is not None
    check(pipeline, old, database, "fresh", "k, v")


@pytest.mark.exhaustive
def test_an_interrupted_batch_goes_on(
    pipeline: Pipeline, old: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    import json

    from airflow_provider_mysql_cdc.cdc import faults

    fill(old, database)
    pipeline.snapshot()
    change(old, database)
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": "writer.before_commit", "writer": 1, "fired": str(tmp_path / "fired")}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(faults.FaultRaised):
        pipeline.drain()
    assert not pipeline.settle().complete
    assert pipeline.drain() is not None
    check(pipeline, old, database, "orders", "id, customer, note")
    check(pipeline, old, database, "fresh", "k, v")


def test_xa_transactions(pipeline: Pipeline, server: PrivateServer, old: Any, database: str) -> None:
    """This server gives a prepared transaction to others only when its session has ended."""

    def prepare(xid: str, *statements: str) -> None:
        with server.connect() as conn:
            execute(
                conn, f"USE `{database}`", f"XA START '{xid}'", *statements, f"XA END '{xid}'", f"XA PREPARE '{xid}'"
            )

    execute(old, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)")
    prepare("early", "INSERT INTO t VALUES (1)")
    assert pipeline.snapshot().complete
    prepare("empty", "SELECT * FROM t")
    prepare("gone", "INSERT INTO t VALUES (2)")
    prepare("late", "INSERT INTO t VALUES (3)")
    execute(old, f"INSERT INTO `{database}`.t VALUES (4)")
    pipeline.drain()
    execute(old, "XA COMMIT 'empty'", "XA ROLLBACK 'gone'", "XA COMMIT 'late'", "XA COMMIT 'early'")
    pipeline.drain()
    assert [payload(r.value)["after"]["id"] for r in pipeline.records("t")] == [4, 3, 1]


@pytest.mark.exhaustive
def test_chunks_of_keys_in_three_byte_utf8(pipeline: Pipeline, old: Any, database: str) -> None:
    """The collations of utf8 are called utf8mb3_... since MySQL 8.0.30 only."""
    words = [f"{first}{n}" for n in range(40) for first in ("a", "Ö", "語")]
    for name, collation in (("plain", ""), ("bin", "COLLATE utf8_bin"), ("swedish", "COLLATE utf8_swedish_ci")):
        execute(
            old,
            f"CREATE TABLE `{database}`.{name} (k VARCHAR(30) CHARACTER SET utf8 {collation} PRIMARY KEY)",
            f"INSERT INTO `{database}`.{name} VALUES {','.join(f'({w!r})' for w in words)}",
        )
    pipeline.snapshot()
    for name in ("plain", "bin", "swedish"):
        records = pipeline.records(name)
        assert sorted(payload(r.value)["after"]["k"] for r in records) == sorted(words)
        assert duplicates(records) == []
    assert any(" 9 chunk" in line for line in pipeline.lines), pipeline.lines


@pytest.mark.parametrize("name", ["date", "datetime3", "time_date"])
@pytest.mark.exhaustive(but="time_date")
def test_a_table_keyed_by_impossible_dates_is_cut(name: str, pipeline: Pipeline, old: Any, database: str) -> None:
    """``k <= DATE'2020-02-31'`` finds no row on this version; as a plain text the date is compared as a date."""
    key_kinds.made(old, database, name)
    table = key_kinds.structure(old, pipeline, database, name)
    execute(old, key_kinds.STRICT)
    held = [key_kinds.members(old, table, chunk) for chunk in split_table(old, table, 1)]
    whole = key_kinds.members(old, table, SnapshotChunk(table.id, 0))
    assert len(whole) > 20 and sum(map(len, held)) == len(whole) and set.union(*held) == whole


@pytest.mark.req("AVRO-11", "AVRO-12", "SETUP-07")
@pytest.mark.exhaustive
def test_flat_rows_of_ticdcs_protocol(pipeline: Pipeline, old: Any, database: str) -> None:
    table, topic = f"{database}.wide", f"tidb_{database}_wide"
    execute(old, f"CREATE TABLE {table} ({TYPES})", f"INSERT INTO {table} VALUES {FULL.format(1)}, {EMPTY.format(1)}")
    with running_registry() as registry:
        flat = {"value.format": "ticdc-avro", "schema-registry": registry.url, "enable-tidb-extension": "true"}
        rules = '[{"matcher": ["*.*"], "topic": "tidb_{schema}_{table}", "partition": "index-value"}]'
        kept = {n: v for n, v in pipeline.properties.items() if "schemas.enable" not in n}
        job, readers = Pipeline(kept | flat | {"dispatchers": rules}), Flat(registry.url)
        assert job.snapshot().complete
        execute(
            old,
            f"INSERT INTO {table} VALUES {FULL.format(2)}, {EMPTY.format(2)}",
            f"UPDATE {table} SET v = 'changed' WHERE sub = 1",
            f"ALTER TABLE {table} ADD late INT DEFAULT 7",
            f"UPDATE {table} SET id = 9, late = 8 WHERE id = 2 AND sub = 2",
            f"DELETE FROM {table} WHERE id = 1 AND sub = 2",
        )
        assert job.drain() is not None
        records = job.read(topic)
        assert duplicates(records) == [] and len(records) == 2 + 2 + 2 + 2 + 1
        require_rows(readers.table(topic, records), selected(old, database, "wide"))
        values = [readers.value(topic, r.value) for r in records if r.value]
        # Rows of one transaction have one number, later ones have larger numbers.
        stamps = [v["_tidb_commit_ts"] for v in values]
        assert stamps == sorted(stamps) and len(set(stamps[2:])) == 3
        assert all(v["_tidb_commit_physical_time"] == v["_tidb_commit_ts"] >> 18 for v in values)


@pytest.mark.parametrize("metadata", ["MINIMAL", "FULL"])
@pytest.mark.exhaustive(but="MINIMAL")
def test_unsigned_columns_after_a_year_arrive(pipeline: Pipeline, old: Any, database: str, metadata: str) -> None:
    """This server writes no bit for YEAR columns into TABLE_MAP."""
    execute(
        old,
        f"SET GLOBAL binlog_row_metadata = {metadata}",
        f"CREATE TABLE `{database}`.y (id INT PRIMARY KEY, y YEAR, u INT UNSIGNED, v INT, w TINYINT UNSIGNED)",
    )
    assert pipeline.snapshot().complete
    execute(old, f"INSERT INTO `{database}`.y VALUES (1, 2020, 4000000000, -1, 255)")
    assert pipeline.drain() is not None
    row = payload(pipeline.records("y")[-1].value)["after"]
    assert row == {"id": 1, "y": 2020, "u": 4000000000, "v": -1, "w": 255}


@pytest.mark.req("TYPE-27")
@pytest.mark.exhaustive
def test_members_beyond_the_basic_plane(pipeline: Pipeline, old: Any, database: str) -> None:
    """A snapshot cannot read them; the drain says so once, and with FULL metadata it has them from the binlog."""
    execute(
        old,
        "SET GLOBAL binlog_row_metadata = MINIMAL",
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, e ENUM('😀', 'b'), s SET('x', '🍕'))",
        f"INSERT INTO `{database}`.t VALUES (1, '😀', 'x,🍕')",
    )
    pipeline.snapshot()
    assert any("this server cannot be asked for them" in line for line in pipeline.lines)
    for number in (2, 3):
        execute(old, f"INSERT INTO `{database}`.t VALUES ({number}, '😀', '🍕')")
        pipeline.drain()
    warnings = [line for line in pipeline.lines if "with a question mark (column e, s)" in line]
    assert len(warnings) in (1, 2) and "binlog_row_metadata=FULL" in warnings[0], "one for each run"
    execute(old, "SET GLOBAL binlog_row_metadata = FULL", f"INSERT INTO `{database}`.t VALUES (4, '😀', '🍕')")
    pipeline.drain()
    execute(old, "SET GLOBAL binlog_row_metadata = MINIMAL", f"INSERT INTO `{database}`.t VALUES (5, '😀', '🍕')")
    pipeline.drain()
    found = {row["id"]: (row["e"], row["s"]) for row in compacted(pipeline.records("t")).values()}
    shown, real = ("?", "?"), ("😀", "🍕")
    assert found == {1: ("😀", "x,🍕"), 2: shown, 3: shown, 4: real, 5: real}


@pytest.mark.req("SETUP-17", "TYPE-58")
def test_defaults_of_an_empty_table(pipeline: Pipeline, old: Any, database: str) -> None:
    require_stored_defaults(pipeline, old, database)
