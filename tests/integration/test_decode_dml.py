"""Rows that change: what the events add up to, and what mysql-replication makes of the same binlog."""

from __future__ import annotations

import base64
import datetime
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from decode_rig import Decoded, binlog_end, connect, decode, execute, image_text, snapshot
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions

EPOCH = datetime.datetime(1970, 1, 1)


@pytest.fixture
def orders(stack: Any) -> Iterator[tuple[Any, str]]:
    conn = connect(stack)
    name = "c_test_dml"
    execute(conn, f"DROP DATABASE IF EXISTS {name}")
    execute(conn, f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    execute(conn, f"USE {name}")
    execute(conn, "SET SESSION time_zone = '+00:00'")
    execute(
        conn,
        "CREATE TABLE orders (id BIGINT NOT NULL, region VARCHAR(8) NOT NULL, customer INT, amount DECIMAL(10,2),"
        " note VARCHAR(200), made DATETIME(3), touched TIMESTAMP(6) NULL, day DATE, state ENUM('new','paid'),"
        " ratio DOUBLE, PRIMARY KEY (region, id))",
    )
    yield conn, name
    execute(conn, f"DROP DATABASE {name}")
    conn.close()


def work(conn: Any, rounds: int) -> None:
    """Insert, change, re-key and delete rows, many in one statement and one by one."""
    r = random.Random(5)
    for i in range(rounds):
        rows = [
            (
                i * 10 + n, r.choice(("eu", "ü中😀")), r.choice((None, r.randint(1, 9))),
                r.choice((None, r.randint(-(10**9), 10**9) / 100)),
                r.choice((None, "", 'q"\\', "x" * 200)), r.choice((None, "2026-02-03 04:05:06.789")),
                r.choice((None, "2026-02-03 04:05:06.700000")), r.choice((None, "2024-02-29")), r.choice((None, 1, 2)),
                r.choice((None, 0.1, 1e10)),
            )
            for n in range(10)
        ]  # fmt: skip
        with conn.cursor() as cursor:
            cursor.executemany("INSERT INTO orders VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s,%s)", rows)
        execute(conn, "UPDATE orders SET note = %s, state = 1 WHERE id %% 7 = %s", (f"round {i}", i % 7))
        execute(conn, "UPDATE orders SET id = id + 100000 WHERE id < 100000 AND id %% 9 = %s", (i % 9,))
        execute(conn, "DELETE FROM orders WHERE id %% 11 = %s", (i % 11,))


def fold(records: list[Decoded]) -> dict[bytes, str]:
    """Return the rows that are left after all records, as a compacted topic would hold them."""
    rows: dict[bytes, str] = {}
    for record in records:
        assert record.key_bytes is not None
        if record.value_bytes is None:
            assert record.key_bytes not in rows
        elif record.op == "d":
            del rows[record.key_bytes]
        else:
            assert (record.op == "c") == (record.key_bytes not in rows)
            if record.op == "u":
                assert image_text(record.value_bytes, "before") == rows[record.key_bytes]
            rows[record.key_bytes] = image_text(record.value_bytes)
    return rows


@pytest.mark.req("EVT-33", "EVT-28", "EVT-31")
def test_events_add_up_to_the_table(stack: Any, orders: tuple[Any, str]) -> None:
    conn, name = orders
    start = binlog_end(conn)
    work(conn, 30)
    left = fold(decode(stack, conn, name, start))
    read = {r.key_bytes: image_text(r.value_bytes) for r in snapshot(conn, name, "orders")}
    assert left == read and len(read) > 50


def micros(value: datetime.datetime | None) -> int | None:
    return None if value is None else (value - EPOCH) // datetime.timedelta(microseconds=1)


def opinion(values: dict[str, Any]) -> dict[str, Any]:
    """Return a row of mysql-replication as our events show it."""
    out = dict(values)
    out["made"] = None if values["made"] is None else micros(values["made"]) // 1000  # type: ignore[operator]
    if values["touched"] is not None:
        out["touched"] = values["touched"].isoformat(timespec="microseconds") + "Z"
    out["day"] = None if values["day"] is None else (values["day"] - EPOCH.date()).days
    return out


def ours(image: dict[str, Any] | None) -> dict[str, Any] | None:
    if image is None or image["amount"] is None:
        return image
    cents = int.from_bytes(base64.b64decode(image["amount"]), "big", signed=True)
    return {**image, "amount": Decimal(cents) / 100}


def test_mysql_replication_reads_the_same(stack: Any, orders: tuple[Any, str]) -> None:
    conn, name = orders
    start = binlog_end(conn)
    before = execute(conn, "SELECT @@GLOBAL.binlog_row_metadata")[0][0]
    execute(conn, "SET GLOBAL binlog_row_metadata = 'FULL'")
    try:
        work(conn, 5)
        second = second_opinion(stack, name, start)
    finally:
        execute(conn, f"SET GLOBAL binlog_row_metadata = '{before}'")
    first = [
        (r.op, ours(r.before), ours(r.after))
        for r in decode(stack, conn, name, start, DecoderOptions(key_columns=(), tombstones=False))
    ]
    assert first == second and len(first) > 50


def second_opinion(stack: Any, name: str, start: tuple[str, int]) -> list[Any]:
    reader = BinLogStreamReader(
        connection_settings={
            "host": stack.mysql_host,
            "port": stack.mysql_port,
            "user": stack.root_user,
            "passwd": stack.root_password,
        },
        server_id=987_002,
        log_file=start[0],
        log_pos=start[1],
        resume_stream=True,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_schemas=[name],
    )
    out: list[Any] = []
    for event in reader:
        for row in event.rows:
            if isinstance(event, WriteRowsEvent):
                out.append(("c", None, opinion(row["values"])))
            elif isinstance(event, DeleteRowsEvent):
                out.append(("d", opinion(row["values"]), None))
            else:
                out.append(("u", opinion(row["before_values"]), opinion(row["after_values"])))
    reader.close()
    return out
