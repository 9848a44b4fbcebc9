"""Tables keyed by bytes, dates, times and decimals are cut, and chunk, filter and server agree on every key."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from kit.records import duplicates, payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import captured_state
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import read_definitions
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_driver
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk, chunk_condition, split_table
from airflow_provider_mysql_cdc.cdc.snapshot.chunk_queue import ChunkQueue
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import stored_dates_allowed
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import run_snapshot

LAX = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
STRICT = "SET SESSION sql_mode = 'TRADITIONAL', time_zone = '+05:30'"
NEXT_TO_EACH_OTHER = ("1999-12-31", "2000-01-01", "2020-02-28", "2020-02-29", "2020-03-01")
PROPERTIES = {
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}


def day(pick: random.Random) -> str:
    year = pick.choice((0, 1, 69, 70, 1000, 1970, 2020, 2038, 9999, pick.randrange(10000)))
    return pick.choice((f"{year:04}-{pick.randrange(13):02}-{pick.randrange(32):02}", *NEXT_TO_EACH_OTHER))


def fraction(pick: random.Random, digits: int) -> str:
    parts = ("0" * digits, "9" * digits, "1".rjust(digits, "0"), f"{pick.randrange(10**digits):0{digits}}")
    return "." + pick.choice(parts) if digits else ""


def clock(pick: random.Random, hours: int, digits: int) -> str:
    return f"{pick.randrange(hours):02}:{pick.choice((0, 59, 7)):02}:{pick.randrange(60):02}{fraction(pick, digits)}"


def moment(pick: random.Random, digits: int) -> str:
    return f"{day(pick)} {clock(pick, 24, digits)}"


def instant(pick: random.Random, digits: int) -> str:
    months = f"{pick.randrange(1971, 2038)}-{pick.choice((3, 10)):02}-{pick.choice((28, 29, 30, 31))}"
    return f"{months} {clock(pick, 24, digits)}"


def octets(pick: random.Random, most: int) -> str:
    return "".join(pick.choice(("00", "20", "61", "41", "ff", "80")) for _ in range(pick.randrange(most + 1)))


def number(pick: random.Random, whole: int, scale: int, signs: tuple[str, ...] = ("", "-")) -> str:
    digits = str(pick.randrange(10 ** pick.randrange(1, whole + 1)))
    return pick.choice(signs) + digits + fraction(pick, scale)


def quoted(texts: Iterable[str]) -> list[str]:
    return [f"'{t}'" for t in texts]


MANY = range(60)
IMPOSSIBLE = ("2020-02-30", "2020-02-31", "2020-04-31", "2020-00-00", "2020-02-00", "0000-02-31", "2021-02-29")
YEARLY = tuple(f"{1000 + 31 * n}-{n % 12 + 1:02}-15" for n in range(40))
P = random.Random("keys")
KINDS: dict[str, tuple[str, list[str]]] = {
    "date": ("DATE", quoted(("0000-00-00", "9999-12-31", *IMPOSSIBLE, *YEARLY, *(day(P) for _ in MANY)))),
    "datetime": (
        "DATETIME",
        quoted(("0000-00-00 00:00:00", *(f"{d} 23:59:59" for d in IMPOSSIBLE), *(moment(P, 0) for _ in MANY))),
    ),
    "datetime3": (
        "DATETIME(3)",
        quoted(("0000-00-00 00:00:00.000", *(f"{d} 00:00:00.000" for d in IMPOSSIBLE), *(moment(P, 3) for _ in MANY))),
    ),
    "datetime6": ("DATETIME(6)", quoted(("9999-12-31 23:59:59.499999", *(moment(P, 6) for _ in MANY)))),
    "timestamp": (
        "TIMESTAMP",
        quoted(("0000-00-00 00:00:00", "1970-01-01 00:00:01", "2038-01-19 03:14:07", *(instant(P, 0) for _ in MANY))),
    ),
    "timestamp5": (
        "TIMESTAMP(5)",
        quoted(("0000-00-00 00:00:00", "1970-01-01 00:00:01.00001", *(instant(P, 5) for _ in MANY))),
    ),
    "time": (
        "TIME",
        quoted(("-838:59:59", "838:59:59", "00:00:00", *(P.choice("- ") + clock(P, 838, 0) for _ in MANY))),
    ),
    "time1": ("TIME(1)", quoted(("-00:00:00.1", "00:00:00.1", *(P.choice("- ") + clock(P, 120, 1) for _ in MANY)))),
    "time6": ("TIME(6)", quoted(("-838:59:59", "-00:00:00.000001", *(P.choice("- ") + clock(P, 3, 6) for _ in MANY)))),
    "year": ("YEAR", ["0", "1901", "2155", *(str(P.randrange(1901, 2156)) for _ in MANY)]),
    "decimal": ("DECIMAL(10,2)", ["0", "-0.01", "99999999.99", "-99999999.99", *(number(P, 8, 2) for _ in MANY)]),
    "decimal_wide": (
        "DECIMAL(65,30)",
        ["9" * 35 + "." + "9" * 30, "-" + "9" * 35 + "." + "9" * 30, "0", *(number(P, 35, 30) for _ in MANY)],
    ),
    "decimal_whole": ("DECIMAL(65,0)", ["9" * 65, "-" + "9" * 65, *(number(P, 65, 0) for _ in MANY)]),
    "decimal_unsigned": ("DECIMAL(20,4) UNSIGNED", ["0", "9" * 16, *(number(P, 16, 4, ("",)) for _ in MANY)]),
    "decimal_filled": ("DECIMAL(9,3) UNSIGNED ZEROFILL", ["0", "7", *(number(P, 6, 3, ("",)) for _ in MANY)]),
    "binary": ("BINARY(4)", [f"x'{v}'" for v in ("", "00000000", "ffffffff", "20", *(octets(P, 4) for _ in MANY))]),
    "binary16": ("BINARY(16)", [f"x'{P.randbytes(16).hex()}'" for _ in MANY]),
    "varbinary": ("VARBINARY(9)", [f"x'{v}'" for v in ("", "00", "0000", "6100", "61", *(octets(P, 9) for _ in MANY))]),
    "char_binary": ("CHAR(4) CHARACTER SET binary", [f"x'{v}'" for v in ("", "20", *(octets(P, 4) for _ in MANY))]),
}
PAIRS = {
    "date_text": ("date", "VARCHAR(9) COLLATE utf8mb4_0900_ai_ci", ("'a'", "'Ä'", "'b '")),
    "bytes_decimal": ("varbinary", "DECIMAL(4,1)", ("-1.5", "0", "99.9")),
    "timestamp_number": ("timestamp", "BIGINT UNSIGNED", ("0", "18446744073709551615")),
    "time_date": ("time1", "DATE", ("'0000-00-00'", "'2020-00-01'")),
    "decimal_bytes_text": ("decimal", "BINARY(2), z VARCHAR(9) COLLATE utf8mb4_general_ci", ("x'00', 'a'", "'', 'B'")),
}


def shown_alone(value: str) -> bool:
    """Return whether an event shows a day as no other: zero dates are the epoch there, impossible ones an error."""
    try:
        return value == "'0000-00-00'" or (date.fromisoformat(value[1:-1]).year > 99 and value != "'1970-01-01'")
    except ValueError:
        return False


def made(root: Any, db: str, name: str, *, for_events: bool = False) -> None:
    """Create a table of this kind of key; every row is a row event of its own."""
    execute(root, f"USE `{db}`", LAX)
    if name in KINDS:
        kind, values = KINDS[name]
        execute(root, f"CREATE TABLE `{name}` (k {kind} NOT NULL, v INT NOT NULL, PRIMARY KEY (k))")
        values = [v for v in values if not for_events or name != "date" or shown_alone(v)]
        inserts = [f"INSERT IGNORE INTO `{name}` VALUES ({value}, {n})" for n, value in enumerate(values)]
    else:
        first, second, seconds = PAIRS[name]
        kind, values = KINDS[first]
        keys = "k, y" + (", z" if " z " in second else "")
        execute(root, f"CREATE TABLE `{name}` (k {kind}, y {second}, v INT NOT NULL, PRIMARY KEY ({keys}))")
        values = [v for v in values[:30] if not for_events or name != "date_text" or shown_alone(v)]
        pairs = [(a, b) for a in values for b in seconds]
        inserts = [f"INSERT IGNORE INTO `{name}` VALUES ({a}, {b}, {n})" for n, (a, b) in enumerate(pairs)]
    execute(root, *inserts, f"ANALYZE TABLE `{name}`")


def structure(root: Any, pipeline: Pipeline, db: str, table: str) -> Table:
    table_id = TableId(db, table)
    return captured_state(read_definitions(root, pipeline.cfg, [table_id])).tables[table_id]


def members(conn: Any, table: Table, chunk: SnapshotChunk) -> set[int]:
    with stored_dates_allowed(conn, chunk.kinds):
        return {r[0] for r in rows(conn, f"SELECT v FROM {table.id.quoted()} WHERE {chunk_condition(chunk)}")}


@pytest.mark.req("SNAP-14", "SNAP-51")
@pytest.mark.parametrize("name", [*KINDS, *PAIRS])
def test_chunks_hold_every_key_once(name: str, pipeline: Pipeline, root: Any, database: str) -> None:
    """The session that splits the table refuses zero dates."""
    made(root, database, name)
    table = structure(root, pipeline, database, name)
    with connect(pipeline.cfg.connection_settings()) as conn:
        execute(conn, STRICT)
        for size in (1, 7):
            chunks = split_table(conn, table, size)
            assert len(chunks) > 2 and [c.number for c in chunks] == list(range(len(chunks)))
            assert [SnapshotChunk.from_json(json.loads(json.dumps(c.to_json()))) for c in chunks] == chunks
            held = [members(conn, table, c) for c in chunks]
            whole = members(conn, table, SnapshotChunk(table.id, 0))
            assert sum(map(len, held)) == len(whole) and set.union(*held) == whole
            assert max(map(len, held)) <= size
        assert rows(conn, "SELECT @@sql_mode LIKE '%NO_ZERO_DATE%', @@time_zone") == [(1, "+05:30")]


@pytest.mark.parametrize(
    "key",
    ["FLOAT", "DOUBLE", "ENUM('z', 'a', 'm')", "SET('z', 'a', 'm')", "BIT(9)"],
)
def test_other_keys_make_a_table_one_chunk(key: str, pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, f"CREATE TABLE `{database}`.t (k {key} NOT NULL, n INT, PRIMARY KEY (k, n))")
    execute(root, f"INSERT INTO `{database}`.t VALUES " + ",".join(f"(1, {n})" for n in range(100)))
    table = structure(root, pipeline, database, "t")
    with connect(pipeline.cfg.connection_settings()) as conn:
        assert [c.columns for c in split_table(conn, table, 5)] == [()]


# -- interrupted and finished ------------------------------------------------------------------------------------------

RESUMED = ["date", "timestamp5", "time6", "decimal_wide", "binary", "varbinary", "date_text"]


@pytest.mark.req("SNAP-14")
def test_an_interrupted_snapshot_reads_every_row_once(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two chunks of each table are read before rows come, go, change and move between chunks, the others after it."""

    def by_number(waiting: list[SnapshotChunk], *more: Any) -> ChunkQueue:
        return ChunkQueue(sorted(waiting, key=lambda chunk: chunk.number), *more)

    monkeypatch.setattr(snapshot_driver, "ChunkQueue", by_number)
    pipeline.properties["snapshot.chunk.rows"] = "8"
    for name in RESUMED:
        made(root, database, name, for_events=True)
    fired = tmp_path / "fired"
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": "snapshot.after_chunk", "action": "raise", "nth": 2 * len(RESUMED), "fired": str(fired)}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    job = pipeline.prepare("snapshot")
    with pytest.raises(faults.FaultRaised):
        run_snapshot(job.spec, ThreadRunner(1), pipeline.log)
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    assert all(0 < len(pipeline.records(name)) < rows(root, f"SELECT COUNT(*) FROM `{name}`")[0][0] for name in RESUMED)
    execute(root, LAX)
    for name in RESUMED:
        execute(root, *(f"{statement}" for statement in changes(name)))
    assert pipeline.snapshot().complete
    for name in RESUMED:
        execute(root, f"UPDATE `{name}` SET v = v + 100000 WHERE v % 4 = 1")
    assert pipeline.drain() is not None
    for name in RESUMED:
        check(pipeline, root, name)


def changes(name: str) -> list[str]:
    """Return statements that change rows, two thirds of them in every part of the key."""
    swap = {
        "date": "k = '0100-01-01'",
        "timestamp5": "k = '2037-12-31 23:59:59.99999'",
        "time6": "k = '-838:59:58.5'",
        "decimal_wide": "k = -0.000000000000000000000000000001",
        "binary": "k = x'00000001'",
        "varbinary": "k = x'000000'",
        "date_text": "k = '0100-01-01', y = 'c'",
    }[name]
    return [
        f"DELETE FROM `{name}` WHERE v % 7 = 3",
        f"UPDATE `{name}` SET v = v + 1000 WHERE v % 3 = 0",
        f"UPDATE `{name}` SET {swap} WHERE v = (SELECT * FROM (SELECT MAX(v) FROM `{name}`) AS x)",
    ]


def check(pipeline: Pipeline, root: Any, name: str) -> None:
    """Each row is read at most once, its events continue what was read, and it ends as it is in the table."""
    records = pipeline.records(name)
    assert duplicates(records) == []
    shown: dict[str, Any] = {}
    read = 0
    for record in records:
        key, value = json.dumps(payload(record.key), sort_keys=True), payload(record.value)
        if value is None:
            assert shown.get(key) is None
            continue
        # Events of a row that no window has read yet come first.
        assert key not in shown or value["op"] == "r" or shown[key] == value["before"], (name, value)
        read += value["op"] == "r"
        shown[key] = value["after"]
    left = sorted(row["v"] for row in shown.values() if row is not None)
    assert left == sorted(r[0] for r in rows(root, f"SELECT v FROM `{name}`"))
    assert read
