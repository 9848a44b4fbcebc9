"""Signals on real servers: rows of the signal table, records of the Kafka topic, records of Airflow in the ledger."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kit.records import payload
from kit.signals import send
from kit.sql import execute
from kit.table_rig import FLAT
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import run_drain
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, LedgerMissingError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history import load_schema_state
from airflow_provider_mysql_cdc.cdc.signals.kafka_channel import KafkaSignalChannel
from airflow_provider_mysql_cdc.cdc.signals.signal import ExecuteSnapshot, pending_signals, read_action
from airflow_provider_mysql_cdc.cdc.signals.signal_table import require_watermarks
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, end_offsets, ensure_topics, partition_counts

NOBODY: frozenset[str] = frozenset()


@pytest.fixture
def ops(root: Any, unique: str) -> Iterator[str]:
    """Return a database of its own for the signal table."""
    name = f"{unique}_ops"
    execute(root, f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    yield name
    execute(root, f"DROP DATABASE `{name}`")


def insert(ops: str, *rows: tuple[str, str, str | None]) -> str:
    values = ", ".join(f"('{i}', '{t}', {'NULL' if d is None else repr(d)})" for i, t, d in rows)
    return f"INSERT INTO `{ops}`.debezium_signal (id, type, data) VALUES {values}"


def committed(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Return key and id of every signal that was ever committed."""
    return [
        (r.key.decode(), json.loads(r.value or b"{}").get("id", "deleted"))
        for r in pipeline.read(pipeline.cfg.ledger_topic)
        if r.key is not None and r.key.startswith(b"signal/")
    ]


@pytest.mark.req("EX-13")
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.exhaustive(but="True")
def test_signals_of_the_table_are_handed_over_once_whether_it_is_captured_or_not(
    properties: dict[str, str], root: Any, database: str, ops: str, captured: bool,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    """The writer dies at its first commit; the history describes captured tables alone."""
    databases = f"{database},{ops}" if captured else database
    given = {
        "database.include.list": databases,
        "signal.data.collection": f"{ops}.debezium_signal",
        "schema.history.internal.store.only.captured.tables.ddl": "true",
    }
    pipeline = Pipeline(properties | FLAT | given)
    execute(
        root,
        f"CREATE TABLE `{database}`.orders (id INT PRIMARY KEY)",
        f"CREATE TABLE `{ops}`.debezium_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, "
        "data VARCHAR(2048) NULL) CHARSET latin1",
        f"CREATE TABLE `{ops}`.others (id INT PRIMARY KEY)",
    )
    outcome = pipeline.snapshot()
    assert outcome.offset is not None
    state = load_schema_state(pipeline.cfg, until=BinlogOffset.from_json(outcome.offset), epoch=2)
    signal_table = TableId(ops, "debezium_signal")
    assert signal_table in state.tables
    assert captured or TableId(ops, "others") not in {*state.tables, *state.unparsed}

    ad_hoc = '{"data-collections": ["schema1.table1", "schema2.table2"],"type":"incremental"}'
    with root.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(insert(ops, ("ad-hoc-1", "execute-snapshot", ad_hoc), ("ä", "log", '{"message": "m"}')))
        cursor.execute(f"INSERT INTO `{database}`.orders VALUES (1)")
        cursor.execute(insert(ops, ("w-open", "snapshot-window-open", "{}"), ("same", "pause-snapshot", None)))
        cursor.execute("COMMIT")
        cursor.execute("BEGIN")
        cursor.execute(insert(ops, ("undone", "log", "{}")))
        cursor.execute("ROLLBACK")
    execute(
        root,
        f"ALTER TABLE `{ops}`.debezium_signal MODIFY id VARCHAR(60) CHARSET utf8mb4, ADD at TIMESTAMP(3) NULL",
        insert(ops, ("€", "resume-snapshot", "{}")),
        f"DELETE FROM `{ops}`.debezium_signal",
    )
    monkeypatch.setattr(faults, "_passed", {})
    fault = {"point": "writer.before_commit", "action": "raise", "fired": str(tmp_path / "fired")}
    monkeypatch.setenv("MYSQL_CDC_FAULT", json.dumps(fault))
    job = pipeline.prepare("drain")
    with pytest.raises(faults.FaultRaised):
        run_drain(job.spec, ThreadRunner(1), pipeline.log)
    monkeypatch.delenv("MYSQL_CDC_FAULT")
    assert (tmp_path / "fired").exists()

    # The writers alone: nobody takes the signals.
    run_drain(pipeline.prepare("drain").spec, ThreadRunner(1), pipeline.log)
    found = committed(pipeline)
    assert [id_ for _, id_ in found] == ["ad-hoc-1", "ä", "same", "€"]
    assert len({key for key, _ in found}) == 4
    signals = [s for _, s in pending_signals((kafka_clients.ledger(pipeline.cfg).read() or LedgerState()).signals)]
    assert [s.id for s in signals] == ["ad-hoc-1", "ä", "same", "€"]
    assert read_action(signals[0], NOBODY) == ExecuteSnapshot(
        "ad-hoc-1", "source", "incremental", ("schema1.table1", "schema2.table2")
    )
    topic = f"{properties['topic.prefix']}.{ops}.debezium_signal"
    if captured:
        events = [payload(r.value) for r in pipeline.read(topic)]
        assert [e["op"] for e in events if e is not None] == ["c"] * 5 + ["d"] * 5
    else:
        assert topic not in partition_counts(make_admin(pipeline.cfg.kafka_settings()), [topic])
    assert [payload(r.value)["op"] for r in pipeline.read(f"{properties['topic.prefix']}.{database}.orders")] == ["c"]


@pytest.mark.req("INC-40", "EX-15")
def test_signals_of_the_kafka_topic_are_read_from_the_place_that_the_ledger_keeps(
    properties: dict[str, str], stack: Any, unique: str
) -> None:
    cfg = Pipeline(properties | {"signal.enabled.channels": "kafka", "signal.kafka.topic": f"{unique}.in"}).cfg
    channel = KafkaSignalChannel(cfg)
    assert "does not exist" in channel.poll(LedgerState()).log_lines[0]
    admin = make_admin(cfg.kafka_settings())
    ensure_topics(admin, {f"{unique}.in": TopicSpec(1, 1)})
    producer = Producer({"bootstrap.servers": stack.kafka, "transactional.id": f"{unique}.signals"})
    producer.init_transactions()

    def produce(key: str, value: str, *, commit: bool = True) -> None:
        producer.begin_transaction()
        producer.produce(f"{unique}.in", value, key, 0)
        producer.flush(30)
        producer.commit_transaction() if commit else producer.abort_transaction()
        # The marker of a transaction comes to its partition behind the reply.
        while end_offsets(admin, f"{unique}.in", [0], stable=True) != end_offsets(admin, f"{unique}.in", [0]):
            time.sleep(0.01)

    sample = (
        '{"type":"execute-snapshot","data": {"data-collections": ["schema1.table1", "schema1.table2"], '
        '"type": "INCREMENTAL"}}'
    )
    produce(unique, sample)
    produce(unique, '{"type": "log", "data": {"message": "aborted"}}', commit=False)
    produce("other", sample)
    produce(unique, "{")
    first = channel.poll(LedgerState())
    assert first.new_offset is not None and first.new_offset["topic_id"]
    (key, ad_hoc), (_, malformed) = first.signals
    assert key == "signal/kafka/0" and ad_hoc.id.startswith("kafka-0-0-")
    assert read_action(ad_hoc, NOBODY) == ExecuteSnapshot(
        ad_hoc.id, "kafka", "incremental", ("schema1.table1", "schema1.table2")
    )
    assert "is not JSON" in malformed.invalid_reason
    assert any("1 records" in note for note in first.log_lines)

    def after(place: Any) -> LedgerState:
        return build_ledger_state({"signal-offset": encode(place)})

    again = channel.poll(after(first.new_offset))
    assert (again.signals, again.new_offset) == ([], None)
    producer.begin_transaction()
    producer.produce(f"{unique}.in", sample, unique, 0)
    producer.flush(30)
    assert channel.poll(after(first.new_offset)).signals == [], "what is not committed neither counts nor is waited for"
    producer.commit_transaction()
    later = channel.poll(after(first.new_offset))
    assert len(later.signals) == 1 and later.new_offset is not None
    assert channel.poll(after(later.new_offset)).signals == []


@pytest.mark.req("INC-36", "INC-40")
def test_signals_of_the_topic_are_carried_out_once_though_nothing_is_new_in_the_binlog(
    properties: dict[str, str], stack: Any, root: Any, database: str, unique: str
) -> None:
    """With read.only nothing is written to the source: neither signals nor watermarks are rows (INC-36)."""
    given = {"signal.enabled.channels": "kafka", "read.only": "true"}
    pipeline = Pipeline(properties | FLAT | given)
    execute(
        root, f"CREATE TABLE `{database}`.orders (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.orders VALUES (1)"
    )
    pipeline.snapshot()
    assert pipeline.drain() is None
    topic = f"{unique}-signal"
    ensure_topics(make_admin(pipeline.cfg.kafka_settings()), {topic: TopicSpec(1, 1)})
    producer = Producer({"bootstrap.servers": stack.kafka})
    for type_, data in (
        ("log", {"message": "hello at {}"}),
        ("execute-snapshot", {"data-collections": [f"{database}.orders"]}),
        ("execute-snapshot", {"data-collections": [f"{database}.nothing"]}),
        (
            "execute-snapshot",
            {"data-collections": [], "additional-conditions": [{"data-collection": "a", "filter": "1"}]},
        ),
    ):
        producer.produce(topic, json.dumps({"type": type_, "data": data}), unique, 0)
    producer.produce(topic, "{", unique, 0)
    producer.flush(30)
    assert pipeline.drain() is not None
    lines = [line for line in pipeline.lines if "hello at" in line or "is refused" in line]
    assert lines[0].startswith("hello at binlog.")
    assert [re.sub("-[0-9a-f]{12} ", " ", line).partition(":")[0] for line in lines[1:]] == [
        *(f"signal kafka-0-{n} (execute-snapshot, channel kafka) is refused" for n in (2, 3)),
        "signal kafka-0-4 (, channel kafka) is refused",
    ]
    assert "no captured table matches" in lines[1] and "signal.trusted.channels" in lines[2] and "not JSON" in lines[3]
    assert [payload(r.value)["op"] for r in pipeline.records("orders")] == ["r", "r"]
    assert pipeline.drain() is None, "each is carried out once"


def test_a_signal_from_airflow_is_seen_while_a_writer_has_a_transaction_open(properties: dict[str, str]) -> None:
    cfg = Pipeline(properties).cfg
    with pytest.raises(LedgerMissingError, match="cannot be stored"):
        send(cfg, "pause-snapshot")
    ledger = kafka_clients.ledger(cfg)
    ledger.ensure()
    writer = kafka_clients.record_writer(cfg, 0)
    writer.init()
    writer.produce(cfg.ledger_topic, b"writer/0", encode({}), 0)
    id_ = send(cfg, "execute-snapshot", {"data-collections": ["d.t"]})
    send(cfg, "pause-snapshot", id_="mine")
    writer.abort()
    writer.close()
    state = ledger.read()
    assert state is not None
    assert [(s.id, s.type) for _, s in pending_signals(state.signals)] == [
        (id_, "execute-snapshot"),
        ("mine", "pause-snapshot"),
    ]


# -- before a run ----------------------------------------------------------------------------------------------------


@pytest.fixture
def account(stack: Any, root: Any, properties: dict[str, str], unique: str) -> Iterator[str]:
    """Return an account that may read the binlog and, at first, write nowhere."""
    execute(
        root,
        f"CREATE USER `{unique}`@'%' IDENTIFIED BY 'pw'",
        f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `{unique}`@'%'",
    )
    properties |= {"database.user": unique, "database.password": "pw"}
    yield unique
    execute(root, f"DROP USER `{unique}`@'%'")


@pytest.mark.req("INC-34")
def test_the_signal_table_is_checked_and_created_on_demand(
    properties: dict[str, str], root: Any, ops: str, account: str
) -> None:
    lines: list[str] = []
    given = properties | {"signal.data.collection": f"{ops}.debezium_signal"}

    def check(**more: str) -> None:
        cfg = Pipeline(given | {name.replace("__", "."): text for name, text in more.items()}).cfg
        conn = connect(cfg.connection_settings())
        try:
            require_watermarks(conn, cfg, lines.append)
        finally:
            conn.close()

    creates = {"signal__data__collection__create": "true"}
    deletes = {"incremental__snapshot__watermarking__strategy": "insert_delete"}
    with pytest.raises(ConfigError, match="does not exist"):
        check()
    check(read__only="true")
    with pytest.raises(ConfigError, match=r"cannot be created.*denied"):
        check(**creates)
    execute(root, f"GRANT CREATE ON `{ops}`.* TO `{account}`@'%'")
    with pytest.raises(ConfigError, match=r"may not INSERT.*INSERT command denied"):
        check(**creates)
    assert lines == [f"created the signal table {ops}.debezium_signal"]
    execute(root, f"GRANT INSERT ON `{ops}`.debezium_signal TO `{account}`@'%'")
    check(**creates)
    with pytest.raises(ConfigError, match="may not DELETE"):
        check(**deletes)
    execute(root, f"GRANT DELETE ON `{ops}`.debezium_signal TO `{account}`@'%'")
    check(**deletes)
    assert len(lines) == 1
    with root.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM `{ops}`.debezium_signal")
        assert cursor.fetchone() == (0,), "a check writes nothing"
    execute(root, "SET GLOBAL binlog_order_commits = OFF")
    try:
        with pytest.raises(ConfigError, match="ad-hoc snapshots need binlog_order_commits=ON"):
            check()
        check(read__only="true")
    finally:
        execute(root, "SET GLOBAL binlog_order_commits = ON")
    execute(root, f"ALTER TABLE `{ops}`.debezium_signal MODIFY type VARCHAR(20) NOT NULL")
    with pytest.raises(ConfigError, match="column type of the signal table is too narrow"):
        check()


@pytest.mark.req("INC-39")
def test_without_writing_the_order_of_a_replicas_commits_is_checked(properties: dict[str, str], root: Any) -> None:
    cfg = Pipeline(properties | {"read.only": "true"}).cfg
    conn = connect(cfg.connection_settings())
    try:
        require_watermarks(conn, cfg, lambda line: None)
        execute(root, "SET GLOBAL replica_preserve_commit_order = OFF")
        with pytest.raises(ConfigError, match="replica_preserve_commit_order is OFF"):
            require_watermarks(conn, cfg, lambda line: None)
    finally:
        execute(root, "SET GLOBAL replica_preserve_commit_order = ON")
        conn.close()
