"""What the bench runs: tables, how their rows come to the binlog, and in which form both write them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchlib.source import DATABASE, ORDER_COLUMNS, ORDERS, SEED_ROWS, Source, order

_WIDE = (
    "id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL, tiny TINYINT, small SMALLINT UNSIGNED, big BIGINT, "
    "ubig BIGINT UNSIGNED, flag TINYINT(1) NOT NULL DEFAULT 0, f DOUBLE, price DECIMAL(12,4), qty DECIMAL(20,0), "
    "c CHAR(120) NOT NULL, pad VARCHAR(60) NOT NULL, email VARCHAR(100), title VARCHAR(255), "
    "state ENUM('a','b','c','d'), doc JSON, body TEXT, day DATE, made DATETIME(6), touched TIMESTAMP NULL, KEY (k)"
)
_WIDE_COLUMNS = (
    "k, tiny, small, big, ubig, flag, f, price, qty, c, pad, email, title, state, doc, body, day, made, touched"
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 "


def wide_row(draw: random.Random) -> tuple[Any, ...]:
    """Return the values of a row of twenty columns without its key."""

    def text(size: int) -> str:
        return "".join(draw.choices(_LETTERS, k=size))

    doc = (
        f'{{"a": {draw.getrandbits(40)}, "name": "{text(12)}", "tags": ["{text(4)}", "{text(6)}"], '
        f'"nest": {{"x": {draw.random() * 1000:.3f}, "ok": {draw.choice(("true", "false", "null"))}}}}}'
    )
    day = f"2026-{draw.randint(1, 12):02d}-{draw.randint(1, 28):02d}"
    clock = f"{draw.randint(4, 23):02d}:{draw.randint(0, 59):02d}:{draw.randint(0, 59):02d}"
    return (
        draw.randint(1, 200_000), draw.randint(-128, 127), draw.randint(0, 65535), draw.getrandbits(63),
        draw.getrandbits(64), draw.randint(0, 1), draw.random() * 1e6, draw.randint(0, 10**12 - 1) / 10**4,
        draw.randint(0, 10**19), text(119) + "x", text(59) + "x", f"{draw.getrandbits(40):x}@example.com",
        text(draw.randint(10, 80)), draw.choice("abcd"), doc, text(draw.randint(50, 400)), day,
        f"{day} {clock}.{draw.randint(0, 999_999):06d}", f"{day} {clock}",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """Describe a table.

    Args:
        name: Its name.
        ddl: Its columns.
        columns: Columns that a row fills.
        row: Makes a row.
    """

    name: str
    ddl: str
    columns: str
    row: Callable[[random.Random], tuple[Any, ...]]


NARROW = Shape("orders", ORDERS, ORDER_COLUMNS, order)
WIDE = Shape("wide", _WIDE, _WIDE_COLUMNS, wide_row)


@dataclass(frozen=True, slots=True)
class Workload:
    """Describe one measurement.

    Args:
        name: Its name on the command line and in results.
        about: What it is, for the report.
        shape: The table.
        rows: Rows at scale 1.
        a_transaction: Rows of a transaction; 0 for all rows in one.
        snapshot: Whether rows are read by a snapshot; otherwise they are drained from the binlog.
        schemas: Whether records carry their schemas.
        compressed: Whether transactions are compressed in the binlog.
        ours: Further properties of this provider.
        target: Greatest share of Debezium's CPU time an event, start counted; None where none is set.
    """

    name: str
    about: str
    shape: Shape
    rows: int
    a_transaction: int = 100
    snapshot: bool = False
    schemas: bool = False
    compressed: bool = False
    ours: Mapping[str, str] = field(default_factory=dict)
    target: float | None = None

    @property
    def table(self) -> str:
        """Return the table's name with its database."""
        return f"{DATABASE}.{self.shape.name}"


_ALL = (
    Workload("narrow", "7 columns, 100 rows in a transaction", NARROW, 1_000_000, target=1 / 6),
    Workload("narrow-schemas", "the same, schemas in each record", NARROW, 1_000_000, schemas=True, target=1 / 10),
    Workload("narrow-single", "7 columns, one row in a transaction", NARROW, 300_000, 1),
    Workload("one-transaction", "7 columns, all rows in one transaction", NARROW, 1_000_000, 0),
    Workload("compressed", "7 columns, compressed transactions of 100 rows", NARROW, 1_000_000, compressed=True),
    Workload("wide", "20 columns, one row in a transaction", WIDE, 200_000, 1, target=1 / 10),
    Workload("wide-schemas", "the same, schemas in each record", WIDE, 200_000, 1, schemas=True, target=1 / 10),
    Workload("snapshot", "7 columns, read by a snapshot", NARROW, 1_000_000, snapshot=True, target=1 / 6),
    Workload("snapshot-wide", "20 columns, read by a snapshot", WIDE, 200_000, snapshot=True),
)
WORKLOADS = {w.name: w for w in _ALL}


def make_table(source: Source, shape: Shape) -> None:
    """Make the database anew with an empty table, and a seed of rows that loads are copied from.

    Args:
        source: The server.
        shape: The table.
    """
    source.run(
        f"DROP DATABASE IF EXISTS {DATABASE}",
        f"CREATE DATABASE {DATABASE}",
        f"CREATE TABLE {DATABASE}.{shape.name} ({shape.ddl})",
        f"CREATE DATABASE IF NOT EXISTS {DATABASE}_seed",
        f"DROP TABLE IF EXISTS {DATABASE}_seed.{shape.name}",
        f"CREATE TABLE {DATABASE}_seed.{shape.name} ({shape.ddl})",
    )
    draw = random.Random(42)
    marks = ", ".join(["%s"] * (shape.columns.count(",") + 1))
    with source.connect() as conn, conn.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        for _ in range(0, SEED_ROWS, 1000):
            rows = [shape.row(draw) for _ in range(1000)]
            cursor.executemany(f"INSERT INTO {DATABASE}_seed.{shape.name} ({shape.columns}) VALUES ({marks})", rows)


def load(source: Source, workload: Workload, rows: int) -> None:
    """Write the rows of a workload.

    The server copies them from the seed in a procedure of its own, so that no client has to be waited for.

    Args:
        source: The server.
        workload: The workload.
        rows: Their number.
    """
    shape = workload.shape
    most = min(rows, SEED_ROWS)
    chunk = min(most, workload.a_transaction or SEED_ROWS)
    insert = (
        f"INSERT INTO {workload.table} ({shape.columns}) SELECT {shape.columns} FROM {DATABASE}_seed.{shape.name} "
        f"WHERE id > done % {most} AND id <= done % {most} + {chunk} AND id <= done % {most} + {rows} - done"
    )
    whole = not workload.a_transaction
    body = f"""CREATE PROCEDURE {DATABASE}_seed.fill() BEGIN
        DECLARE done INT DEFAULT 0;
        {"START TRANSACTION;" if whole else ""}
        WHILE done < {rows} DO {insert}; SET done = done + {chunk}; END WHILE;
        COMMIT;
    END"""
    with source.connect() as conn, conn.cursor() as cursor:
        cursor.execute(f"SET binlog_transaction_compression = {'ON' if workload.compressed else 'OFF'}")
        cursor.execute(f"DROP PROCEDURE IF EXISTS {DATABASE}_seed.fill")
        cursor.execute(body)
        cursor.execute(f"CALL {DATABASE}_seed.fill()")
        cursor.execute(f"ANALYZE TABLE {workload.table}")
        cursor.execute(f"SELECT COUNT(*) FROM {workload.table}")
        if (found := cursor.fetchone()[0]) != rows:
            raise RuntimeError(f"{workload.name} was to write {rows} rows and wrote {found}")
