"""Structures of the place to which a person moves the offset, over a binlog and a history that a test makes up."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kit.cases import for_each
from kit.memory_job import config
from kit.store_contract import END, START

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import scan
from airflow_provider_mysql_cdc.cdc.drain.failover import reset_structures as structures
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, SchemaError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.operate import reset_offset
from airflow_provider_mysql_cdc.cdc.snapshot import recovery

CFG = config(table__include__list="d[.]t")
HERE = END.with_position(END.file, 9000)


def given(monkeypatch: pytest.MonkeyPatch, *statements: str) -> None:
    """Let the binlog hold statements."""
    events = [
        SimpleNamespace(type=c.QUERY_EVENT, sql=sql, file=END.file, start_pos=400, where=lambda: "binlog:400")
        for sql in statements
    ]
    stream = SimpleNamespace(events=lambda end, **_: iter(events), close=lambda: None)
    monkeypatch.setattr(scan, "open_stream", lambda *_, **__: stream)
    monkeypatch.setattr(
        recovery, "parse_query", lambda e: SimpleNamespace(sql=e.sql, db="d", sql_mode=0, updated_dbs=())
    )


@for_each("sql", ["ALTER TABLE t ADD x INT", "RENAME TABLE z TO t", "DROP TABLE t", "CREATE TABLE t (i INT)"])
def test_structures_of_now_are_not_those_before_a_change(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    given(monkeypatch, "BEGIN", sql)
    with pytest.raises(SchemaError, match="changed since the stored offset") as caught:
        recovery.require_no_ddl(CFG, START, END)
    assert sql in caught.value.where


def test_a_table_that_was_created_if_it_did_not_exist_was_not_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, "CREATE TABLE IF NOT EXISTS t (i INT)")
    query = SimpleNamespace(sql="CREATE TABLE IF NOT EXISTS t (i INT)", db="d", sql_mode=0, updated_dbs=(), ddl_xid=7)
    monkeypatch.setattr(recovery, "parse_query", lambda e: query)
    with pytest.raises(SchemaError, match="changed since the stored offset"):
        recovery.require_no_ddl(CFG, START, END)


def test_what_changes_no_structure_of_a_captured_table_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    given(
        monkeypatch,
        "TRUNCATE TABLE t",
        "ALTER TABLE other ADD x INT",
        "ALTER DATABASE d CHARACTER SET latin1",
        "create /* of a migration */ table if not exists t (i INT)",  # it was there
    )
    recovery.require_no_ddl(CFG, START, END)


class Job:
    """A ledger that takes note."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def create_topics(self, specs: Any) -> None:
        pass

    def commit(self, records: Any) -> None:
        self.written.append(records)


def test_structures_are_written_for_a_place_after_which_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    job: Any = Job()
    looked: list[tuple[BinlogOffset, BinlogOffset]] = []

    def require_no_ddl(cfg: Any, start: BinlogOffset, end: BinlogOffset) -> None:
        looked.append((start, end))
        if start == START:
            raise SchemaError("a captured table changed", where="the statement")

    monkeypatch.setattr(structures, "require_no_ddl", require_no_ddl)
    monkeypatch.setattr(structures, "_read_definitions", lambda cfg: (SimpleNamespace(tables={1: 1, 2: 2}), HERE))
    monkeypatch.setattr(structures, "build_snapshot_schema", lambda definitions: None)
    monkeypatch.setattr(structures, "history_records", lambda *_: ["records"])
    monkeypatch.setattr(structures, "history_id_record", lambda *_: "id")
    with pytest.raises(SchemaError, match="structures at this position are not known") as caught:
        structures.write_schemas(CFG, job, START, 3)
    assert caught.value.where == "the statement" and job.written == []
    assert structures.write_schemas(CFG, job, END, 3) == 2
    assert job.written == [["records", "id"]] and looked == [(START, HERE), (END, HERE)]


@for_each(
    ("drained", "reaches", "known"),
    [(END, True, True), (HERE, True, True), (START, True, False), (END, False, False), (None, True, False)],
    ids=["there", "beyond", "not so far", "the history lacks it", "nobody knows"],
)
def test_the_history_counts_for_what_was_drained(
    monkeypatch: pytest.MonkeyPatch, drained: BinlogOffset | None, reaches: bool, known: bool
) -> None:
    for name in ("make_admin", "read_history"):
        monkeypatch.setattr(structures, name, lambda *_: None)
    monkeypatch.setattr(structures, "partition_counts", lambda *_: {CFG.history_topic: 1})
    monkeypatch.setattr(structures, "check_available", lambda conn, settings, offset: offset)
    monkeypatch.setattr(structures, "covers_offset", lambda *_: reaches)
    assert structures.history_covers(CFG, None, END, drained) == known


def test_a_history_of_another_binlog_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def purged(*_: Any) -> BinlogOffset:
        raise BinlogPurgedError("reset")

    for name in ("make_admin", "read_history"):
        monkeypatch.setattr(structures, name, lambda *_: None)
    monkeypatch.setattr(structures, "partition_counts", lambda *_: {CFG.history_topic: 1})
    monkeypatch.setattr(structures, "covers_offset", lambda *_: True)
    monkeypatch.setattr(structures, "check_available", purged)
    assert not structures.history_covers(CFG, None, END, END)


@pytest.mark.parametrize(("to", "written"), [("current", 1), ("binlog.000010:157", 1), ("stored", 0)])
def test_a_place_that_the_history_does_not_know_gets_structures_of_its_own(
    monkeypatch: pytest.MonkeyPatch, to: str, written: int
) -> None:
    """The stored offset is one that was drained to."""
    job, places = Job(), list[BinlogOffset]()
    monkeypatch.setattr(reset_offset, "history_covers", lambda *_: False)
    monkeypatch.setattr(reset_offset, "require_own_history", lambda *_: None)
    monkeypatch.setattr(reset_offset, "write_schemas", lambda cfg, job, offset, epoch: places.append(offset) or 1)

    def call() -> BinlogOffset:
        given: Any = (CFG, None, job, END, lambda: HERE, 3, START, to, lambda line: None)
        return reset_offset._ensure_structures(*given)

    assert call() == END and places == [END] * written
    monkeypatch.setattr(reset_offset, "history_covers", lambda *_: True)
    assert call() == END and places == [END] * written


def test_the_end_is_read_again_when_a_table_changed_before_it_and_a_named_position_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write(cfg: Any, job: Any, offset: BinlogOffset, epoch: int) -> int:
        if offset == END:
            raise SchemaError("changed")
        return 1

    monkeypatch.setattr(reset_offset, "history_covers", lambda *_: False)
    monkeypatch.setattr(reset_offset, "require_own_history", lambda *_: None)
    monkeypatch.setattr(reset_offset, "write_schemas", write)
    job: Any = Job()
    moved = reset_offset._ensure_structures(CFG, None, job, END, lambda: HERE, 3, START, "current", lambda _: None)
    assert moved == HERE
    with pytest.raises(SchemaError):
        reset_offset._ensure_structures(CFG, None, job, END, lambda: HERE, 3, START, str(END), lambda _: None)


def test_a_history_that_may_not_be_deleted_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: Future[None] = Future()
    refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    admin = SimpleNamespace(delete_topics=lambda names: dict.fromkeys(names, refused))
    for name in ("require_no_ddl", "require_own_history"):
        monkeypatch.setattr(recovery, name, lambda *_: None)
    monkeypatch.setattr(recovery, "make_admin", lambda _: admin)
    monkeypatch.setattr(recovery, "all_partition_counts", lambda _: {CFG.history_topic: 1})
    with pytest.raises(
        SchemaError, match=r"cannot be deleted.*TOPIC_AUTHORIZATION_FAILED.*grant the Kafka account Delete"
    ):
        recovery.replace_history(CFG, START, END)
