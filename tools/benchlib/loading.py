"""Making the tables of a workload, and writing its rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from benchlib.shapes import Shape
from benchlib.source import DATABASE, SEED_ROWS, SIGNALS, MySqlSource, signal_table
from benchlib.workload import STRANGERS, Workload

_SEED = f"{DATABASE}_seed"
_STRANGERS = f"{DATABASE}.{STRANGERS}"


def make_tables(source: MySqlSource, workload: Workload, names: Sequence[str]) -> None:
    """Make empty tables."""
    source.run(*(f"CREATE TABLE {DATABASE}.{name} ({workload.shape.table_ddl})" for name in names))


def make_database(source: MySqlSource, workload: Workload) -> None:
    """Create the database again without tables, and a seed of rows from which loads are copied."""
    shape = workload.shape
    source.run(
        f"DROP DATABASE IF EXISTS {DATABASE}",
        f"CREATE DATABASE {DATABASE}",
        *(f"CREATE TABLE {DATABASE}.{signal_table(who)} ({SIGNALS})" for who in ("debezium", "ours")),
        f"DROP DATABASE IF EXISTS {_SEED}",
        f"CREATE DATABASE {_SEED}",
        f"CREATE TABLE {_SEED}.{shape.name} ({shape.ddl})",
        f"CREATE TABLE {_STRANGERS} ({shape.ddl})",
    )
    draw = random.Random(42)
    marks = ", ".join(["%s"] * (shape.columns.count(",") + 1))
    with source.connect() as conn, conn.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        for _ in range(0, SEED_ROWS, 1000):
            rows = [shape.row(draw) for _ in range(1000)]
            cursor.executemany(f"INSERT INTO {_SEED}.{shape.name} ({shape.columns}) VALUES ({marks})", rows)


def load(source: MySqlSource, workload: Workload) -> None:
    """Write the rows of a workload.

    Raises:
        RuntimeError: Another number of rows is there afterwards.
    """
    fill = _fill_one if workload.tables == 1 else _fill_many
    with source.connect() as conn, conn.cursor() as cursor:
        # Off by default, and unknown to MySQL before 8.0.20.
        if workload.compressed:
            cursor.execute("SET binlog_transaction_compression = ON")
        fill(cursor, workload)
        if workload.strangers and workload.seconds:
            cursor.execute(f"{_insert(workload.shape, STRANGERS, 'id')} WHERE id <= {workload.rows}")
        conflicts = 0
        for name in workload.names:
            cursor.execute(f"SELECT COUNT(*) FROM {DATABASE}.{name}")
            conflicts += cursor.fetchone()[0]
        if conflicts != workload.rows:
            raise RuntimeError(f"{workload.name} was to write {workload.rows} rows and wrote {conflicts}")


def _fill_one(cursor: Any, workload: Workload) -> None:
    """Let the server copy rows from the seed in a procedure of its own, so that no client has to be waited for."""
    shape, rows = workload.shape, workload.rows
    most = min(rows, SEED_ROWS)
    chunk = min(most, workload.a_transaction or SEED_ROWS)
    insert = _insert(shape, shape.name, f"done - done % {most} + id")
    which = f"id > done % {most} AND id <= done % {most} + {chunk} AND id <= done % {most} + {rows} - done"
    source = f"SELECT {shape.columns} FROM {_SEED}.{shape.name} WHERE {which};"
    other = f"INSERT INTO {_STRANGERS} ({shape.columns}) {source}" * (0 if workload.seconds else workload.strangers)
    _repeat(cursor, workload, "fill", f"{insert} WHERE {which};{other}", chunk)
    cursor.execute(f"ANALYZE TABLE {DATABASE}.{shape.name}")


def change(source: MySqlSource, workload: Workload) -> None:
    """Change the rows of a workload that are there."""
    if workload.change is not None:
        chunk = min(workload.rows, workload.a_transaction)
        sql = workload.change.sql.format(f"{DATABASE}.{workload.shape.name}")
        with source.connect() as conn, conn.cursor() as cursor:
            _repeat(cursor, workload, "change", f"{sql} WHERE id > done AND id <= done + {chunk};", chunk)


def _repeat(cursor: Any, workload: Workload, name: str, statements: str, chunk: int) -> None:
    """Run statements until ``done`` rows are all rows, in a procedure with a name."""
    cursor.execute(f"""CREATE PROCEDURE {_SEED}.{name}() BEGIN
        DECLARE done INT DEFAULT 0;
        {"" if workload.a_transaction else "START TRANSACTION;"}
        WHILE done < {workload.rows} DO {statements} SET done = done + {chunk}; END WHILE;
        COMMIT;
    END""")
    cursor.execute(f"CALL {_SEED}.{name}()")


def _fill_many(cursor: Any, workload: Workload) -> None:
    """Write a transaction to each table, and again until all rows are written."""
    shape, each = workload.shape, workload.rows // workload.tables
    chunk = min(each, workload.a_transaction or each, SEED_ROWS)
    for begun in range(0, each, chunk):
        first = begun % SEED_ROWS
        for name in workload.names:
            some = f"id > {first} AND id <= {first + min(chunk, each - begun)}"
            cursor.execute(f"{_insert(shape, name, f'{begun - first} + id')} WHERE {some}")


def _insert(shape: Shape, table: str, number: str) -> str:
    """Return a statement that copies rows from the seed, but for which ones.

    Args:
        shape: The table's shape.
        table: Its name.
        number: SQL of a row's number, from 1 on.
    """
    columns, values = shape.columns, shape.columns
    if shape.key is not None:
        columns = f"{shape.key.columns}, {columns}"
        values = f"{shape.key.values.format(n=f'({number})')}, {values}"
    return f"INSERT INTO {DATABASE}.{table} ({columns}) SELECT {values} FROM {_SEED}.{shape.name}"
