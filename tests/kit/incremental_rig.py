"""What the tests of ad-hoc snapshots share: ask for one, change rows while it is running, and what must hold."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pymysql
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import (
    IncrementalState,
    read_incremental_state,
    state_changes,
)
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import SnapshotRequest, active_initial_request, queue_scans
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from kit.records import compacted, duplicates, payload
from kit.sql import rows

FLAT = {
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "incremental.snapshot.chunk.size": "1",
}
"""One task reads sixteen chunks at once, so key ranges have sixteen rows."""


def books(pipeline: Pipeline) -> IncrementalState:
    """Return what the ledger says of ad-hoc snapshots."""
    return read_incremental_state(kafka_clients.ledger(pipeline.cfg).read() or LedgerState())


def unfinished_request(cfg: ConnectorConfig) -> str | None:
    """Return the request whose scans finish an interrupted snapshot; None when there is none."""
    return active_initial_request(read_incremental_state(kafka_clients.ledger(cfg).peek()).with_advanced_cursors())


def ask_for(pipeline: Pipeline, tables: Iterable[str], name: str = "s1", **more: Any) -> None:
    """Queue scans of tables of the pipeline's database, as a signal does."""
    db = pipeline.properties["database.include.list"]
    wanted = SnapshotRequest(name, more.pop("kind", "incremental"), [TableId(db, t) for t in tables], {}, **more)
    with JobLedger(pipeline.cfg) as job:
        before = read_incremental_state(job.read())
        job.put_all(state_changes(before, queue_scans(before, wanted, 1)))


def reads(pipeline: Pipeline, table: str, marker: str = "incremental") -> Counter[str]:
    """Return how often each key was read."""
    found = ((r.key, payload(r.value)) for r in pipeline.records(table))
    return Counter(
        str(key) for key, value in found if value and value["op"] == "r" and value["source"]["snapshot"] == marker
    )


def check_exact(pipeline: Pipeline, root: Any, table: str, *, known: bool = True) -> None:
    """Each event continues what its key's last one left; a row that is read again is what the topic says already.

    Args:
        pipeline: The pipeline.
        root: A connection.
        table: The table.
        known: Whether the topic has told of every row from its beginning.
    """
    records = pipeline.records(table)
    assert duplicates(records) == []
    last: dict[bytes | None, Any] = {}
    for record in records:
        value = payload(record.value)
        if value is None:
            assert last.get(record.key) is None
            continue
        if value["op"] == "r" and record.key in last:
            assert last[record.key] == value["after"], (record.key, "a row was read that the stream contradicts")
        elif known or record.key in last:
            assert last.get(record.key) == value["before"], (record.key, value["op"])
        last[record.key] = value["after"]
    db = pipeline.properties["database.include.list"]
    names = [r[0] for r in rows(root, f"SHOW COLUMNS FROM `{db}`.`{table}`")]
    expected = sorted(rows(root, f"SELECT * FROM `{db}`.`{table}`"))
    assert sorted(tuple(v[n] for n in names) for v in compacted(records).values()) == expected


class Writer(threading.Thread):
    """Change random rows of tables ``(id INT PRIMARY KEY, v INT)`` until it is stopped.

    Args:
        stack: The servers.
        db: The database.
        tables: The tables.
        keys: Keys are drawn below this.
        seed: Seed of the changes.
    """

    def __init__(self, stack: Any, db: str, tables: list[str], keys: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._arguments = {
            "host": stack.mysql_host,
            "port": stack.mysql_port,
            "user": stack.root_user,
            "password": stack.root_password,
            "autocommit": True,
            "ssl_disabled": True,
        }
        self._db, self._tables, self._keys, self._random = db, tables, keys, random.Random(seed)
        self._ending = threading.Event()
        self.changes = 0

    def run(self) -> None:
        """Write."""
        conn = pymysql.connect(**self._arguments)
        with conn, conn.cursor() as cursor:
            while not self._ending.is_set():
                draw, table = self._random, self._random.choice(self._tables)
                name, key, other = f"`{self._db}`.{table}", draw.randrange(self._keys), draw.randrange(self._keys)
                cursor.execute(
                    draw.choice(
                        [
                            f"INSERT INTO {name} VALUES ({key}, 1) ON DUPLICATE KEY UPDATE v = v + 1",
                            f"UPDATE {name} SET v = v + 1 WHERE id BETWEEN {key} AND {key + 3}",
                            f"DELETE FROM {name} WHERE id = {key}",
                            f"UPDATE IGNORE {name} SET id = {other} WHERE id = {key}",
                            f"REPLACE INTO {name} VALUES ({key}, {other})",
                        ]
                    )
                )
                self.changes += 1

    def stop(self) -> None:
        """Stop writing."""
        self._ending.set()
        self.join(20)
