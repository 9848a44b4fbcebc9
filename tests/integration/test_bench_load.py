"""The bench writes the rows and the transactions that its workloads name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from benchlib.source import Source
from benchlib.workload import WORKLOADS, load, make_table


@pytest.mark.parametrize(
    ("name", "rows", "transactions"),
    [("narrow", 250, 3), ("wide", 40, 40), ("one-transaction", 10_050, 1), ("compressed", 100, 1), ("snapshot", 1, 1)],
)
def test_rows_and_transactions(stack: Any, name: str, rows: int, transactions: int) -> None:
    source = Source(stack.mysql_host, stack.mysql_port, stack.root_user, stack.root_password)
    workload = replace(WORKLOADS[name])
    make_table(source, workload.shape)
    with source.connect() as conn, conn.cursor() as cursor:

        def ask(sql: str) -> Any:
            cursor.execute(sql)
            return cursor.fetchone()[0]

        before = ask("SELECT @@global.gtid_executed")
        load(source, workload, rows)
        new = ask(f"SELECT GTID_SUBTRACT(@@global.gtid_executed, '{before}')")
        first, _, last = new.rpartition(":")[2].partition("-")
        # DROP and CREATE PROCEDURE, and ANALYZE TABLE, are transactions too.
        assert int(last) - int(first) + 1 - 3 == transactions
        assert ask(f"SELECT COUNT(DISTINCT id) FROM {workload.table}") == rows
        cursor.execute("DROP DATABASE bench")
        cursor.execute("DROP DATABASE bench_seed")
