"""When a drain writes a full description into the schema history, and when it does not."""

from __future__ import annotations

from typing import Any

import pytest
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.unchecked_tables import UncheckedTable
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain import history_description
from airflow_provider_mysql_cdc.cdc.drain.history_description import describe_if_due
from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.job.job_log import JobLog
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.full_description import describe_all

END = BinlogOffset("binlog.000001", 900, None, "s1")
PLAN = BatchPlan(7, "drain", END, END, writers=0, owner="o", created_ms=0)
CHANGES = {"p": 1}


def tables(count: int) -> SchemaState:
    found = (Table(TableId("d", f"t{n}"), (Column("id", 1, "INT"),)) for n in range(count))
    return SchemaState({table.id: table for table in found})


class Rig:
    """One complete batch after which a description may be due."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, statements: int, state: SchemaState, skipped: bool = False
    ) -> None:
        self.lines: list[str] = []
        self.cfg: ConnectorConfig = config(schema__history__description__statements="20")
        self.kafka = MemoryKafka()
        self.job = memory_job(monkeypatch, self.cfg, self.kafka)
        unchecked = UncheckedTable(TableId("d", "t"), "binlog.000001:4", skipped=skipped)
        ledger = LedgerState(plan=PLAN, other_records={unchecked.ledger_key(): unchecked.to_json()})
        monkeypatch.setattr(self.job, "latest", lambda: ledger)
        self.loads = 0

        def load(*_: Any, until: BinlogOffset, epoch: int, cache: Any) -> SchemaState:
            assert (until, epoch) == (END, 8)
            self.loads += 1
            cache.statements = statements
            return state

        monkeypatch.setattr(history_description, "load_schema_state", load)

    def run(self, counts: dict[str, int] = CHANGES) -> int:
        describe_if_due(self.cfg, self.job, PLAN, counts, JobLog(self.lines.append))
        return len(self.kafka.logs.get((self.cfg.history_topic, 0), []))


def test_it_is_due_after_that_many_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Rig(monkeypatch, 19, tables(3)).run() == 0
    rig = Rig(monkeypatch, 20, tables(3))
    assert rig.run() == 4
    assert "3 tables" in rig.lines[-1]
    rig.cfg = config(schema__history__description__statements="0")
    assert (rig.run(), rig.loads) == (4, 1)


def test_it_is_not_due_before_there_are_a_tenth_as_many_statements_as_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Rig(monkeypatch, 29, tables(300)).run() == 0
    assert Rig(monkeypatch, 30, tables(300)).run() == 301


def test_a_batch_without_schema_changes_does_not_read_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, 20, tables(3))
    assert (rig.run({"p.d.t": 5}), rig.loads) == (0, 0)
    rig.job.history_cache.statements = 20  # what the batch began with
    assert (rig.run({"p.d.t": 5}), rig.loads) == (4, 1)
    hidden = Rig(monkeypatch, 20, tables(3))
    hidden.cfg = config(schema__history__description__statements="20", include__schema__changes="false")
    assert hidden.run({}) == 4


def test_a_structure_after_a_skipped_statement_is_compared_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Rig(monkeypatch, 20, tables(3), skipped=True).run() == 0


def test_structures_that_do_not_read_back_are_not_described(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, 20, tables(3))
    monkeypatch.setattr(history_description, "describe_all", lambda *_: describe_all(rig.cfg, tables(2), END, 7))
    assert rig.run() == 0
    assert "cannot be described without a difference" in rig.lines[-1]


def test_a_table_whose_record_is_too_large_leaves_the_history_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, 20, tables(3))

    def refuse(*_: Any, **__: Any) -> None:
        raise RecordTooLargeError("a record is larger than Kafka accepts", where="topic h")

    monkeypatch.setattr(rig.job, "commit", refuse)
    assert rig.run() == 0
    assert "WARNING: the schema history gets no full description" in rig.lines[-1]
    assert "larger than Kafka accepts" in rig.lines[-1]
