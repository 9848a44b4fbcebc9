"""The bench writes the rows and the transactions that its workloads name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from benchlib.loading import change, load, make_database, make_tables
from benchlib.source import DATABASE, MySqlSource
from benchlib.workload import WORKLOADS


@pytest.fixture
def source(stack: Any) -> Iterator[MySqlSource]:
    found = MySqlSource(stack.mysql_host, stack.mysql_port, stack.root_user, stack.root_password)
    yield found
    found.run(f"DROP DATABASE IF EXISTS {DATABASE}", f"DROP DATABASE IF EXISTS {DATABASE}_seed")


@pytest.mark.parametrize(
    ("name", "rows", "transactions"),
    [
        *(("narrow", 250, 3), ("wide", 40, 40), ("one-transaction", 10_050, 1), ("compressed", 100, 1)),
        *(("snapshot", 100, 1), ("tables-10", 150, 20), ("tables-10", 100, 10), ("skipped-bytes", 300, 30)),
    ],
)
@pytest.mark.exhaustive(but="narrow|skipped|tables")
def test_rows_and_transactions(source: MySqlSource, name: str, rows: int, transactions: int) -> None:
    workload = replace(WORKLOADS[name], rows=rows)
    make_database(source, workload)
    make_tables(source, workload, workload.names)
    with source.connect() as conn, conn.cursor() as cursor:

        def ask(sql: str) -> Any:
            cursor.execute(sql)
            return cursor.fetchone()[0]

        before = ask("SELECT @@global.gtid_executed")
        load(source, workload)
        new = ask(f"SELECT GTID_SUBTRACT(@@global.gtid_executed, '{before}')")
        first, _, last = new.rpartition(":")[2].partition("-")
        # CREATE PROCEDURE and ANALYZE TABLE are transactions too; where there are many tables there is neither.
        others = 2 if workload.tables == 1 else 0
        assert int(last) - int(first) + 1 - others == transactions
        found = [ask(f"SELECT COUNT(DISTINCT id) FROM {DATABASE}.{table}") for table in workload.names]
        assert found == [rows // workload.tables] * workload.tables


@pytest.mark.parametrize(
    ("name", "left"), [("updates", (250, 250)), ("key-updates", (250, 1_000_000_250)), ("deletes", (0, None))]
)
def test_changes_of_all_rows(source: MySqlSource, name: str, left: tuple[int, int | None]) -> None:
    workload = replace(WORKLOADS[name], rows=250)
    make_database(source, workload)
    make_tables(source, workload, workload.names)
    load(source, workload)
    change(source, workload)
    with source.connect() as conn, conn.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*), MAX(id) FROM {DATABASE}.orders")
        assert cursor.fetchone() == left


@pytest.mark.parametrize(
    ("name", "key", "text"),
    [
        ("snapshot-string", "id", r"[0-9a-f]{8}-[0-9a-f]{24}"),
        ("snapshot-composite", "CONCAT(shop, '/', number)", r"1[0-2]?/00000[0-9]{3}|[02-9]/00000[0-9]{3}"),
        ("snapshot-skewed", "id", r"[0-9]{1,5}|[0-9]+000000000"),
    ],
)
@pytest.mark.exhaustive(but="composite")
def test_keys_of_snapshots(source: MySqlSource, name: str, key: str, text: str) -> None:
    """Keys differ also behind the rows that the seed has."""
    workload = replace(WORKLOADS[name], rows=12_000)
    make_database(source, workload)
    make_tables(source, workload, workload.names)
    load(source, workload)
    with source.connect() as conn, conn.cursor() as cursor:
        cursor.execute(f"SELECT {key} FROM {DATABASE}.orders")
        found = [str(row[0]) for row in cursor.fetchall()]
    assert len(set(found)) == 12_000
    assert all(re.fullmatch(text, each) for each in found)
