"""Ledger and schema history topics in which Debezium, Kafka Connect or another stream of ours has written.

Each test carries out the remedy that the error names, and checks that no record of the others is gone or followed by
one of ours.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from kit.sql import execute
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import MemoryOffsetStore, ThreadRunner

from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, ForeignLedgerError, SchemaError, StateError
from airflow_provider_mysql_cdc.cdc.job.job_error import write_job_error
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.job_spec import JobSpec
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.operate.send_signal import checked_signal, send_signal
from airflow_provider_mysql_cdc.cdc.schema.history import require_first_in_history
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.record_writer import write_plain
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_driver
from airflow_provider_mysql_cdc.cdc.snapshot.snapshot_driver import run_snapshot

HISTORY_NAME = "schema.history.internal.kafka.topic"
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
Write = tuple[bytes | None, bytes]


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    execute(
        root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v INT)", f"INSERT INTO `{database}`.t VALUES (1, 0)"
    )
    return Pipeline(properties)


def debezium_record(prefix: str, ddl: str = "CREATE TABLE t (id INT)") -> bytes:
    """Return a record as Debezium's ``KafkaSchemaHistory`` writes it, without a key."""
    position = {"ts_sec": 1, "file": "binlog.000003", "pos": 157, "snapshot": True}
    return json.dumps(
        {
            "source": {"server": prefix},
            "position": position,
            "ts_ms": 1,
            "databaseName": "d",
            "ddl": ddl,
            "tableChanges": [],
        }
    ).encode()


def write(pipeline: Pipeline, topic: str, *records: Write, config: dict[str, str] = KEPT) -> None:
    ensure_topics(make_admin(pipeline.cfg.kafka_settings()), {topic: TopicSpec(1, 1, config)})
    write_plain(pipeline.cfg.kafka_settings(), [SideRecord(topic, key, value) for key, value in records])


def content(pipeline: Pipeline, topic: str) -> list[Write]:
    return [(r.key, r.value or b"") for r in pipeline.read(topic)]


def prefix_in(value: bytes) -> str:
    prefix: str = json.loads(value)["source"]["server"]
    return prefix


def refused(pipeline: Pipeline, *runs: Any) -> CdcError:
    """Run jobs that must stop before they write, and return the last error."""
    topic = pipeline.cfg.history_topic
    before, errors = content(pipeline, topic), []
    for run in runs:
        with pytest.raises(SchemaError, match=r"not this stream's|belongs to topic\.prefix") as caught:
            run()
        errors.append(caught.value)
        assert topic in caught.value.where and HISTORY_NAME in caught.value.remedy and not caught.value.can_retry
    assert content(pipeline, topic) == before
    return errors[-1]


@pytest.mark.req("TOPIC-08")
def test_debeziums_own_history_is_named_before_the_first_run(pipeline: Pipeline, root: Any, database: str) -> None:
    prefix = pipeline.properties["topic.prefix"]
    write(pipeline, pipeline.cfg.history_topic, (None, debezium_record(prefix)), (None, debezium_record(prefix)))
    error = refused(pipeline, pipeline.snapshot)
    assert f"Debezium's schema history of the connector with topic.prefix={prefix}" in error.why
    pipeline.properties["snapshot.mode"] = "never"
    refused(pipeline, pipeline.drain)
    assert pipeline.store.load() is None or pipeline.store.load().pending is None  # type: ignore[union-attr]
    del pipeline.properties["snapshot.mode"]

    foreign, before = pipeline.cfg.history_topic, content(pipeline, pipeline.cfg.history_topic)
    pipeline.properties[HISTORY_NAME] = f"{foreign}.own"
    assert pipeline.snapshot().complete
    execute(root, f"INSERT INTO `{database}`.t VALUES (2, 0)")
    assert pipeline.drain() is not None and len(pipeline.records("t")) == 2
    assert content(pipeline, foreign) == before


@pytest.mark.parametrize("whose", ["debezium", "another stream", "unknown"])
@pytest.mark.req("TOPIC-08")
@pytest.mark.exhaustive(but="debezium")
def test_a_history_that_others_wrote_into_later_is_neither_deleted_nor_continued(
    pipeline: Pipeline, root: Any, database: str, whose: str
) -> None:
    assert pipeline.snapshot().complete
    foreign = pipeline.cfg.history_topic
    own_record = json.loads(content(pipeline, foreign)[-1][1])
    record = {
        "debezium": debezium_record("shop"),
        "another stream": json.dumps({**own_record, "source": {"server": "shop"}}).encode(),
        "unknown": b"some text",
    }[whose]
    write(pipeline, foreign, (None, record))
    execute(root, f"INSERT INTO `{database}`.t VALUES (2, 0)")
    for mode in ("initial", "recovery"):
        pipeline.properties["snapshot.mode"] = mode
        error = refused(pipeline, pipeline.drain, lambda: pipeline.snapshot(again=True))
        assert ("shop" in error.message()) == (whose != "unknown")
    refused(pipeline, lambda: reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="current"))
    before = content(pipeline, foreign)

    pipeline.properties |= {HISTORY_NAME: f"{foreign}.own", "snapshot.mode": "recovery"}
    assert pipeline.snapshot().complete
    del pipeline.properties["snapshot.mode"]
    assert pipeline.drain() is not None and len(pipeline.records("t")) == 2
    assert content(pipeline, foreign) == before


@pytest.mark.parametrize("recovery", [False, True])
@pytest.mark.exhaustive(but="True")
def test_a_snapshot_harms_no_record_that_came_after_its_plan(pipeline: Pipeline, recovery: bool) -> None:
    if recovery:
        assert pipeline.snapshot().complete
        pipeline.properties["snapshot.mode"] = "recovery"
    job = pipeline.prepare("snapshot")
    write(pipeline, pipeline.cfg.history_topic, (None, debezium_record("shop")))
    refused(pipeline, lambda: run_snapshot(job.spec, ThreadRunner(1), pipeline.log))


@pytest.mark.req("TOPIC-08")
def test_the_ledger_of_others_gets_no_record(pipeline: Pipeline, root: Any, database: str) -> None:
    """Kafka Connect's offsets, in a compacted topic of one partition."""
    topic = pipeline.properties["ledger.topic"] = f"{database}_offsets"
    offset = (json.dumps(["shop-connector", {"server": "shop"}]).encode(), b'{"file":"binlog.000001","pos":4}')
    write(pipeline, topic, offset, config={"cleanup.policy": "compact"})
    signal = checked_signal(pipeline.cfg, "log", {"message": "m"})
    for run in (pipeline.snapshot, pipeline.drain, lambda: send_signal(pipeline.cfg, signal)):
        with pytest.raises(ForeignLedgerError, match="not this stream's") as caught:
            run()
        assert "Kafka Connect's connector shop-connector" in caught.value.why and not caught.value.can_retry
    pipeline.properties["ledger.topic"] = f"{database}_ledger"
    job = pipeline.prepare("snapshot")
    pipeline.properties["ledger.topic"] = topic
    spec = replace(job.spec, properties=pipeline.cfg.properties())
    write_job_error(spec, caught.value, pipeline.log)
    assert content(pipeline, topic) == [offset]

    pipeline.properties["ledger.topic"] = f"{database}_ledger"
    assert pipeline.snapshot().complete


def signal_of(pipeline: Pipeline) -> None:
    send_signal(pipeline.cfg, checked_signal(pipeline.cfg, "log", {"message": "m"}))


def job_error_of(pipeline: Pipeline) -> None:
    spec = JobSpec("drain", pipeline.cfg.properties(), {}, pipeline.owner, id="one")
    write_job_error(spec, StateError("the job failed"), pipeline.log)


def driver_of(pipeline: Pipeline) -> None:
    with JobLedger(pipeline.cfg):
        pass


@pytest.mark.parametrize("first_record", [signal_of, job_error_of, driver_of])
@pytest.mark.req("TOPIC-08")
@pytest.mark.exhaustive(but="job_error")
def test_a_ledger_belongs_to_the_stream_of_its_first_record(
    pipeline: Pipeline, root: Any, database: str, first_record: Any
) -> None:
    topic = pipeline.properties["ledger.topic"] = f"{database}_ledger"
    kafka_clients.ledger(pipeline.cfg).ensure()
    other = Pipeline(pipeline.properties | {"topic.prefix": f"{pipeline.cfg.topic_prefix}2"}, MemoryOffsetStore())
    first_record(pipeline)
    before = content(pipeline, topic)
    assert before[0][0] == f"owner/{pipeline.cfg.topic_prefix}".encode()
    for run in (other.snapshot, other.drain, lambda: signal_of(other), lambda: driver_of(other)):
        with pytest.raises(ForeignLedgerError, match=rf"belongs to topic\.prefix={pipeline.cfg.topic_prefix}, not to"):
            run()
    job_error_of(other)
    assert content(pipeline, topic) == before
    assert pipeline.snapshot().complete


@pytest.mark.req("TOPIC-08")
def test_streams_that_begin_in_one_ledger_at_the_same_moment_are_told_apart(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    topic = pipeline.properties["ledger.topic"] = f"{database}_ledger"
    kafka_clients.ledger(pipeline.cfg).ensure()
    prefix = pipeline.cfg.topic_prefix
    cfgs = [Pipeline(pipeline.properties | {"topic.prefix": f"{prefix}{n}"}, MemoryOffsetStore()).cfg for n in range(6)]
    start = threading.Barrier(len(cfgs))

    def claim(cfg: ConnectorConfig) -> str:
        ledger = kafka_clients.ledger(cfg)
        ledger.exists()
        start.wait()
        try:
            ledger.claim()
        except ForeignLedgerError as error:
            return error.what
        return cfg.topic_prefix

    with ThreadPoolExecutor(len(cfgs)) as pool:
        results = list(pool.map(claim, cfgs))
    owner = content(pipeline, topic)[0][0].decode().removeprefix("owner/")  # type: ignore[union-attr]
    assert results.count(owner) == 1
    assert sum(f"belongs to topic.prefix={owner}, not to" in result for result in results) == len(cfgs) - 1
    claims = dict(content(pipeline, topic))
    assert [key for key, value in claims.items() if value] == [f"owner/{owner}".encode()]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.req("TOPIC-08")
def test_whose_a_topic_is_comes_before_advice_that_would_change_or_delete_it(
    pipeline: Pipeline, database: str, partitions: int
) -> None:
    """Debezium's history with a limited retention, and a table's topic that is named as the ledger by mistake."""
    topic, prefix = pipeline.cfg.history_topic, pipeline.properties["topic.prefix"]
    ensure_topics(make_admin(pipeline.cfg.kafka_settings()), {topic: TopicSpec(partitions, 1, {})})
    write_plain(pipeline.cfg.kafka_settings(), [SideRecord(topic, None, debezium_record(prefix))])
    refused(pipeline, pipeline.snapshot, pipeline.snapshot)

    orders = f"{database}_orders"
    pipeline.properties |= {"ledger.topic": orders, HISTORY_NAME: f"{topic}.own"}
    ensure_topics(make_admin(pipeline.cfg.kafka_settings()), {orders: TopicSpec(partitions, 1, {})})
    change = json.dumps(
        {"before": None, "after": {"id": 1}, "source": {"name": "shop", "connector": "mysql"}, "op": "c"}
    )
    write_plain(pipeline.cfg.kafka_settings(), [SideRecord(orders, b'{"id":1}', change.encode())])
    before = content(pipeline, orders)
    reset = partial(reset_offset, pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to="current")
    for run in (pipeline.snapshot, pipeline.drain, reset):
        with pytest.raises(ForeignLedgerError, match=r"a change event of topic\.prefix=shop") as caught:
            run()
        assert "delete" not in caught.value.remedy and "alter" not in caught.value.remedy
    assert content(pipeline, orders) == before


@pytest.mark.exhaustive
def test_a_history_that_was_emptied_is_named_before_a_snapshot_writes_into_it(pipeline: Pipeline) -> None:
    topic, prefix = pipeline.cfg.history_topic, pipeline.properties["topic.prefix"]
    write(pipeline, topic, (None, debezium_record(prefix)))
    for future in make_admin(pipeline.cfg.kafka_settings()).delete_records([TopicPartition(topic, 0, 1)]).values():
        future.result()
    with pytest.raises(SchemaError, match="first records of the schema history were deleted") as caught:
        pipeline.snapshot()
    assert HISTORY_NAME in caught.value.remedy
    pipeline.properties[HISTORY_NAME] = f"{topic}.own"
    assert pipeline.snapshot().complete
    pipeline.drain()


@pytest.mark.parametrize("name", ["ledger.topic", HISTORY_NAME])
@pytest.mark.parametrize("kind", ["snapshot", "drain"])
@pytest.mark.req("FAULT-32")
@pytest.mark.exhaustive(but="drain-ledger")
def test_a_topic_of_the_stream_that_has_a_table_s_name_is_refused_before_it_exists(
    pipeline: Pipeline, name: str, kind: str
) -> None:
    table_topic = pipeline.table_topic("t")
    pipeline.properties |= {name: table_topic} | ({"snapshot.mode": "never"} if kind == "drain" else {})
    with pytest.raises(ConfigError, match="tables cannot have a topic of their own") as caught:
        getattr(pipeline, kind)()
    assert f"{table_topic}: the topic {table_topic} itself" in caught.value.where and name in caught.value.remedy
    assert not pipeline.topics() and pipeline.store.load() is None


@pytest.mark.parametrize("kind", ["snapshot", "drain"])
@pytest.mark.req("TOPIC-08")
@pytest.mark.exhaustive(but="drain")
def test_a_second_ledger_of_one_prefix_is_named_before_events_come_twice(
    pipeline: Pipeline, root: Any, database: str, kind: str
) -> None:
    """As when ledger.topic is changed in one of two DAGs; each would write all events into the same topics."""
    assert pipeline.snapshot().complete
    mode = "never" if kind == "drain" else "initial"
    second = Pipeline(
        pipeline.properties | {"ledger.topic": f"{database}_2", "snapshot.mode": mode}, MemoryOffsetStore()
    )
    topic = pipeline.cfg.history_topic
    before = content(pipeline, topic)
    with pytest.raises(SchemaError, match="exists already, and has another ledger") as caught:
        getattr(second, kind)()
    assert "ledger.topic" in caught.value.remedy and not caught.value.can_retry
    assert content(pipeline, topic) == before and len(pipeline.records("t")) == 1
    second.properties[HISTORY_NAME] = f"{topic}.new"
    if kind == "snapshot":
        assert second.snapshot().complete and len(pipeline.records("t")) == 2


@pytest.mark.req("TOPIC-08")
def test_a_stream_that_begins_in_the_history_of_another_at_the_same_moment_reads_no_rows(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one commits after this one has looked at the topic, and before it writes into it."""
    topic = pipeline.properties[HISTORY_NAME] = pipeline.cfg.history_topic
    other = Pipeline(pipeline.properties | {"topic.prefix": f"{pipeline.cfg.topic_prefix}2"}, MemoryOffsetStore())
    prepare = snapshot_driver.prepare_topics

    def begin_other(*arguments: Any) -> Any:
        monkeypatch.undo()
        result = prepare(*arguments)
        assert other.snapshot().complete
        return result

    monkeypatch.setattr(snapshot_driver, "prepare_topics", begin_other)
    with pytest.raises(SchemaError, match=rf"belongs to topic\.prefix={other.cfg.topic_prefix}, not to"):
        pipeline.snapshot()
    assert not pipeline.records("t")
    assert all(prefix_in(value) == other.cfg.topic_prefix for _, value in content(other, topic))
    pipeline.properties[HISTORY_NAME] = f"{topic}.own"
    assert pipeline.snapshot().complete and len(pipeline.records("t")) == 1
    other.drain()


@pytest.mark.parametrize("first", ["own", "other", "alone"])
@pytest.mark.req("TOPIC-08")
@pytest.mark.exhaustive(but="other")
def test_of_two_open_transactions_in_a_new_history_the_first_one_is_committed(pipeline: Pipeline, first: str) -> None:
    cfg, topic, kafka = pipeline.cfg, pipeline.cfg.history_topic, pipeline.cfg.kafka_settings()
    ensure_topics(make_admin(kafka), {topic: TopicSpec(1, 1, KEPT)})
    offset = BinlogOffset("binlog.000001", 4)
    prefixes = (cfg.topic_prefix, "o")
    record = {p: HistoryRecord(p, offset, 1, 1, "d", "CREATE TABLE t (a INT)").to_bytes() for p in prefixes}
    with (
        TransactionalWriter(kafka, f"{cfg.topic_prefix}.other") as other,
        TransactionalWriter(kafka, f"{cfg.topic_prefix}.own") as own,
    ):
        writers = {"own": [own, other], "other": [other, own], "alone": [own]}[first]
        for writer in writers:
            writer.init()
            writer.send([SideRecord(topic, None, record[cfg.topic_prefix if writer is own else "o"])])
        if first == "other":
            with pytest.raises(SchemaError, match=r"belongs to topic\.prefix=o, not to"):
                require_first_in_history(cfg)
            own.abort()
            other.commit()
        else:
            require_first_in_history(cfg)
            own.commit()
            other.abort()
    assert len(content(pipeline, topic)) == 1
