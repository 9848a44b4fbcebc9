"""Jobs write TiCDC's Avro protocol through a real registry: rows equal SELECT, whoever reads them."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from kit.avro_rig import Readers
from kit.incremental_rig import ask_for
from kit.records import duplicates
from kit.sql import execute
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.errors import ConfigError, IncompatibleSchemaError, ValueDecodeError
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topics import all_partition_counts

RULES = json.dumps(
    [
        {"matcher": ["*.by_ts"], "topic": "{schema}-{table}", "partition": "ts"},
        {"matcher": ["*.*"], "topic": "tidb_{schema}_{table}", "partition": "index-value"},
    ]
)
TYPES = """
  id BIGINT NOT NULL, sub INT NOT NULL, flag BOOL, ti TINYINT UNSIGNED, mi MEDIUMINT, n INT UNSIGNED, b BIGINT UNSIGNED,
  f FLOAT, d DOUBLE, m DECIMAL(20,6), bi BIT(12), one BIT(1), da DATE, dt DATETIME(4), ts TIMESTAMP(6) NULL, t TIME(3),
  y YEAR, e ENUM('a','b,c','ü'), s SET('x','y','z'), v VARCHAR(50), c CHAR(6) CHARACTER SET latin1, x TEXT, bl BLOB,
  vb VARBINARY(20), fb BINARY(4), j JSON, PRIMARY KEY (sub, id)
"""
FULL = (
    "({0}, 1, 7, 255, -8388608, 4294967295, 18446744073709551615, 1.1, 1e-300, -12345678901234.000001, 4095, 1, "
    "'9999-12-31', '1000-01-01 00:00:00.0001', '2038-01-19 03:14:07.999999', '-838:59:59.000', 2155, 'b,c', 'x,z', "
    "'täxt 😀', 'é', 'long', x'00ff', x'01', x'0200', '{{\"k\": [1, 2.5, null]}}')"
)
EMPTY = "({0}, 2" + ", NULL" * 24 + ")"


def raw(value: bytes | None) -> bytes:
    return value or b""


# From a column's type to what its value must be, given MySQL's text of it.
EXPECTED: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("bigint", "int", "tinyint", "mediumint", "year"), int),
    **dict.fromkeys(("float", "double"), float),
    "decimal": lambda text: Decimal(text.decode()),
    "bit": lambda data: data.lstrip(b"\0") or b"\0",
    **dict.fromkeys(("blob", "varbinary", "binary"), bytes),
    "json": json.loads,
}


def selected(root: Any, database: str, table: str) -> dict[tuple[int, ...], dict[str, Any]]:
    """Return the rows of a table by (sub, id), as records have to have them."""
    with root.cursor() as cursor:
        cursor.execute(
            "SELECT column_name, data_type, column_type FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (database, table),
        )
        columns = cursor.fetchall()
        names = [str(name) for name, _, _ in columns]
        # FLOAT is printed with six digits, as a product with all of them; bytes come as they are.
        asked = [f"`{n}` * 1e0" if kind == "float" else f"`{n}`" for n, kind, _ in columns]
        cursor.execute("SET time_zone = '+00:00'")
        plain = ("bit", "blob", "binary", "varbinary")
        casts = [a if c[1] in plain else f"CAST({a} AS CHAR)" for a, c in zip(asked, columns, strict=True)]
        cursor.execute(f"SELECT {', '.join(casts)} FROM `{database}`.`{table}`")
        found = {}
        for values in cursor.fetchall():
            row = {
                name: None if value is None else expected(str(kind), value, str(full))
                for name, (_, kind, full), value in zip(names, columns, values, strict=True)
            }
            found[row["sub"], row["id"]] = row
    return found


def expected(kind: str, value: Any, full: str) -> Any:
    make = EXPECTED.get(kind)
    if make is None:
        return value
    made = make(value if isinstance(value, bytes) else str(value).encode())
    # AVRO-52: a long holds no number above 2**63-1.
    return made - (1 << 64) if kind == "bigint" and "unsigned" in full and made >> 63 else made


class Flat:
    """Read flat records; logical types are read too."""

    def __init__(self, url: str) -> None:
        self.readers = Readers(url)

    def value(self, topic: str, data: bytes, *, key: bool = False) -> dict[str, Any]:
        self.readers.read(topic, data, key=key)  # Confluent's deserializer agrees
        schema = json.loads(self.readers.schema_text(self.readers.id_of(data)))
        found: dict[str, Any] = fastavro.schemaless_reader(io.BytesIO(data[5:]), fastavro.parse_schema(schema), None)
        return found

    def table(self, topic: str, records: list[TopicRecord]) -> dict[tuple[int, ...], dict[str, Any]]:
        """Return the rows that records leave, by key."""
        rows: dict[tuple[int, ...], dict[str, Any]] = {}
        for record in records:
            assert record.key is not None
            key = self.value(topic, record.key, key=True)
            place = key["sub"], key["id"]
            if record.value is None:
                rows.pop(place, None)
            else:
                row = self.value(topic, record.value)
                rows[place] = {k: json.loads(v) if k == "j" and v else v for k, v in row.items() if k[:6] != "_tidb_"}
        return rows


Rows = dict[tuple[int, ...], dict[str, Any]]


def require_rows(found: Rows, wanted: Rows) -> None:
    """Fail unless rows are the table's; columns that were added behind a row's last event are not in it."""
    assert found.keys() == wanted.keys()
    other = [(n, v, wanted[k][n]) for k, row in found.items() for n, v in row.items() if v != wanted[k][n]]
    assert other == []


@pytest.fixture
def ticdc(properties: dict[str, str], registry: str) -> dict[str, str]:
    return properties | {"value.format": "ticdc-avro", "schema-registry": registry, "dispatchers": RULES}


@pytest.mark.req(
    "AVRO-01", "AVRO-02", "AVRO-03", "AVRO-04", "AVRO-13", "AVRO-54", "AVRO-58", "AVRO-59", "AVRO-60", "CFG-127"
)
def test_flat_rows_of_snapshot_and_stream_equal_select(
    root: Any, database: str, ticdc: dict[str, str], registry: str
) -> None:
    execute(
        root,
        f"CREATE TABLE {database}.wide ({TYPES})",
        f"CREATE TABLE {database}.by_ts (id INT NOT NULL, sub INT NOT NULL, PRIMARY KEY (id, sub))",
        f"INSERT INTO {database}.wide VALUES {FULL.format(1)}, {EMPTY.format(1)}, {EMPTY.format(9)}",
    )
    more = {"enable-tidb-extension": "true", "topic.creation.default.partitions": "3", "drain.writers": "2"}
    job = Pipeline(ticdc | more)
    job.snapshot()
    wide, by_ts, flat = f"tidb_{database}_wide", f"{database}-by_ts", Flat(registry)
    first = job.read(wide)
    assert flat.table(wide, first) == selected(root, database, "wide") and len(first) == 3
    execute(
        root,
        f"INSERT INTO {database}.wide VALUES {FULL.format(2)}, {EMPTY.format(2)}",
        f"UPDATE {database}.wide SET v = 'changed' WHERE id = 1",
        f"UPDATE {database}.wide SET id = 10 WHERE id = 9",
        f"DELETE FROM {database}.wide WHERE id = 2 AND sub = 2",
        f"INSERT INTO {database}.by_ts VALUES (1, 1), (2, 1), (3, 1)",
        f"INSERT INTO {database}.by_ts VALUES (4, 1)",
        f"ALTER TABLE {database}.by_ts COMMENT 'no record'",
    )
    assert job.drain() is not None
    records = job.read(wide)
    assert flat.table(wide, records) == selected(root, database, "wide")
    assert flat.table(by_ts, job.read(by_ts)) == selected(root, database, "by_ts")
    # A deleted row and a key that moved away are keys without a value, and nothing else.
    streamed = records[len(first) :] if len({r.partition for r in records}) == 1 else records
    assert sum(r.value is None for r in streamed) == 2
    assert not any(name.startswith("__debezium") and "key" in name for r in records for name, _ in r.headers)
    values = [flat.value(by_ts, r.value) for r in job.read(by_ts) if r.value is not None]
    stamps = [v["_tidb_commit_ts"] for v in sorted(values, key=lambda v: v["id"])]
    assert stamps[0] == stamps[1] == stamps[2] < stamps[3]
    assert {v["_tidb_commit_ts"] >> 18 == v["_tidb_commit_physical_time"] for v in values} == {True}
    partitions = {flat.value(by_ts, r.value)["id"]: r.partition for r in job.read(by_ts) if r.value is not None}
    assert partitions[1] == partitions[2] == partitions[3], "rows of one transaction have one timestamp"
    assert {(flat.value(by_ts, r.value)["_tidb_commit_ts"] % 3, r.partition) for r in job.read(by_ts) if r.value} <= {
        (0, 0),
        (1, 1),
        (2, 2),
    }
    operations = [flat.value(wide, r.value)["_tidb_op"] for r in records if r.value is not None]
    assert sorted(operations) == ["c"] * 6 + ["u"] * 2
    # No statement has a record (AVRO-54), so there is no topic for them.
    assert job.cfg.topic_prefix not in all_partition_counts(make_admin(job.cfg.kafka_settings()))


def test_an_ad_hoc_snapshot_reads_flat_rows_again(
    root: Any, database: str, ticdc: dict[str, str], registry: str
) -> None:
    execute(
        root,
        f"CREATE TABLE {database}.wide ({TYPES})",
        f"INSERT INTO {database}.wide VALUES {FULL.format(1)}, {EMPTY.format(1)}, {EMPTY.format(9)}",
    )
    job, topic, flat = Pipeline(ticdc | {"enable-tidb-extension": "true"}), f"tidb_{database}_wide", Flat(registry)
    job.snapshot()
    before = len(job.read(topic))
    execute(
        root,
        f"UPDATE {database}.wide SET v = 'changed' WHERE id = 1",
        f"DELETE FROM {database}.wide WHERE id = 9",
        f"ALTER TABLE {database}.wide ADD late INT DEFAULT 7",
        f"INSERT INTO {database}.wide (id, sub) VALUES (5, 5)",
    )
    ask_for(job, ["wide"], "s1")
    assert job.drain() is not None
    records, wanted = job.read(topic), selected(root, database, "wide")
    assert flat.table(topic, records) == wanted and len(wanted) == 3
    # Two updates, a delete and an insert; then each row once more, as it is now, as an insert.
    again = [flat.value(topic, raw(r.value)) for r in records[before + 4 :]]
    assert len(again) == 3 and {v["_tidb_op"] for v in again} == {"c"}
    assert [v["late"] for v in again] == [7, 7, 7]


@pytest.mark.req("AVRO-55", "AVRO-56", "AVRO-57", "FAULT-28")
def test_a_schema_that_the_registry_refuses_stops_the_feed_before_a_record(
    root: Any, database: str, ticdc: dict[str, str], registry: str
) -> None:
    table = f"{database}.orders"
    execute(root, f"CREATE TABLE {table} (id INT NOT NULL, sub INT NOT NULL, PRIMARY KEY (id, sub))")
    execute(root, f"INSERT INTO {table} VALUES (1, 1)")
    job, topic = Pipeline(ticdc), f"tidb_{database}_orders"
    job.snapshot()
    client = Readers(registry).client
    client.set_compatibility(subject_name=f"{topic}-value", level="BACKWARD")
    execute(
        root,
        f"INSERT INTO {table} VALUES (2, 1)",
        f"ALTER TABLE {table} ADD COLUMN more INT NOT NULL",
        f"INSERT INTO {table} VALUES (3, 1, 5)",
    )
    with pytest.raises(IncompatibleSchemaError, match=rf"{table}.*{topic}-value.*column more is new: int") as caught:
        job.drain()
    assert not caught.value.can_retry
    ids = [Flat(registry).value(topic, r.value)["id"] for r in job.read(topic) if r.value]
    assert set(ids) <= {1, 2}
    client.set_compatibility(subject_name=f"{topic}-value", level="NONE")
    assert job.drain() is not None
    flat = Flat(registry)
    assert [flat.value(topic, r.value) for r in job.read(topic) if r.value] == [
        {"id": 1, "sub": 1},
        {"id": 2, "sub": 1},
        {"id": 3, "sub": 1, "more": 5},
    ]


def test_timestamps_rise_where_a_transaction_has_an_earlier_time_of_another_server(
    root: Any, database: str, ticdc: dict[str, str], registry: str
) -> None:
    table, topic = f"{database}.orders", f"tidb_{database}_orders"
    execute(root, f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    job, flat = Pipeline(ticdc | {"enable-tidb-extension": "true"}), Flat(registry)
    job.snapshot()

    def insert(first: int, hours_ago: int) -> None:
        us = 0 if hours_ago == 0 else int((time.time() - 3600 * hours_ago) * 1_000_000)
        if us:
            execute(root, f"SET SESSION original_commit_timestamp = {us}")
        execute(root, *(f"INSERT INTO {table} VALUES ({n})" for n in range(first, first + 3)))
        execute(root, "SET SESSION original_commit_timestamp = DEFAULT")

    def stamps() -> list[int]:
        rows = [flat.value(topic, r.value) for r in job.read(topic) if r.value]
        assert [row["id"] for row in rows] == list(range(len(rows)))
        assert all(row["_tidb_commit_physical_time"] == row["_tidb_commit_ts"] >> 18 for row in rows)
        return [row["_tidb_commit_ts"] for row in rows]

    insert(0, 0)
    insert(3, 2)
    insert(6, 1)
    insert(9, 0)
    assert job.drain() is not None
    first = stamps()
    assert len(first) == 12 and first == sorted(set(first))
    # The next batch begins with an earlier time, and is read by a driver that knows only the ledger.
    insert(12, 1)
    job.store = type(job.store)()
    assert job.drain() is not None
    second = stamps()
    assert second[:12] == first and len(second) == 15 and second == sorted(set(second))
    # What is written again after the stream was moved back does not get earlier times.
    reset_offset(job.cfg, job.store, "test/reset", job.log)
    insert(15, 3)
    assert job.drain() is not None
    third = stamps()
    assert len(third) == 18 and third == sorted(set(third))


@pytest.mark.parametrize(
    "tables", [pytest.param(["orders"], marks=pytest.mark.exhaustive), ["orders", "others"]], ids=["one", "two"]
)
def test_rows_of_snapshots_have_the_timestamp_of_their_place_in_the_binlog(
    root: Any, database: str, ticdc: dict[str, str], registry: str, tables: list[str]
) -> None:
    topic = f"tidb_{database}_orders"
    execute(root, *(f"CREATE TABLE {database}.{t} (id INT PRIMARY KEY, v INT)" for t in tables))
    execute(root, *(f"INSERT INTO {database}.{t} VALUES (1, 0), (2, 0)" for t in tables))
    job, flat = Pipeline(ticdc | {"enable-tidb-extension": "true"}), Flat(registry)
    job.snapshot()

    def change(value: int, hours_ago: int) -> None:
        execute(
            root,
            f"SET SESSION original_commit_timestamp = {int((time.time() - 3600 * hours_ago) * 1_000_000)}",
            f"UPDATE {database}.orders SET v = {value} WHERE id = 1",
            "SET SESSION original_commit_timestamp = DEFAULT",
        )

    def newest() -> dict[int, int]:
        """Return what a reader has that keeps the row with the highest timestamp, checking that none goes back."""
        rows, last = {}, 0
        for row in (flat.value(topic, r.value) for r in job.read(topic) if r.value):
            assert row["_tidb_commit_ts"] >= last, row
            last, rows[row["id"]] = row["_tidb_commit_ts"], row["v"]
        return rows

    # The server applies transactions of another one that lags behind the view, and behind the window.
    change(1, 2)
    assert job.drain() is not None
    assert newest() == {1: 1, 2: 0}
    ask_for(job, tables, "s1")
    change(2, 1)
    assert job.drain() is not None
    change(3, 3)
    assert job.drain() is not None
    assert newest() == {1: 3, 2: 0}
    assert len(job.read(topic)) >= 6


@pytest.mark.req("AVRO-61", "FAULT-29")
def test_a_table_without_a_rule_is_refused_before_anything_is_written(
    root: Any, database: str, ticdc: dict[str, str]
) -> None:
    execute(root, f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)")
    rules = json.dumps([{"matcher": ["other.*"], "topic": "{schema}{table}"}])
    job = Pipeline(ticdc | {"dispatchers": rules})
    with pytest.raises(ConfigError, match=rf"no dispatcher fits table {database}\.orders"):
        job.snapshot()


@pytest.mark.req("FAULT-13")
def test_a_row_that_the_binlog_does_not_hold_whole_stops_the_feed_or_is_left_out(
    root: Any, database: str, unique: str, ticdc: dict[str, str], registry: str
) -> None:
    table, topic = f"{database}.n", f"tidb_{database}_n"
    execute(root, f"CREATE TABLE {table} (id INT NOT NULL PRIMARY KEY, sub INT NOT NULL, v VARCHAR(9))")
    execute(root, f"INSERT INTO {table} VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')")
    by_column = json.dumps(
        [{"matcher": ["*.*"], "topic": "tidb_{schema}_{table}", "partition": "columns", "columns": ["v"]}]
    )
    job = Pipeline(ticdc | {"dispatchers": by_column, "topic.creation.default.partitions": "3"})
    job.snapshot()
    try:
        execute(
            root,
            "SET SESSION binlog_row_image = 'MINIMAL'",
            f"DELETE FROM {table} WHERE id = 1",
            f"UPDATE {table} SET sub = 20 WHERE id = 2",
            f"INSERT INTO {table} VALUES (4, 4, 'd')",
        )
    finally:
        execute(root, "SET SESSION binlog_row_image = DEFAULT")
    with pytest.raises(ValueDecodeError, match=r"partition of a deleted row.*binlog_row_image") as found:
        job.drain()
    assert found.value.where.endswith(", row 0, key id=1")
    assert len(job.read(topic)) == 3
    dead = f"dead.{unique}"
    job.properties |= {
        "event.processing.failure.handling.mode": "warn",
        "errors.deadletterqueue.topic.name": dead,
        "drain.writers": "3",
        "drain.small.batch.bytes": "0",
    }
    outcome = job.drain()
    assert outcome is not None and outcome.complete
    flat = Flat(registry)
    added = [flat.value(topic, raw(r.value)) for r in job.read(topic) if r.value and b"d" in r.value[-2:]]
    assert added == [{"id": 4, "sub": 4, "v": "d"}] and len(job.read(topic)) == 4
    letters = [json.loads(raw(r.value)) for r in job.read(dead)]
    assert sorted((n["op"], n["key"]["id"], n["before"], n["after"]) for n in letters) == [
        ("d", 1, {"id": 1}, None),
        ("u", 2, {"id": 2}, {"sub": 20}),
    ]


@pytest.mark.exhaustive
@pytest.mark.spark
@pytest.mark.req("FAULT-10")
def test_a_batch_whose_driver_was_killed_on_spark_is_finished_exactly_once(
    root: Any, database: str, ticdc: dict[str, str], registry: str, tmp_path: Path
) -> None:
    more = {"cdc.id.header": "true", "topic.creation.default.partitions": "3", "drain.writers": "3"}
    # Small transactions, so that there is a middle.
    cut = {"drain.small.batch.bytes": "0", "commit.bytes": "65536", "enable-tidb-extension": "true"}
    table, topic, job = f"{database}.wide", f"tidb_{database}_wide", Pipeline(ticdc | more | cut)
    execute(root, f"CREATE TABLE {table} ({TYPES})")
    job.snapshot()
    for start in range(0, 1500, 500):
        values = ", ".join((FULL, EMPTY)[n % 2].format(n) for n in range(start, start + 500))
        execute(root, f"INSERT INTO {table} VALUES {values}")
    execute(
        root,
        f"UPDATE {table} SET v = 'changed' WHERE id < 600 AND id % 2 = 0",
        f"ALTER TABLE {table} ADD late INT DEFAULT 7",
        f"UPDATE {table} SET id = id + 10000 WHERE id < 100",
        f"DELETE FROM {table} WHERE id BETWEEN 1000 AND 1199",
    )
    fired = tmp_path / "fired"
    # The writer that owns rows commits more than once.
    fault = {"point": "writer.before_commit", "action": "kill-driver", "nth": 2, "fired": str(fired)}
    killed = job.on_spark("drain", tmp_path, fault=fault)
    assert fired.exists() and killed.returncode != 0, killed.stdout + killed.stderr[-2000:]
    assert not job.settle().complete
    retried = job.in_process("drain", tmp_path)
    assert retried.returncode == 0, retried.stdout
    assert job.settle().complete
    records, flat = job.read(topic), Flat(registry)
    assert duplicates(records) == [] and len(records) == 1500 + 300 + 2 * 100 + 200
    assert {r.partition for r in records} == {0, 1, 2}
    require_rows(flat.table(topic, records), selected(root, database, "wide"))
