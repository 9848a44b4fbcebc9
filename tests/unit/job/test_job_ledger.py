"""What a driver writes into the ledger."""

from __future__ import annotations

import pytest
from kit.memory_job import config, memory_job, transactions
from kit.memory_kafka import MemoryKafka
from kit.memory_ledger import MemoryLedger
from kit.store_contract import plan

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.ddl.apply import apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, FencedError, RecordsLostError, SinkError, StateError
from airflow_provider_mysql_cdc.cdc.job import job_ledger
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord

CFG = config()


@pytest.fixture
def kafka() -> MemoryKafka:
    return MemoryKafka()


def test_tasks_are_written_down_before_they_start(monkeypatch: pytest.MonkeyPatch, kafka: MemoryKafka) -> None:
    job = memory_job(monkeypatch, CFG, kafka)
    job.reserve_writers(5, LedgerState(writer_count=1))
    assert job.read().writer_ids() == (0, 1, 2, 3, 4)
    job.reserve_writers(2, job.read())
    assert job.read().writer_count == 5


@pytest.mark.req("FAULT-32")
def test_a_job_does_not_start_with_two_tables_for_one_topic(
    monkeypatch: pytest.MonkeyPatch, kafka: MemoryKafka
) -> None:
    job = memory_job(monkeypatch, CFG, kafka)
    state = SchemaState()
    for name in ("`a b`", "a_c"):
        state = apply_ddl(state, f"CREATE TABLE {name} (id INT)", DdlContext("db")).state
    assert {"p.db.a_b", "p.db.a_c"} < set(job.required_topics(state))
    state = apply_ddl(state, "CREATE TABLE a_b (id INT)", DdlContext("db")).state
    with pytest.raises(ConfigError, match=r"p\.db\.a_b: db\.a b, db\.a_b") as caught:
        job.required_topics(state)
    assert "table.exclude.list" in caught.value.remedy and not caught.value.can_retry


def test_many_records_are_written_in_transactions_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch, kafka: MemoryKafka
) -> None:
    monkeypatch.setattr(job_ledger, "MAX_TRANSACTION_RECORDS", 10)
    job = memory_job(monkeypatch, CFG, kafka)
    job.put_all((f"k{n}", {"n": n}) for n in range(25))
    assert [len(keys) for keys in transactions(kafka, CFG.ledger_topic)] == [10, 10, 5]


def test_a_driver_that_was_taken_over_reports_that_and_no_other_error(
    monkeypatch: pytest.MonkeyPatch, kafka: MemoryKafka
) -> None:
    older = memory_job(monkeypatch, CFG, kafka)
    memory_job(monkeypatch, CFG, kafka)
    with pytest.raises(FencedError, match="newer attempt") as caught:
        older.write_outcome(plan(), error=StateError("the connection is gone"))
    assert "the connection is gone" in caught.value.why and not caught.value.can_retry


@pytest.mark.req("FAULT-01")
def test_lost_records_are_noted_also_where_the_planner_may_write_no_more(
    monkeypatch: pytest.MonkeyPatch, kafka: MemoryKafka
) -> None:
    job, written = memory_job(monkeypatch, CFG, kafka), list[SideRecord]()

    def refuse(*_: object) -> None:
        raise SinkError("the producer's records are gone")

    monkeypatch.setattr(job, "commit", refuse)
    monkeypatch.setattr(job_ledger, "write_plain", lambda _, records: written.extend(records))
    job.write_outcome(plan(), error=StateError("the connection is gone"))
    assert written == []
    job.write_outcome(plan(), error=RecordsLostError("a marker is gone"))
    [record] = written
    assert (record.topic, record.key) == (CFG.ledger_topic, b"outcome") and b"a marker is gone" in (record.value or b"")


def test_between_two_batches_the_ledger_is_read_once(monkeypatch: pytest.MonkeyPatch, kafka: MemoryKafka) -> None:
    """Each of a drain's readings costs connections; its own outcome changes nothing that it does not know."""
    with memory_job(monkeypatch, CFG, kafka) as job:
        assert job.latest().outcome is None
        job.read()
        job.write_outcome(plan(), counts={"t": 3})
        monkeypatch.setattr(MemoryLedger, "read", lambda *_, **__: pytest.fail("nothing else was written"))
        outcome = job.latest().outcome
        assert outcome is not None and outcome["counts"] == {"t": 3}


def test_what_a_job_has_written_is_read_before_it_plans_on(monkeypatch: pytest.MonkeyPatch, kafka: MemoryKafka) -> None:
    with memory_job(monkeypatch, CFG, kafka) as job:
        job.read()
        job.put("writers", {"count": 7})
        assert job.latest().writer_count == 7
        job.begin(plan())
        assert job.latest().plan_in_force().epoch == plan().epoch
        job.put("writers", {"count": 8})
        job.write_outcome(plan(), counts={})
        assert job.latest().writer_count == 8


def test_a_replaced_plan_can_be_read_before_a_writer_looks_for_it(
    monkeypatch: pytest.MonkeyPatch, kafka: MemoryKafka
) -> None:
    """Kafka confirms a transaction before all its records are visible; a whole reading waits for that."""
    job, read = memory_job(monkeypatch, CFG, kafka), []
    with_read = MemoryLedger.read

    def noted(self: MemoryLedger, *given: object, **named: object) -> LedgerState | None:
        state = with_read(self, *given, **named)  # type: ignore[arg-type]
        read.append(state)
        return state

    monkeypatch.setattr(MemoryLedger, "read", noted)
    job.replace_plan(plan())
    assert [state and state.plan and state.plan.epoch for state in read][-1:] == [plan().epoch]
