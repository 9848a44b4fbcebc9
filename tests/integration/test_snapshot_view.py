"""The snapshot's consistent view under load, its chunks, and its resumption, on a real server."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest
from kit.records import compacted, duplicates, payload, require_chain
from kit.sql import execute, rows
from kit.window_rig import Places, connection
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.errors import SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.snapshot_records import captured_state
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import read_definitions
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import SnapshotChunk, chunk_condition, split_table
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import run_snapshot

ACCOUNTS = 300
WRITERS = 2
GRANTS = "SELECT, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT"
PROPERTIES = {
    "cdc.id.header": "true",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}


@pytest.fixture
def account(root: Any, unique: str) -> Iterator[Callable[[str], dict[str, str]]]:
    """Return a function that makes an account with some privileges and returns its properties."""

    def make(grants: str) -> dict[str, str]:
        execute(root, f"CREATE USER '{unique}'@'%' IDENTIFIED BY 'pass-{unique}'")
        execute(root, f"GRANT {grants} ON *.* TO '{unique}'@'%'")
        return {"database.user": unique, "database.password": f"pass-{unique}"}

    yield make
    execute(root, f"DROP USER IF EXISTS '{unique}'@'%'")


# -- the view while others write --------------------------------------------------------------------------------------


def open_accounts(root: Any, db: str) -> None:
    values = ",".join(f"({i}, 100)" for i in range(ACCOUNTS))
    execute(
        root,
        f"CREATE TABLE `{db}`.credit (id INT PRIMARY KEY, v INT NOT NULL)",
        f"CREATE TABLE `{db}`.debit (id INT PRIMARY KEY, v INT NOT NULL)",
        f"CREATE TABLE `{db}`.tally (w INT PRIMARY KEY, n INT NOT NULL)",
        f"CREATE TABLE `{db}`.moves (id BIGINT PRIMARY KEY AUTO_INCREMENT, w INT NOT NULL)",
        f"INSERT INTO `{db}`.credit VALUES {values}",
        f"INSERT INTO `{db}`.debit VALUES {values}",
        f"INSERT INTO `{db}`.tally VALUES " + ",".join(f"({w}, 0)" for w in range(WRITERS)),
    )


@contextmanager
def movers(stack: Any, db: str) -> Iterator[list[int]]:
    """Let writers move amounts between two tables and count each move in two others; yield what each has done."""
    stop, done, failed = threading.Event(), [0] * WRITERS, list[BaseException]()

    def work(writer: int) -> None:
        pick = random.Random(writer)
        conn = pymysql.connect(
            host=stack.mysql_host,
            port=stack.mysql_port,
            user=stack.root_user,
            password=stack.root_password,
            ssl_disabled=True,
        )
        try:
            while not stop.is_set():
                amount, source, target = pick.randint(1, 9), *pick.sample(range(writer, ACCOUNTS, WRITERS), 2)
                execute(
                    conn,
                    f"UPDATE `{db}`.credit SET v = v - {amount} WHERE id = {source}",
                    f"INSERT INTO `{db}`.moves (w) VALUES ({writer})",
                    f"UPDATE `{db}`.debit SET v = v + {amount} WHERE id = {target}",
                    f"UPDATE `{db}`.tally SET n = n + 1 WHERE w = {writer}",
                )
                conn.commit()
                done[writer] += 1
                stop.wait(0.001)
        except BaseException as error:
            failed.append(error)
        finally:
            conn.close()

    threads = [threading.Thread(target=work, args=(w,)) for w in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failed == []


@pytest.mark.req(
    "SNAP-09",
    "SNAP-12",
    "SNAP-14",
    "SNAP-19",
    "SNAP-10",
    "SNAP-11",
    "SNAP-20",
    "SNAP-21",
    "SNAP-23",
    "SNAP-24",
    "SNAP-26",
)
@pytest.mark.parametrize("lock", ["global", "tables"])
@pytest.mark.exhaustive(but="tables")
def test_all_tasks_see_the_same_moment_while_others_write(
    lock: str, pipeline: Pipeline, stack: Any, root: Any, database: str, account: Any
) -> None:
    """Without RELOAD the lock is taken table by table, and the view is as exact."""
    pipeline.properties["snapshot.chunk.rows"] = "60"
    if lock == "tables":
        pipeline.properties |= account(GRANTS + ", LOCK TABLES")
    open_accounts(root, database)
    with movers(stack, database) as done:
        before = sum(done)
        assert pipeline.snapshot().complete
        assert sum(done) > before, "nobody wrote meanwhile"
        assert pipeline.drain() is not None
    view = [line for line in pipeline.lines if line.startswith("consistent view")]
    assert len(view) == 1 and re.fullmatch(rf"consistent view at \S+:\d+\S*, lock={lock}, held [\d.]+ ms", view[0])
    assert any("with 3 task(s)" in line for line in pipeline.lines)
    seen = {t: [payload(r.value) for r in pipeline.records(t)] for t in ("credit", "debit", "tally", "moves")}
    read = {t: [v["after"] for v in values if v["op"] == "r"] for t, values in seen.items()}
    assert [len(read[t]) for t in ("credit", "debit", "tally")] == [ACCOUNTS, ACCOUNTS, WRITERS]
    assert sum(row["v"] for t in ("credit", "debit") for row in read[t]) == 200 * ACCOUNTS
    assert sum(row["n"] for row in read["tally"]) == len(read["moves"])
    pipeline.drain()
    for table in seen:
        check_chain(pipeline, root, database, table)


def test_a_lock_grant_lost_after_planning_is_named_by_the_job_itself(
    pipeline: Pipeline, root: Any, database: str, account: Any, unique: str
) -> None:
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1)")
    pipeline.properties |= account(GRANTS + ", LOCK TABLES")
    job = pipeline.prepare("snapshot")
    execute(root, f"REVOKE LOCK TABLES ON *.* FROM '{unique}'@'%'")
    with pytest.raises(SourcePrivilegeError) as caught:
        run_snapshot(job.spec, ThreadRunner(2), pipeline.log)
    assert not caught.value.can_retry and "RELOAD" in caught.value.remedy
    outcome = pipeline.settle()
    assert not outcome.complete and type(outcome.error) is SourcePrivilegeError
    assert pipeline.records("t") == []


def check_chain(pipeline: Pipeline, root: Any, db: str, table: str) -> None:
    """No row is read twice, each event continues what its key's last one left, and the end equals the table."""
    records = pipeline.records(table)
    assert duplicates(records) == []
    require_chain(records)
    names = [r[0] for r in rows(root, f"SHOW COLUMNS FROM `{db}`.`{table}`")]
    expected = [dict(zip(names, row, strict=True)) for row in rows(root, f"SELECT * FROM `{db}`.`{table}`")]
    order = lambda row: json.dumps(row, sort_keys=True)  # noqa: E731
    assert sorted(compacted(records).values(), key=order) == sorted(expected, key=order)


# -- chunks -----------------------------------------------------------------------------------------------------------

KEYED = {
    "string_ci": "(k VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v INT)",
    "string_pad": "(k VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, v INT)",
    "string_bin": "(k CHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, v INT)",
    "latin1": "(k VARCHAR(40) CHARACTER SET latin1 PRIMARY KEY, v INT)",
    "composite": "(a INT, k VARCHAR(40) COLLATE utf8mb4_0900_ai_ci, v INT, PRIMARY KEY (a, k))",
    "text_first": "(k VARCHAR(40) CHARACTER SET latin1, a SMALLINT, v INT, PRIMARY KEY (k, a))",
    "three": "(a INT, b TINYINT UNSIGNED, c INT, v INT, PRIMARY KEY (b, a, c))",
    "half": "(a INT, d DATETIME, v INT, PRIMARY KEY (a, d))",
    "signed": "(a BIGINT PRIMARY KEY, v INT)",
    "unsigned": "(a BIGINT UNSIGNED PRIMARY KEY, v INT)",
    "unique_only": "(k VARCHAR(40) CHARACTER SET latin1 NOT NULL, v INT, UNIQUE KEY (k))",
}
LETTERS = "aAbBäÄéÉßs zZ'\"\\%_0ñÿ"


def make_rows(table: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Return rows with every sort of key; some of them are equal in the column's collation."""
    pick = random.Random(f"{table}/{seed}")
    extra = "" if table in ("latin1", "text_first", "unique_only") else "語😀\t"
    whole = {
        "unsigned": lambda: pick.choice((pick.randrange(100), 2**63 + pick.randrange(100), 2**64 - 1)),
        "signed": lambda: pick.choice((pick.randrange(-50, 50), -(2**63), 2**63 - 1)),
    }.get(table, lambda: pick.randrange(-9, 9))
    return [
        {
            "k": "".join(pick.choices(LETTERS + extra, k=pick.randrange(0, 4))).rstrip(" "),
            "a": whole(),
            "b": pick.randrange(200),
            "c": pick.randrange(5),
            "d": f"2020-01-{pick.randrange(1, 28):02} 00:00:00",
            "v": i,
        }
        for i in range(count)
    ]


def insert(root: Any, db: str, table: str, new: list[dict[str, Any]]) -> None:
    names = [r[0] for r in rows(root, f"SHOW COLUMNS FROM `{db}`.`{table}`")]
    marks = ", ".join(["%s"] * len(names))
    with root.cursor() as cursor:
        cursor.executemany(
            f"INSERT IGNORE INTO `{db}`.`{table}` VALUES ({marks})", [tuple(row[n] for n in names) for row in new]
        )
        # InnoDB counts a fresh table again in the background, and may miss rows: there would be one chunk.
        cursor.execute(f"ANALYZE NO_WRITE_TO_BINLOG TABLE `{db}`.`{table}`")


def structure(root: Any, pipeline: Pipeline, db: str, table: str) -> Table:
    table_id = TableId(db, table)
    return captured_state(read_definitions(root, pipeline.cfg, [table_id])).tables[table_id]


def members(root: Any, table: Table, chunk: SnapshotChunk) -> list[tuple[Any, ...]]:
    names = ", ".join(f"`{c}`" for c in table.key_columns())
    return rows(root, f"SELECT {names} FROM {table.id.quoted()} WHERE {chunk_condition(chunk)}")


@pytest.mark.req("SNAP-14", "SNAP-51")
@pytest.mark.parametrize("name", KEYED)
@pytest.mark.exhaustive(but="string_pad|composite|text_first|three")
def test_chunks_hold_every_row_once(name: str, pipeline: Pipeline, root: Any, database: str) -> None:
    """Also rows that came after the table was split."""
    execute(root, f"CREATE TABLE `{database}`.{name} {KEYED[name]}")
    insert(root, database, name, make_rows(name, 150, 1))
    table = structure(root, pipeline, database, name)
    cuts = {size: split_table(root, table, size) for size in (1, 2, 3, 7, 40)}
    insert(root, database, name, make_rows(name, 60, 2))
    for size, chunks in cuts.items():
        assert len(chunks) > 1 or size == 40
        assert [c.number for c in chunks] == list(range(len(chunks)))
        assert [c.last for c in chunks] == [False] * (len(chunks) - 1) + [True]
        held = [members(root, table, c) for c in chunks]
        found = sorted(key for part in held for key in part)
        assert found == sorted(members(root, table, SnapshotChunk(table.id, 0))), f"chunk size {size}"


def test_a_table_that_was_just_filled_is_cut(pipeline: Pipeline, root: Any, database: str) -> None:
    """The server remembers row counts for a day (information_schema_stats_expiry); chunks need today's."""
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)")
    table = structure(root, pipeline, database, "t")
    with connect(pipeline.cfg.connection_settings()) as conn:
        assert len(split_table(conn, table, 50)) == 1
        execute(root, f"INSERT INTO `{database}`.t VALUES " + ",".join(f"({i}, 0)" for i in range(1000)))
        assert 10 <= len(split_table(conn, table, 50)) <= 40


# -- interrupted -------------------------------------------------------------------------------------------------------


def interrupt(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, fired: Path, nth: int = 2) -> None:
    """Run a snapshot that fails after some chunks are committed."""
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": "snapshot.after_chunk", "action": "raise", "nth": nth, "fired": str(fired)}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    job = pipeline.prepare("snapshot")
    with pytest.raises(faults.FaultRaised):
        run_snapshot(job.spec, ThreadRunner(1), pipeline.log)
    assert fired.exists()
    monkeypatch.delenv("MYSQL_CDC_FAULT")


RESUMED = ("string_ci", "string_pad", "latin1", "composite", "text_first", "unsigned", "signed", "unique_only")


@pytest.mark.req("SNAP-14")
@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.exhaustive(but="string_ci|composite|^signed")
def test_resumed_snapshot_and_drain_continue_each_key_exactly(
    name: str, pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rows change, move between chunks, come and go while the snapshot is interrupted."""
    pipeline.properties |= {"snapshot.chunk.rows": "12"}
    full = f"`{database}`.{name}"
    execute(root, f"CREATE TABLE {full} {KEYED[name]}")
    insert(root, database, name, make_rows(name, 80, 1))
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    change_keys(root, full, name)
    insert(root, database, name, make_rows(name, 60, 3))
    assert pipeline.snapshot().complete
    execute(root, f"UPDATE {full} SET v = v + 5000 WHERE v % 2 = 0")
    assert pipeline.drain() is not None
    check_chain_signed(pipeline, root, database, name)


def change_keys(root: Any, full: str, name: str) -> None:
    execute(root, f"UPDATE {full} SET v = v + 1000 WHERE v % 3 = 0", f"DELETE FROM {full} WHERE v % 7 = 1")
    if "k" in KEYED[name].split(" VARCHAR")[0]:
        # Equal in the collation, yet another key in Kafka; and keys that move to the other end of the table.
        execute(
            root,
            f"UPDATE {full} SET k = IF(BINARY k = BINARY UPPER(k), LOWER(k), UPPER(k)) WHERE v % 5 = 0",
            f"UPDATE IGNORE {full} SET k = CONCAT('zz', k) WHERE v % 11 = 2",
            f"UPDATE IGNORE {full} SET k = SUBSTRING(k, 2) WHERE v % 11 = 3",
        )
    else:
        execute(
            root,
            f"UPDATE IGNORE {full} SET a = a + 60 WHERE v % 5 = 0 AND a < 1000",
            f"UPDATE IGNORE {full} SET a = a - 1000 WHERE v % 11 = 2 AND a > 1000",
        )


def check_chain_signed(pipeline: Pipeline, root: Any, db: str, table: str) -> None:
    """As check_chain, for a table whose BIGINT UNSIGNED column is shown as Java's long."""
    if table == "unsigned":
        execute(root, f"CREATE VIEW `{db}`.shown AS SELECT CAST(a AS SIGNED) AS a, v FROM `{db}`.unsigned")
        topic = pipeline.table_topic(table)
        pipeline = replace(pipeline)
        pipeline.table_topic = lambda _: topic  # type: ignore[method-assign]
        table = "shown"
    check_chain(pipeline, root, db, table)


@pytest.mark.parametrize("mode", ["long", "precise"])
@pytest.mark.exhaustive(but="precise")
def test_resumed_snapshot_knows_unsigned_keys_in_every_mode(
    mode: str, pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline.properties |= {"snapshot.chunk.rows": "10", "bigint.unsigned.handling.mode": mode}
    execute(root, f"CREATE TABLE `{database}`.u (a BIGINT UNSIGNED PRIMARY KEY, v INT)")
    keys = [*range(30), *range(2**63, 2**63 + 30)]
    execute(root, f"INSERT INTO `{database}`.u VALUES " + ",".join(f"({k}, 0)" for k in keys))
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    execute(root, f"UPDATE `{database}`.u SET v = 1")
    assert pipeline.snapshot().complete
    execute(root, f"UPDATE `{database}`.u SET v = 2")
    pipeline.drain()
    per_key: dict[bytes, list[Any]] = {}
    for record in pipeline.records("u"):
        value = payload(record.value)
        per_key.setdefault(record.key or b"", []).append((value["op"], value["after"]["v"]))
    assert len(per_key) == 60
    early = [("r", 0), ("u", 1), ("u", 2)]
    late = [("u", 1), ("r", 1), ("u", 2)]  # the stream comes to the row before a window reads it
    assert sorted(per_key.values()) == sorted([early] * 20 + [late] * 40)


def test_tables_altered_dropped_and_created_between_two_attempts(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline.properties["snapshot.chunk.rows"] = "10"
    execute(
        root,
        *(f"CREATE TABLE `{database}`.{t} (id INT PRIMARY KEY, v INT)" for t in ("aa", "bb", "gone")),
        *(
            f"INSERT INTO `{database}`.{t} VALUES " + ",".join(f"({i}, 0)" for i in range(30))
            for t in ("aa", "bb", "gone")
        ),
    )
    interrupt(pipeline, monkeypatch, tmp_path / "fired")
    execute(
        root,
        f"UPDATE `{database}`.aa SET v = 1",
        f"ALTER TABLE `{database}`.aa ADD COLUMN w INT NOT NULL DEFAULT 5",
        f"UPDATE `{database}`.aa SET w = 6 WHERE id % 2 = 0",
        f"DROP TABLE `{database}`.gone",
        f"CREATE TABLE `{database}`.fresh (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO `{database}`.fresh VALUES (1, 1)",
    )
    assert pipeline.snapshot().complete
    execute(root, f"UPDATE `{database}`.aa SET v = 2")
    pipeline.drain()
    for table in ("bb", "fresh"):
        check_chain(pipeline, root, database, table)
    assert compacted(pipeline.records("gone")) == {}
    found = compacted(pipeline.records("aa"))
    assert [(v["id"], v["v"], v["w"]) for v in sorted(found.values(), key=lambda v: v["id"])] == rows(
        root, f"SELECT id, v, w FROM `{database}`.aa ORDER BY id"
    )
    ddl = [payload(r.value)["ddl"] for r in pipeline.read(pipeline.properties["topic.prefix"])]
    assert sum("ADD COLUMN w" in d for d in ddl) == 1 and sum("fresh" in d for d in ddl) == 1


@pytest.mark.req("SNAP-14")
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE bb RENAME COLUMN id TO k, RENAME COLUMN k TO id",
        "RENAME TABLE bb TO old_bb, zz TO bb",
    ],
    ids=["columns swap names", "another table gets the name"],
)
@pytest.mark.exhaustive(but="another")
def test_a_statement_waits_until_the_tables_are_read(
    pipeline: Pipeline, root: Any, database: str, stack: Any, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """The server refuses only rebuilt tables in an old view: rows would come under other names, or not at all."""
    body = "(id INT PRIMARY KEY, k INT NOT NULL, KEY (k))"
    execute(root, f"USE `{database}`", *(f"CREATE TABLE {name} {body}" for name in ("aa", "bb", "zz")))
    for name, first in (("aa", 0), ("bb", 0), ("zz", 5000)):
        execute(root, f"INSERT INTO {name} VALUES " + ",".join(f"({first + i}, {1000 - i})" for i in range(40)))
    pipeline.properties |= {"snapshot.chunk.rows": "10", "table.include.list": f"{database}.aa,{database}.bb"}
    pipeline.slots = 1
    places, other = Places(monkeypatch), connection(stack)
    thread = threading.Thread(target=lambda: execute(other, f"USE `{database}`", statement))
    waits = f"SELECT 1 FROM information_schema.processlist WHERE id = {other.thread_id()} AND state LIKE 'Waiting%'"

    def alter() -> None:
        thread.start()
        while thread.is_alive() and not rows(root, waits):
            time.sleep(0.02)

    places.at("snapshot.after_chunk", alter)  # a chunk of the table aa; nobody has read of bb
    assert pipeline.snapshot().complete
    thread.join(60)
    assert not thread.is_alive() and not places.left
    found = [payload(r.value)["after"] for r in pipeline.records("bb")]
    assert sorted((row["id"], row["k"]) for row in found) == [(i, 1000 - i) for i in range(40)]
