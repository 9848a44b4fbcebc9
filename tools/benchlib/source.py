"""The table that is measured, and who changes it meanwhile."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pymysql

DATABASE, TABLE = "bench", "orders"
SEED_ROWS = 10_000
SIGNALS = "id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL"
ORDERS = (
    "id BIGINT AUTO_INCREMENT PRIMARY KEY, customer_id INT, status VARCHAR(20), amount DECIMAL(10,2), "
    "note VARCHAR(200), created_at DATETIME(3), updated_at TIMESTAMP(3) NULL"
)
ORDER_COLUMNS = "customer_id, status, amount, note, created_at, updated_at"
_STATUS = ("new", "paid", "packed", "shipped", "delivered", "returned", "cancelled")
_WORDS = "alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike november oscar papa"


@dataclass(frozen=True, slots=True)
class MySqlSource:
    """Say how to reach the server, with the rights to make databases."""

    host: str
    port: int
    user: str
    password: str

    def connect(self) -> Any:
        """Return an open connection, autocommit, times in UTC."""
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            charset="utf8mb4",
            autocommit=True,
            init_command="SET time_zone = '+00:00'",
        )

    def version(self) -> str:
        """Return the server's version."""
        with self.connect() as conn, conn.cursor() as cursor:
            cursor.execute("SELECT VERSION()")
            return str(cursor.fetchone()[0])

    def run(self, *statements: str) -> None:
        """Run statements."""
        with self.connect() as conn, conn.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


def order(draw: random.Random) -> tuple[Any, ...]:
    """Return the values of a row without its key."""
    words = _WORDS.split()
    note = " ".join(draw.choice(words) for _ in range(draw.randint(3, 20)))
    amount = draw.randint(0, 999_999) / 100
    return draw.randint(1, 100_000), draw.choice(_STATUS), amount, note, _time(draw), _time(draw)


def _time(draw: random.Random) -> str:
    milliseconds = draw.randint(0, 240 * 86_400_000)
    return (datetime(2026, 1, 1) + timedelta(milliseconds=milliseconds)).isoformat(" ", "milliseconds")


def load(source: MySqlSource, rows: int) -> None:
    """Create the table again, with keys from 1 on, and a signal table for each of the two sides."""
    draw, name = random.Random(42), f"{DATABASE}.{TABLE}"
    signals = [f"CREATE TABLE {DATABASE}.{signal_table(who)} ({SIGNALS})" for who in ("debezium", "ours")]
    source.run(f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}")
    source.run(f"CREATE TABLE {name} ({ORDERS})", *signals)
    with source.connect() as conn, conn.cursor() as cursor:
        seed = [order(draw) for _ in range(min(rows, SEED_ROWS))]
        cursor.executemany(f"INSERT INTO {name} ({ORDER_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s)", seed)
        for begun in range(len(seed), rows, SEED_ROWS):
            due = min(SEED_ROWS, rows - begun)
            chosen = f"SELECT id + {begun}, {ORDER_COLUMNS} FROM {name} WHERE id <= {due}"
            cursor.execute(f"INSERT INTO {name} (id, {ORDER_COLUMNS}) {chosen}")
        cursor.execute(f"ANALYZE TABLE {name}")


def signal_table(who: str) -> str:
    """Return the name of somebody's signal table."""
    return f"signals_{who}"


@contextmanager
def changing_rows(
    source: MySqlSource, rows: int, rate: float, a_transaction: int = 1, tables: Sequence[str] = (TABLE,)
) -> Iterator[None]:
    """Change rows of the table in a process of its own.

    Args:
        source: The server.
        rows: Keys are drawn up to this.
        rate: Changes a second.
        a_transaction: Rows that a transaction changes, of keys that follow one another.
        tables: The table; where there are several, these take turns.
    """
    context = multiprocessing.get_context("spawn")
    writes, ending = context.Event(), context.Event()
    arguments = (source, tables, rows, rate, a_transaction, writes, ending)
    process = context.Process(target=_write, args=arguments, daemon=True)
    process.start()
    try:
        if not writes.wait(60):
            raise RuntimeError("the writer did not begin within 60 s")
        yield
        if not process.is_alive():
            raise RuntimeError(f"the writer ended with code {process.exitcode}")
    finally:
        ending.set()
        process.join(30)


def _write(
    source: MySqlSource, tables: Sequence[str], rows: int, rate: float, each: int, writes: Any, ending: Any
) -> None:
    with source.connect() as conn, conn.cursor() as cursor:
        # Never the changes of an earlier run: MySQL logs no update that leaves a row as it is.
        draw, begun, done = random.Random(time.time_ns()), time.monotonic(), 0
        while not ending.is_set():
            first = draw.randint(1, max(1, rows - each + 1))
            values = draw.choice(_STATUS), draw.randint(0, 999_999) / 100, _time(draw), first, first + each - 1
            changed = "status=%s, amount=%s, updated_at=%s"
            table = tables[done // each % len(tables)]
            cursor.execute(f"UPDATE {DATABASE}.{table} SET {changed} WHERE id BETWEEN %s AND %s", values)
            done += each
            writes.set()
            time.sleep(max(0.0, begun + done / rate - time.monotonic()))
