"""Random transactions, DDL, XA and crashes: whatever happened, every topic equals its table."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest
from kit.records import compacted, duplicates, require_chain
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised

SEEDS = (1, 2)
ROUNDS, STEPS = 3, 20
POINTS = ("plan.after_store", "writer.after_init", "writer.mid_batch", "writer.before_commit", "writer.after_commit")


class Source:
    """Change tables at random and remember nothing: the tables themselves are the truth.

    Args:
        root: A root connection.
        connect: Opens another one.
        database: The test's database.
        rng: Random numbers of the seed.
    """

    def __init__(self, root: Any, connect: Callable[[], Any], database: str, rng: random.Random) -> None:
        self._root, self._connect, self._db, self._rng = root, connect, database, rng
        self._added = 0
        self._prepared: list[str] = []
        execute(root, f"USE `{database}`")
        execute(
            root,
            "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(30), n BIGINT UNSIGNED)",
            "CREATE TABLE b (k1 VARCHAR(20) COLLATE utf8mb4_bin, k2 INT, d DECIMAL(9,3), PRIMARY KEY (k1, k2))",
            "CREATE TABLE c (id INT PRIMARY KEY AUTO_INCREMENT, a INT)",
        )
        for _ in range(30):
            self._change(root)

    def step(self) -> None:
        """Do one thing."""
        kinds = ("change",) * 8 + ("transaction",) * 5 + ("ddl", "rotate") + ("xa",) * 2 + ("decide",) * 2
        getattr(self, "_" + self._rng.choice(kinds))(self._root)

    def settle(self) -> None:
        """Decide what is prepared, so that nothing is locked at the end."""
        while self._prepared:
            self._decide(self._root)

    def _change(self, conn: Any) -> None:
        rng = self._rng
        i, j, word = rng.randrange(40), rng.randrange(40), rng.choice(("x", "ÿ語", "it''s", ""))
        statement = rng.choice(
            (
                f"REPLACE INTO a (id, v, n) VALUES ({i}, '{word}{j}', {rng.choice((0, 2**64 - 1))})",
                f"INSERT INTO a (id, v) VALUES ({i}, '{word}'), ({j + 40}, NULL) ON DUPLICATE KEY UPDATE v = 'dup {j}'",
                f"UPDATE a SET v = CONCAT('u', id) WHERE id % 7 = {i % 7}",
                f"UPDATE IGNORE a SET id = {j} WHERE id = {i}",
                f"DELETE FROM a WHERE id = {i}",
                f"REPLACE INTO b (k1, k2, d) VALUES ('{word}{i % 9}', {j % 5}, {rng.randrange(-99999, 99999) / 1000})",
                f"UPDATE IGNORE b SET k1 = CONCAT(k1, 'z'), d = -d WHERE k2 = {j % 5} AND LENGTH(k1) < 9",
                f"DELETE FROM b WHERE k2 = {j % 5} LIMIT 2",
                f"INSERT INTO c (a) SELECT id FROM a WHERE id % 5 = {i % 5} LIMIT 3",
                f"DELETE FROM c WHERE id % 11 = {i % 11}",
            )
        )
        try:
            execute(conn, statement)
        except pymysql.MySQLError as error:
            # A row that a prepared transaction has locked: the server has undone the statement.
            assert error.args[0] == 1205, (statement, error)

    def _transaction(self, conn: Any) -> None:
        execute(conn, "BEGIN")
        for n in range(self._rng.randrange(1, 6)):
            if self._rng.random() < 0.2:
                execute(conn, f"SAVEPOINT s{n}")
                self._change(conn)
                execute(conn, f"ROLLBACK TO SAVEPOINT s{n}")
            self._change(conn)
        execute(conn, self._rng.choice(("COMMIT", "COMMIT", "ROLLBACK")))

    def _ddl(self, conn: Any) -> None:
        if self._prepared:
            return  # it would wait for their metadata locks
        self._added += 1
        name, rng = f"x{self._added}", self._rng
        kind = rng.choice(("INT NOT NULL DEFAULT 7", "VARCHAR(9) CHARACTER SET latin1 DEFAULT 'é'", "DATETIME(3)"))
        execute(conn, f"ALTER TABLE {rng.choice('abc')} ADD COLUMN {name} {kind}{rng.choice(('', ' FIRST'))}")
        if rng.random() < 0.3:
            execute(conn, "RENAME TABLE b TO b_old, b_old TO b", "ALTER TABLE a MODIFY v VARCHAR(60)")

    def _rotate(self, conn: Any) -> None:
        execute(conn, "FLUSH BINARY LOGS")

    def _xa(self, conn: Any) -> None:
        xid, other = f"{self._db}-{self._rng.random()}", self._connect()
        execute(other, f"USE `{self._db}`", "SET SESSION innodb_lock_wait_timeout = 1", f"XA START '{xid}'")
        for _ in range(self._rng.randrange(1, 4)):
            self._change(other)
        execute(other, f"XA END '{xid}'")
        if self._rng.random() < 0.3:
            execute(other, f"XA COMMIT '{xid}' ONE PHASE")
        else:
            execute(other, f"XA PREPARE '{xid}'")
            self._prepared.append(xid)
        other.close()

    def _decide(self, conn: Any) -> None:
        if self._prepared:
            xid = self._prepared.pop(self._rng.randrange(len(self._prepared)))
            execute(conn, f"XA {self._rng.choice(('COMMIT', 'ROLLBACK'))} '{xid}'")


@pytest.mark.req("STRM-01", "STRM-09", "EVT-33", "FAULT-01")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.exhaustive
def test_every_topic_equals_its_table(
    seed: int,
    properties: dict[str, str],
    root: Any,
    stack: Any,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(seed)

    def connect() -> Any:
        return pymysql.connect(
            host=stack.mysql_host, port=stack.mysql_port, user=stack.root_user, password=stack.root_password,
            charset="utf8mb4", autocommit=True,
            ssl_disabled=True,
        )  # fmt: skip

    execute(root, "SET SESSION innodb_lock_wait_timeout = 1")
    execute(root, f"SET SESSION binlog_transaction_compression = {seed % 2}")
    source = Source(root, connect, database, rng)
    plain = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
    pipeline = Pipeline(
        properties
        | plain
        | {
            "cdc.id.header": "true",
            "drain.writers": str(rng.randrange(1, 4)),
            "drain.small.batch.bytes": "0",
            "topic.creation.default.partitions": str(rng.randrange(1, 4)),
            "commit.bytes": "2000",
            "bigint.unsigned.handling.mode": "precise",
            "decimal.handling.mode": "string",
            "snapshot.chunk.rows": "7",
        }
    )
    interrupted_snapshot(pipeline, source, tmp_path, monkeypatch, rng)
    for number in range(ROUNDS):
        for _ in range(STEPS):
            source.step()
        if number == ROUNDS - 1:
            source.settle()
        fault = {"point": rng.choice(POINTS), "fired": str(tmp_path / f"fired-{number}")}
        monkeypatch.setattr(faults, "_passed", {})
        monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
        with pytest.raises(FaultRaised):
            pipeline.drain()
        outcome = pipeline.drain()
        assert outcome is not None and outcome.complete
    assert pipeline.drain() is None
    for table in "abc":
        records = pipeline.records(table)
        assert duplicates(records) == []
        require_chain(records)
        check(root, database, table, compacted(records))


def interrupted_snapshot(
    pipeline: Pipeline, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    """Take a snapshot whose chunks are read in two views, with changes between them."""
    fault = {"point": "snapshot.after_chunk", "nth": rng.randrange(1, 4), "fired": str(tmp_path / "snapshot")}
    monkeypatch.setattr(faults, "_passed", {})
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    with pytest.raises(FaultRaised):
        pipeline.snapshot()
    for _ in range(STEPS):
        source.step()
    assert pipeline.snapshot().complete


def check(root: Any, database: str, table: str, found: dict[str, Any]) -> None:
    """Compare the rows that a compacted topic leaves with the table's, as MySQL's JSON shows both."""
    names = [r[0] for r in rows(root, f"SHOW COLUMNS FROM `{database}`.`{table}`")]
    wanted = [n for n in names if not n.startswith("x") and n != "n"]
    columns = ", ".join(f"CAST(`{n}` AS CHAR)" for n in wanted)
    expected = sorted(tuple(map(str, r)) for r in rows(root, f"SELECT {columns} FROM `{database}`.`{table}`"))
    assert sorted(tuple(str(row[n]) for n in wanted) for row in found.values()) == expected
