"""All jobs write Confluent Avro through a real registry, and readers that were not written here see what JSON says."""

from __future__ import annotations

import io
import json
import re
import struct
from base64 import b64encode
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from decode_rig import run_script
from kit.avro_rig import Readers, as_json, avro, read_with_java, shown, whole
from kit.incremental_rig import ask_for
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from test_decode_types import CHARSETS, DOCUMENTS, LAX, TYPES, expectation, told

from airflow_provider_mysql_cdc.cdc.formats.record_formats import AvroFormat
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord

WORKLOADS = Path(__file__).resolve().parents[1] / "golden" / "peer" / "workloads"
# Differ from run to run, or between two prefixes.
VOLATILE = frozenset(("ts_ms", "ts_us", "ts_ns", "name", "connector_name", "data_collections"))


TABLE_MEMBERS = ("current_collection_in_progress", "scanned_collection")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def without_volatile(value: Any) -> Any:
    if isinstance(value, dict):
        changing = VOLATILE | {"timestamp"} if "aggregate_type" in value else VOLATILE  # of a notification
        return {k: without_volatile(v) for k, v in value.items() if k not in changing}
    if isinstance(value, str) and UUID.fullmatch(value):  # the random id of a notification
        return "uuid"
    return [without_volatile(v) for v in value] if isinstance(value, list) else value


def sections(name: str, database: str, *kinds: str) -> str:
    from prooflib.workload import read_workload

    texts = [s.text for s in read_workload(WORKLOADS / f"{name}.sql").sections_of(*kinds)]
    for old in ("dmldb", "tdb"):
        texts = [t.replace(old, database) for t in texts]
    return "\n".join(texts).replace("SET GLOBAL binlog_rows_query_log_events = ON;", "")


def compare(readers: Readers, topic: str, told: list[TopicRecord], found: list[TopicRecord]) -> int:
    """Fail unless Avro records say what JSON records with schemas say; return how many values there were."""
    assert len(told) == len(found), topic
    for ours, record in zip(told, found, strict=True):
        for data, there, is_key in ((ours.key, record.key, True), (ours.value, record.value, False)):
            assert (data is None) == (there is None)
            if data is None or there is None:
                continue
            part = json.loads(data)
            seen = as_json(part["schema"], readers.read(topic, there, key=is_key))
            assert without_volatile(seen) == without_volatile(whole(part["schema"], part["payload"]))
        assert [name for name, _ in record.headers] == [name for name, _ in ours.headers]
    return sum(record.value is not None for record in found)


def by_row(readers: Readers, topic: str, records: list[TopicRecord], *, coded: bool) -> dict[str, list[TopicRecord]]:
    """Return records by the row that their keys name."""
    out: dict[str, list[TopicRecord]] = {}
    for record in records:
        data = record.key
        row = readers.read(topic, data, key=True) if coded or data is None else json.loads(data)["payload"]
        if topic.endswith(".notes"):
            # Tasks read tables in any order, and each notification has an id of its own.
            value = readers.read(topic, record.value) if coded else json.loads(record.value or b"")["payload"]
            tables = {name: value["additional_data"].get(name) for name in TABLE_MEMBERS}
            row = {"type": value["type"], **tables}
        out.setdefault(str(without_bytes(without_volatile(row))), []).append(record)
    return out


def without_bytes(row: dict[str, Any] | None) -> list[Any] | None:
    return row and [b64encode(v).decode() if isinstance(v, bytes) else v for v in row.values()]


def compare_topic(readers: Readers, plain: Pipeline, coded: Pipeline, topic: str, twin: str) -> int:
    told = by_row(readers, topic, plain.read(topic), coded=False)
    records = coded.read(twin)
    found = by_row(readers, twin, records, coded=True)
    places = {(record.key, record.partition) for record in records if record.key is not None}
    assert len(places) == len({key for key, _ in places}), "a key stands in two partitions"
    assert told.keys() == found.keys()
    return sum(compare(readers, twin, told[row], found[row]) for row in told)


@pytest.mark.exhaustive
@pytest.mark.req("EVT-02", "EVT-40", "CFG-106", "CFG-107", "SCH-43")
def test_every_row_of_every_type_is_read_as_json_has_it(
    root: Any, stack: Any, properties: dict[str, str], unique: str, registry: str
) -> None:
    names = {"types": f"{unique}x", "dml": f"{unique}y"}
    extras = {
        "database.include.list": ",".join(names.values()),
        "provide.transaction.metadata": "true",
        "heartbeat.interval.ms": "1",
        "skipped.operations": "none",
        "topic.creation.default.partitions": "2",
        "notification.enabled.channels": "sink",
        "schema.name.adjustment.mode": "avro",
        "field.name.adjustment.mode": "avro",
    }
    plain = Pipeline(properties | extras | {"notification.sink.topic.name": f"{unique}.notes"})
    other = properties | extras | avro(registry) | {"topic.prefix": f"{unique}v", "database.server.id": "7000"}
    coded = Pipeline(other | {"notification.sink.topic.name": f"{unique}v.notes"})
    for name, database in names.items():
        run_script(root, sections(name, database, "setup", "both"))
    try:
        plain.snapshot()
        coded.snapshot()
        for name, database in names.items():
            run_script(root, sections(name, database, "change", "both"))
        assert plain.drain() is not None
        assert coded.drain() is not None
        readers, seen = Readers(registry), {}
        for topic in plain.topics():
            twin = topic.replace(unique, f"{unique}v", 1)
            seen[topic] = compare_topic(readers, plain, coded, topic, twin)
        print(seen)
        assert sum(seen.values()) > 200
        twins = {topic: coded.read(topic) for topic in coded.topics()}
        parts = [(t, d, d is r.key) for t, found in twins.items() for r in found for d in (r.key, r.value) if d]
        assert len(parts) > 400
        expected = [shown(readers.read(topic, data, key=is_key)) for topic, data, is_key in parts]
        assert read_with_java(registry, [data for _, data, _ in parts]) == expected
        heartbeats = f"__debezium-heartbeat.{unique}v"
        beat = coded.read(heartbeats)[-1]
        assert readers.read(heartbeats, beat.key, key=True) == {"serverName": f"{unique}v"}
        assert list(readers.read(heartbeats, beat.value)) == ["ts_ms"]
        changes = coded.read(f"{unique}v")
        assert {readers.read(f"{unique}v", c.key, key=True)["databaseName"] for c in changes} >= set(names.values())
        assert compare(readers, f"{unique}v", plain.read(unique), changes) == len(changes)
    finally:
        for database in names.values():
            execute(root, f"DROP DATABASE IF EXISTS `{database}`")


ESC = "\\"
# Every type, every character set and JSON in one table, each with every literal and NULL.
COLUMNS = {
    **{f"t{i}": (sql_type, (*values, "NULL")) for i, (sql_type, values) in enumerate(TYPES.items())},
    **{
        f"s_{name}": (f"VARCHAR(9) CHARACTER SET {name}", (f"'{text.replace(ESC, ESC * 2)}'", "''", "NULL"))
        for name, text in CHARSETS.items()
    },
    "j": ("JSON", (*DOCUMENTS, "NULL")),
}
ROWS = max(len(values) for _, values in COLUMNS.values())


def of_all_types(database: str, first: int) -> list[str]:
    """Return the INSERTs that put every literal of every column into the table, from an id on."""
    return [
        f"INSERT INTO `{database}`.t VALUES ({first + n}, "
        + ", ".join(v[n % len(v)] for _, v in COLUMNS.values())
        + ")"
        for n in range(ROWS)
    ]


def selected(root: Any, database: str) -> dict[int, dict[str, Any]]:
    """Return the table's rows by id, as SELECT tells them."""
    found: dict[int, dict[str, Any]] = {n: {} for (n,) in rows(root, f"SELECT id FROM `{database}`.t")}
    for name, (sql_type, _) in COLUMNS.items():
        digits = int(sql_type.partition("(")[2].partition(")")[0]) if sql_type.startswith("DATETIME") else 0
        sql, make = expectation(sql_type, digits)
        for number, value in rows(root, f"SELECT id, {sql.format(c=name)} FROM `{database}`.t"):
            found[number][name] = None if value is None else make(value)
    return {number: comparable(row) for number, row in found.items()}


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row's values, those of FLOAT as their 32 bits and documents as what they hold."""
    out = dict(row)
    for name, (sql_type, _) in COLUMNS.items():
        if row[name] is not None and sql_type == "FLOAT":
            out[name] = struct.pack("<f", row[name])
        if row[name] is not None and sql_type == "JSON":
            out[name] = json.loads(row[name], parse_float=Decimal, parse_int=Decimal)
    return out


def as_told(row: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return an event's image in the form of ``selected``."""
    if row is None:
        return None
    seen = shown(row)
    return comparable({name: told(sql_type, seen[name]) for name, (sql_type, _) in COLUMNS.items()})


@pytest.mark.req("EVT-02", "EVT-40")
def test_rows_that_are_written_at_once_equal_select(
    root: Any, properties: dict[str, str], database: str, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, by_json = Pipeline(properties | avro(registry)), []
    plain = AvroFormat.value_bytes
    monkeypatch.setattr(AvroFormat, "value_bytes", lambda form, value: by_json.append(value) or plain(form, value))
    columns = ", ".join(f"{name} {sql_type}" for name, (sql_type, _) in COLUMNS.items())
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, {columns})", LAX, *of_all_types(database, 100))
    pipeline.snapshot()
    first = selected(root, database)
    execute(
        root,
        *of_all_types(database, 200),
        # Every row of the snapshot gets what is in another one of the stream; then some go.
        f"UPDATE `{database}`.t a JOIN `{database}`.t b ON b.id = 200 + (a.id - 99) % {ROWS} SET "
        + ", ".join(f"a.{name} = b.{name}" for name in COLUMNS)
        + " WHERE a.id < 200",
    )
    streamed = selected(root, database)
    execute(root, f"DELETE FROM `{database}`.t WHERE id > 199")
    assert pipeline.drain() is not None
    readers, topic = Readers(registry), pipeline.table_topic("t")
    seen: dict[int, dict[str, list[Any]]] = {}
    for record in pipeline.records("t"):
        row = readers.read(topic, record.key, key=True)["id"]
        value = readers.read(topic, record.value) or {"op": None, "before": None, "after": None}
        seen.setdefault(row, {})[value["op"]] = [as_told(value["before"]), as_told(value["after"])]
    assert by_json == [], "a row was written by way of JSON"
    for n in range(ROWS):
        old, updated, new = first[100 + n], streamed[100 + n], streamed[200 + n]
        assert seen[100 + n] == {"r": [None, old], "u": [old, updated]}
        assert seen[200 + n] == {"c": [None, new], "d": [new, None], None: [None, None]}


PARTLY = (
    "INSERT INTO {t} (id, {named}) SELECT {n}, {named} FROM {t} WHERE id = {old}",
    "INSERT INTO {t} SELECT {n} + 1, {all} FROM {t} WHERE id = {old}",
    "UPDATE {t} SET {first} = NULL WHERE id IN ({n}, {old})",
    "UPDATE {t} SET {last} = NULL, id = id + 1000 WHERE id IN ({n}, {old} + 1)",
    "DELETE FROM {t} WHERE id IN ({n} + 1000, {old})",
)


@pytest.mark.req("SETUP-17")
def test_row_images_that_leave_columns_out_are_read_as_json_has_them(
    root: Any, properties: dict[str, str], database: str, registry: str, unique: str
) -> None:
    allowed = {"event.processing.failure.handling.mode": "skip", "unavailable.value.as.null": "true"}
    dead = "errors.deadletterqueue.topic.name"
    plain = Pipeline(properties | allowed | {dead: f"dead.{unique}"})
    other = {"topic.prefix": f"{unique}v", "database.server.id": "7000", dead: f"dead.{unique}v"}
    coded = Pipeline(properties | allowed | avro(registry) | other)
    columns = ", ".join(f"{name} {sql_type}" for name, (sql_type, _) in COLUMNS.items())
    defaults = next(line for line in sections("types", database, "setup").split(";") if "CREATE TABLE defs" in line)
    execute(
        root,
        f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, {columns})",
        f"USE `{database}`",
        "SET SESSION sql_mode = '', time_zone = '+00:00'",
        *of_all_types(database, 100),
        # What sql_mode puts into columns without a default, and a default in a session's zone, cannot be told.
        defaults,
        "CREATE TABLE told LIKE defs",
        "ALTER TABLE told DROP ts3, DROP tsz, DROP enn, DROP nnnd, DROP vnn",
        *(f"INSERT INTO {name} (id) VALUES (100), (101), (102), (103)" for name in ("defs", "told")),
    )
    plain.snapshot()
    coded.snapshot()
    tables = {"t": ("t0", "j"), "defs": ("ti", "js"), "told": ("ti", "js")}
    try:
        for image, n, old in (("MINIMAL", 1, 100), ("NOBLOB", 11, 102)):
            execute(root, f"SET SESSION binlog_row_image = '{image}'")
            for name, (first, last) in tables.items():
                shown_columns = [str(r[0]) for r in rows(root, f"SHOW COLUMNS FROM `{database}`.{name}")]
                given = {"first": first, "last": last, "named": f"{first}, {last}", "all": ", ".join(shown_columns[1:])}
                execute(root, *(s.format(t=f"`{database}`.{name}", n=n, old=old, **given) for s in PARTLY))
    finally:
        execute(root, "SET SESSION binlog_row_image = DEFAULT, sql_mode = DEFAULT")
    assert plain.drain() is not None
    assert coded.drain() is not None
    readers = Readers(registry)
    seen = {n: compare_topic(readers, plain, coded, plain.table_topic(n), coded.table_topic(n)) for n in tables}
    letters = [[json.loads(r.value or b"") for r in p.read(p.properties[dead])] for p in (plain, coded)]
    told = [[[n[m] for m in ("op", "key", "before", "after", "failed")] for n in found] for found in letters]
    assert told[0] == told[1]
    reasons = [[(n["error"]["what"], n["error"]["why"]) for n in found] for found in letters]
    assert reasons[0] == reasons[1]
    # NOT NULL columns that no row image tells of; NOBLOB leaves out nothing that no placeholder can stand for.
    assert {n["source"]["table"] for n in letters[0]} == {"defs", "told"}
    assert {n["key"]["id"] for n in letters[0]} == {1, 100, 101}
    assert min(seen.values()) > 10


def test_a_table_that_evolves_under_ad_hoc_snapshots_is_read_by_old_and_new_readers(
    root: Any, properties: dict[str, str], database: str, registry: str
) -> None:
    pipeline = Pipeline(properties | avro(registry) | {"cdc.id.header": "true"})
    table = f"`{database}`.t"
    execute(
        root, f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, gone TEXT)", f"INSERT INTO {table} VALUES (1,1,'x')"
    )
    pipeline.snapshot()
    execute(
        root,
        f"INSERT INTO {table} VALUES (2, 2, 'x')",
        f"ALTER TABLE {table} ADD late VARCHAR(9) DEFAULT 'now'",
        f"INSERT INTO {table} VALUES (3, 3, 'x', NULL)",
        f"ALTER TABLE {table} ALTER late SET DEFAULT 'later'",
        f"INSERT INTO {table} (id, a, gone) VALUES (6, 6, 'x')",
        f"ALTER TABLE {table} DROP gone",
        f"INSERT INTO {table} VALUES (4, 4, 'y')",
        f"ALTER TABLE {table} MODIFY a BIGINT",
        f"INSERT INTO {table} VALUES (5, {2**40}, 'z')",
    )
    ask_for(pipeline, ["t"], "s1")
    assert pipeline.drain() is not None
    readers, topic = Readers(registry), pipeline.table_topic("t")
    records = pipeline.records("t")
    versions = list(dict.fromkeys(readers.id_of(r.value) for r in records if r.value))
    assert len(versions) == 5
    assert len(readers.client.get_versions(f"{topic}-value")) == 5
    assert len({r.key[:5] for r in records if r.key}) == 1  # keys did not change
    ops = [readers.read(topic, r.value)["op"] for r in records]
    assert ops == ["r", *"ccccc", *"rrrrrr"]
    # The last snapshot read every row in the table's form of today.
    last = [readers.read(topic, r.value)["after"] for r in records[6:]]
    assert last == [
        {"id": 1, "a": 1, "late": "now"},
        {"id": 2, "a": 2, "late": "now"},
        {"id": 3, "a": 3, "late": None},
        {"id": 4, "a": 4, "late": "y"},
        {"id": 5, "a": 2**40, "late": "z"},
        {"id": 6, "a": 6, "late": "later"},
    ]
    first, now = (json.loads(readers.schema_text(v)) for v in (versions[0], versions[-1]))
    told = {r.value: readers.id_of(r.value) for r in records if r.value}
    for data, version in told.items():
        writer = json.loads(readers.schema_text(version))
        assert read_as(data, writer, now)["op"] in ("r", "c")
        if version in versions[:4]:  # until a column became wider, which an old reader cannot hold
            assert list(read_as(data, writer, first)["after"]) == ["id", "a", "gone"]


def read_as(data: bytes, writer: Any, reader: Any) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data[5:]), writer, reader)
