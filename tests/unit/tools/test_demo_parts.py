"""The demo's other parts, as far as they need no server."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from demolib import family, report, shop
from demolib.airflow_run import Airflow, RunResult, latest_progress
from demolib.main import main
from demolib.verify import Result
from demolib.writer import ShopWorkload
from topiclib.checks import TableVerdict


def made(table: shop.ShopTable, size: shop.Size) -> list[tuple[Any, ...]]:
    return list(table.generate_rows(random.Random(f"{shop.SEED}/{table.name}"), size.of(table.rows), size))


def test_the_shop_is_the_same_at_every_run() -> None:
    size = shop.Size(0.01)
    for table in shop.TABLES:
        values = table.placeholder.count("%s") or len(table.columns)
        assert made(table, size) == made(table, size)
        assert all(len(row) == values for row in made(table, size)), table.name


def test_the_shop_has_what_the_demo_promises() -> None:
    assert 195_000 < sum(t.rows for t in shop.TABLES) < 205_000
    text = "\n".join(t.ddl for t in shop.TABLES)
    for part in (
        "JSON",
        "DECIMAL",
        "latin1",
        "cp1251",
        "DATETIME(6)",
        "TIMESTAMP(6)",
        "TIME(3)",
        "BLOB",
        "(order_id, line_no)",
    ):
        assert part in text
    assert [t.name for t in shop.TABLES if "PRIMARY KEY" not in t.ddl] == ["page_views"]
    views = made(next(t for t in shop.TABLES if t.name == "page_views"), shop.Size(0.05))
    assert len(set(views)) < len(views)


class Recorder:
    """Stand in for a connection: notes statements and how transactions end."""

    lastrowid = 77

    def __init__(self) -> None:
        self.log: list[str] = []

    def cursor(self) -> Recorder:
        return self

    def execute(self, sql: str, arguments: Any = None) -> int:
        self.log.append(sql)
        return 1

    def executemany(self, sql: str, rows: Any) -> int:
        self.log.append(sql)
        return len(rows)

    def begin(self) -> None:
        self.log.append("BEGIN")

    def commit(self) -> None:
        self.log.append("COMMIT")

    def rollback(self) -> None:
        self.log.append("ROLLBACK")


def test_the_writer_does_every_kind_and_ends_each_transaction() -> None:
    conn = Recorder()
    business = ShopWorkload(conn, shop.Size(0.01), random.Random(1))
    for _ in range(600):
        business.step()
    business.alter()
    assert len(business.done) == 14
    assert conn.log.count("BEGIN") == conn.log.count("COMMIT") + conn.log.count("ROLLBACK") == 600
    assert conn.log.count("ROLLBACK") == business.done["rolled back"]
    compressed = [i for i, sql in enumerate(conn.log) if sql.endswith("compression = ON")]
    assert len(compressed) == business.done["wholesale, compressed"]
    assert all(conn.log[i + 1] == "BEGIN" for i in compressed)
    for word in ("INSERT", "UPDATE", "DELETE", "REPLACE", "ALTER TABLE", "SET sku", "line_no + 100"):
        assert any(word in sql for sql in conn.log), word


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print("up", flush=True)
time.sleep(60)
"""


def test_a_family_is_ended_with_those_who_left_its_session(tmp_path: Path) -> None:
    tag = f"TMPDIR={tmp_path}"
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", STUBBORN]
    process = subprocess.Popen(command, env=env, start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    root = family.started(process.pid)
    assert root is not None
    deadline = time.monotonic() + 10
    while len(family.members(root, tag)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    everyone = family.members(root, tag)
    assert len(everyone) == 2 and root in everyone
    assert family.members(None, tag) == everyone
    assert family.end(root, tag, 0.3, lambda _: None) == 2
    assert process.wait(10) == -9
    process.stdout.close()
    assert not family.members(None, tag)
    assert family.end(root, tag, 0.1, lambda _: None) == 0


def test_airflow_gets_a_home_of_its_own_and_no_secret_of_the_servers(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", "/elsewhere")
    monkeypatch.setenv("MYSQL_CDC_MYSQL_PASSWORD", "hidden")
    airflow = Airflow(tmp_path / "home", lambda _: None)
    airflow.port = 4711
    env = airflow._environment([1, 2], {"spark_cdc": "text"}, "/java")
    assert env["AIRFLOW__CORE__DAGS_FOLDER"].endswith("/dags") and env["AIRFLOW_HOME"] == str(tmp_path / "home")
    assert env["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:4711/execution/"
    assert env["AIRFLOW__API__HOST"] == "127.0.0.1" and env["AIRFLOW_CONN_SPARK_CDC"] == "text"
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert "MYSQL_CDC_MYSQL_PASSWORD" not in env and env["JAVA_HOME"] == "/java"


def test_progress_shows_what_the_job_said_last() -> None:
    assert latest_progress([]) == "the task has not begun yet"
    assert latest_progress(["a", "[mysql-cdc] batch 2", "::endgroup::"]) == "batch 2"
    assert latest_progress(["a", "Spark-Submit cmd: ..."]) == "Spark is starting"
    assert latest_progress(["a", "b", "::endgroup::"]) == "b"
    assert latest_progress(["::group::x"]) == "the task has not begun yet"


def test_progress_is_not_cut_within_a_word() -> None:
    position = "binlog.000001:58043992"
    line = f"batch 2: 14,847 records, 887/s, at {position} of {position}, 23%, about 57 s left"
    assert latest_progress([f"[mysql-cdc] {line}"]) == line
    assert latest_progress([f"[mysql-cdc] {line}, {line}"]) == f"{line}, batch 2: 14,847 records, ..."


def test_the_report_names_every_table_and_its_verdict() -> None:
    good = TableVerdict("orders", 5, Counter("rrcut"), 2, 2, 7, 7, [100, 2000])
    bad = TableVerdict("stock", 1, Counter("r"), 1, 0, 7, 0)
    bad.report("rows", "('A',) is in the topic only")
    run = RunResult("mysql_cdc_drain", "r", "success", 12.0, 10.0, {"demo.shop.orders": 500})
    summary = report.Summary([run], {"seconds": 10, "transactions": {"rated": 50}}, Result((good, bad), (), 3.0), 99.0)
    text = "\n".join(report.lines(summary))
    assert "50 transactions in 10 s (5/s)" in text and "VERIFICATION FAILED" in text
    assert "stock: rows (1): ('A',) is in the topic only" in text
    assert any(line.startswith("orders") and line.endswith("ok") for line in text.splitlines())
    assert any(line.startswith("mysql_cdc_drain") and line.endswith(" 50") for line in text.splitlines())


def test_the_report_says_what_the_dag_found() -> None:
    offset = {"file": "binlog.000003", "pos": 4711}
    found = {"clean": True, "findings": {}, "tables_compared": 8, "rows": 200_005, "records": 210_000, "offset": offset}
    drain = RunResult("mysql_cdc_drain", "r", "success", 1.0, 1.0, {})
    clean = RunResult("mysql_cdc_verify", "r", "success", 1.0, 1.0, {}, verification=found)
    different = replace(clean, verification=found | {"clean": False, "findings": {"ghost": 2}})
    assert report.verification_lines([drain, clean, different]) == [
        "mysql_cdc_verify found nothing in 8 tables: 200,005 rows against 210,000 records, at binlog.000003:4711",
        "mysql_cdc_verify FOUND {'ghost': 2} in 8 tables: 200,005 rows against 210,000 records, at binlog.000003:4711",
    ]
    assert report.is_verified([drain, clean])
    assert not report.is_verified([drain]) and not report.is_verified([clean, different])


def test_nothing_verified_is_not_a_success() -> None:
    assert not Result((), (), 0.0).ok
    assert not Result((TableVerdict("t"),), ("the ALTER is missing",), 0.0).ok


@pytest.mark.parametrize("wrong", [["--drains", "1"], ["--rate", "0"], ["--scale", "-1"], ["--unknown"]])
def test_wrong_options_are_refused(wrong: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(wrong)
    assert "error:" in capsys.readouterr().err
