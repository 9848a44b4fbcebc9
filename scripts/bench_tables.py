"""Measure what a table costs that the stream meets for the first time, and one that it knows.

    .venv/bin/python scripts/bench_tables.py --tables 1000

needs the checkout's stack (scripts/stack up). All rows are written to ten tables first, then as many to new tables: the
difference, divided by their number, is what a new table costs. A further batch writes to each of the tables again. Jobs
run with their tasks as threads of this process, so its CPU is the product's; the brokers' CPU is printed too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from benchlib.process_tree import TICK  # noqa: E402
from pipelinelib.pipeline import Pipeline  # noqa: E402
from stacklib import ensure_stack  # noqa: E402

COLUMNS = (
    "id BIGINT PRIMARY KEY AUTO_INCREMENT, customer INT NOT NULL, state ENUM('new','paid','sent') NOT NULL, "
    "amount DECIMAL(12,2), note VARCHAR(80), made DATETIME(3), changed TIMESTAMP NULL"
)
VALUES = "(1, 'new', 12.34, 'some text', '2024-01-02 03:04:05.678', '2024-01-02 03:04:05')"
WARM_UP_TABLES = 10


@dataclass(frozen=True, slots=True)
class Cost:
    """Hold what something used.

    Args:
        cpu_s: CPU seconds of this process, user and system.
        brokers_s: CPU seconds of the brokers.
        wall_s: Seconds.
    """

    cpu_s: float
    brokers_s: float
    wall_s: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.cpu_s - other.cpu_s, self.brokers_s - other.brokers_s, self.wall_s - other.wall_s)

    def each(self, count: int) -> dict[str, float]:
        """Return milliseconds for each of a number of things."""
        used = {"cpu_ms": self.cpu_s, "brokers_cpu_ms": self.brokers_s, "wall_ms": self.wall_s}
        return {name: round(value / count * 1e3, 2) for name, value in used.items()}


class Meter:
    """Read the clocks.

    Args:
        folder: The stack's folder; its brokers are found by it.
    """

    def __init__(self, folder: Path) -> None:
        self._brokers = [pid for pid, line in _processes() if "kafka.Kafka" in line and str(folder) in line]

    def now(self) -> Cost:
        """Return what has been used until now."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        return Cost(own.ru_utime + own.ru_stime, sum(map(_cpu_s, self._brokers)), time.monotonic())


def _processes() -> Iterator[tuple[int, str]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield int(path.parent.name), path.read_text().replace("\0", " ")
        except OSError:
            continue


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Bench:
    """Write into tables and drain what was written.

    Args:
        stack: The servers.
        folder: The stack's folder.
        more: Further connector properties.
    """

    def __init__(self, stack: Any, folder: Path, more: dict[str, str]) -> None:
        self.name = f"bench_tables_{os.getpid()}"
        self._meter = Meter(folder)
        self._conn = pymysql.connect(
            host=stack.mysql_host,
            port=stack.mysql_port,
            user=stack.root_user,
            password=stack.root_password,
            autocommit=True,
            ssl_disabled=True,
        )
        self.run(f"CREATE DATABASE {self.name}")
        self.pipeline = Pipeline(
            {
                "topic.prefix": self.name,
                "database.hostname": stack.mysql_host,
                "database.port": str(stack.mysql_port),
                "database.user": stack.cdc_user,
                "database.password": stack.cdc_password,
                "database.ssl.mode": "disabled",
                "database.include.list": self.name,
                "kafka.bootstrap.servers": stack.kafka,
                "topic.creation.default.replication.factor": "1",
                "topic.creation.default.partitions": "1",
                **more,
            },
            slots=1,
        )

    def run(self, sql: str) -> None:
        """Run a statement."""
        with self._conn.cursor() as cursor:
            cursor.execute(sql)

    def create_tables(self, first: int, count: int) -> None:
        """Make tables."""
        for n in range(first, first + count):
            self.run(f"CREATE TABLE {self.name}.table_of_usual_length_{n:05d} ({COLUMNS})")

    def write(self, first: int, count: int, rows: int) -> None:
        """Write rows into each of some tables, each row as a transaction with a row event of its own."""
        for n in range(first, first + count):
            table = f"{self.name}.table_of_usual_length_{n:05d}"
            for _ in range(rows):
                self.run(f"INSERT INTO {table} (customer, state, amount, note, made, changed) VALUES {VALUES}")

    def drain(self) -> Cost:
        """Drain what is new and return what that cost."""
        before = self._meter.now()
        outcome = self.pipeline.drain()
        assert outcome is not None and outcome.complete
        return self._meter.now() - before

    def drop(self) -> None:
        """Drop the database with all its tables."""
        self.run(f"DROP DATABASE IF EXISTS {self.name}")

    def close(self) -> None:
        """Remove the tables, where that is still to be done; their topics go with the stack."""
        self.drop()
        self._conn.close()


def measure(bench: Bench, tables: int, rows: int) -> Iterator[dict[str, Any]]:
    """Yield what was measured, step by step.

    Args:
        bench: The stream.
        tables: Number of new tables.
        rows: Rows of each.
    """
    bench.create_tables(0, WARM_UP_TABLES)
    bench.pipeline.snapshot()
    bench.write(0, WARM_UP_TABLES, 1)
    bench.drain()
    bench.write(0, WARM_UP_TABLES, tables * rows // WARM_UP_TABLES)
    warm_up = bench.drain()
    yield {
        "step": f"as many events of {WARM_UP_TABLES} tables",
        "events": tables * rows,
        "wall_s": round(warm_up.wall_s, 1),
    }
    bench.create_tables(WARM_UP_TABLES, tables)
    bench.write(WARM_UP_TABLES, tables, rows)
    met = bench.drain()
    yield {"step": "a new table", "each": (met - warm_up).each(tables), "wall_s": round(met.wall_s, 1)}
    bench.write(WARM_UP_TABLES, tables, rows)
    again = bench.drain()
    yield {"step": "a known table with rows in the batch", "each": (again - warm_up).each(tables)}
    bench.write(0, 1, 1)
    one = bench.drain()
    yield {"step": "one row, with all known tables", "whole_batch": one.each(1)}
    bench.drop()
    gone = bench.drain()
    yield {"step": "DROP DATABASE of all of them", "whole_batch": gone.each(1)}


def main() -> None:
    """Run the steps and print a JSON line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--property", action="append", default=[])
    options = parser.parse_args()
    folder = Path(os.environ.get("MYSQL_CDC_STACK_DIR", ROOT / ".stack"))
    bench = Bench(ensure_stack(folder), folder, dict(p.split("=", 1) for p in options.property))
    try:
        for found in measure(bench, options.tables, options.rows):
            print(json.dumps(found), flush=True)
    finally:
        bench.close()


if __name__ == "__main__":
    main()
