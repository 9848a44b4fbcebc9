"""A binlog with rows of a signal table, for tests without a server."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from itertools import count
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from kit.binlog_bytes import lenenc

FILE = "b.000001"
UTF8MB4, LATIN1, BINARY = 45, 8, 63
COLUMNS = ((wt.VARCHAR, 168), (wt.VARCHAR, 128), (wt.BLOB, 2))
"""id VARCHAR(42), type VARCHAR(32), data TEXT in utf8mb4."""


class Binlog:
    """Write the events of a file one behind the other."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._pos = 4

    def add(self, kind: int, body: bytes) -> Event:
        start, self._pos = self._pos, self._pos + 100
        self.events.append(Event(kind, 0, 1, 0, FILE, start, self._pos, body, 0, len(body)))
        return self.events[-1]

    def begin(self) -> None:
        self.statement("BEGIN")

    def statement(self, sql: str) -> None:
        # Thread, duration, length of the database's name, error, length of the variables; then the database.
        self.add(c.QUERY_EVENT, struct.pack("<IIBHH", 9, 0, 0, 0, 0) + b"\0" + sql.encode())

    def commit(self) -> None:
        self.add(c.XID_EVENT, b"\0" * 8)

    def table(self, number: int = 1, db: str = "ops", name: str = "signals", **more: Any) -> None:
        self.add(c.TABLE_MAP_EVENT, table_map_body(number, db, name, **more))

    def insert(self, *rows: tuple[str | None, ...], number: int = 1, kind: int = c.WRITE_ROWS_EVENT_V2) -> None:
        self.add(kind, rows_body(number, rows))

    def delete(self, *rows: tuple[str | None, ...]) -> None:
        self.insert(*rows, kind=c.DELETE_ROWS_EVENT_V2)

    def transaction(self, *rows: tuple[str | None, ...]) -> None:
        self.begin()
        self.table()
        self.insert(*rows)
        self.commit()


def table_map_body(
    number: int, db: str, name: str, *, columns: tuple[tuple[int, int], ...] = COLUMNS, charset: int | None = UTF8MB4
) -> bytes:
    sizes = {wt.VARCHAR: 2, wt.STRING: 2, wt.BLOB: 1, wt.LONG: 0}
    meta = b"".join(value.to_bytes(sizes[code], "little") for code, value in columns)
    body = number.to_bytes(6, "little") + b"\1\0"
    for text in (db, name):
        body += bytes([len(text)]) + text.encode() + b"\0"
    body += lenenc(len(columns)) + bytes(code for code, _ in columns) + lenenc(len(meta)) + meta
    body += b"\xff" * ((len(columns) + 7) // 8)
    return body if charset is None else body + b"\2" + lenenc(1) + lenenc(charset)


def rows_body(number: int, rows: tuple[tuple[str | bytes | None, ...], ...]) -> bytes:
    width = len(rows[0])
    body = number.to_bytes(6, "little") + b"\1\0" + b"\2\0" + lenenc(width) + ((1 << width) - 1).to_bytes(1, "little")
    for row in rows:
        body += sum(1 << i for i, value in enumerate(row) if value is None).to_bytes(1, "little")
        for i, value in enumerate(row):
            if value is not None:
                data = value if isinstance(value, bytes) else value.encode()
                body += len(data).to_bytes(2 if i == 2 else 1, "little") + data
    return body


def log_signals(*ids: str) -> list[tuple[str, str, str]]:
    return [(id_, "log", json.dumps({"message": f"for {id_}"})) for id_ in ids]


def numbers() -> Iterator[str]:
    return (f"s{n}" for n in count(1))
