"""Moving the stored offset by hand, on real servers."""

from __future__ import annotations

from typing import Any

import pytest
from kit.records import payload
from kit.sql import execute, rows
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import MemoryOffsetStore, ThreadRunner
from pipelinelib.topics import delete_topics

from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.takeover import PLANNER
from airflow_provider_mysql_cdc.cdc.errors import (
    BinlogPurgedError,
    ConfigError,
    LedgerMissingError,
    NoOffsetError,
    RunInProgressError,
    StoredVersionError,
)
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.model import stored_record
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.operate.reset_offset import reset_offset
from airflow_provider_mysql_cdc.cdc.operate.send_signal import checked_signal, send_signal
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics


@pytest.fixture
def pipeline(properties: dict[str, str], root: Any, database: str) -> Pipeline:
    made = Pipeline(
        properties | {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"},
    )
    execute(root, f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)", f"INSERT INTO `{database}`.t VALUES (1)")
    made.snapshot()
    return made


def reset(pipeline: Pipeline, to: str) -> BinlogOffset:
    return reset_offset(pipeline.cfg, pipeline.store, pipeline.owner, pipeline.log, to=to)


def ids(pipeline: Pipeline) -> list[int]:
    return [payload(r.value)["after"]["id"] for r in pipeline.records("t")]


def insert(root: Any, database: str, *values: int) -> None:
    execute(root, *(f"INSERT INTO `{database}`.t VALUES ({v})" for v in values))


def test_a_lost_ledger_goes_on_from_the_stored_offset(pipeline: Pipeline, root: Any, database: str) -> None:
    insert(root, database, 2)
    delete_topics(pipeline.cfg.kafka_settings(), pipeline.cfg.ledger_topic)
    with pytest.raises(LedgerMissingError, match="mysql_cdc_reset_offset"):
        pipeline.drain()
    reset(pipeline, "stored")
    pipeline.drain()
    assert ids(pipeline) == [1, 2]


def test_records_of_another_version_are_refused_and_the_stream_begins_anew_where_it_stands(
    pipeline: Pipeline, root: Any, database: str, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/runbook.md says under "Records of another version"."""
    topic = pipeline.properties["signal.kafka.topic"] = f"{unique}.signals"
    pipeline.properties["signal.enabled.channels"] = "kafka"
    ensure_topics(make_admin(pipeline.cfg.kafka_settings()), {topic: TopicSpec(1, 1)})
    insert(root, database, 2)
    request = {"data-collections": [f"{database}.t"]}
    send_signal(pipeline.cfg, checked_signal(pipeline.cfg, "execute-snapshot", request, channel="kafka"))
    pipeline.drain()
    assert ids(pipeline) == [1, 2, 1, 2]
    stored = pipeline.store.load()
    assert stored is not None
    insert(root, database, 3)
    live = kafka_clients.record_writer(pipeline.cfg, PLANNER)
    live.init()
    monkeypatch.setattr(stored_record, "STORED_VERSION", stored_record.STORED_VERSION + 1)
    with pytest.raises(StoredVersionError, match="version 2; this version of the package"):
        pipeline.drain()
    pipeline.store = MemoryOffsetStore()
    for work in (pipeline.drain, pipeline.snapshot, lambda: reset(pipeline, "current")):
        with pytest.raises(StoredVersionError, match=f"ledger.{unique}"):
            work()
    live.commit([SideRecord(pipeline.cfg.ledger_topic, b"run", None)])  # a driver of the other version is not fenced
    live.close()
    pipeline.properties["ledger.topic"] = f"ledger.{unique}.2"
    with pytest.raises(StoredVersionError, match=f"schemahistory.{unique}"):  # which would then be of two versions
        reset(pipeline, str(stored.committed))
    pipeline.properties |= {
        "schema.history.internal.kafka.topic": f"history.{unique}.2",
        "signal.consumer.auto.offset.reset": "latest",
    }
    reset(pipeline, str(stored.committed))
    for _ in range(2):
        pipeline.drain()
    assert ids(pipeline) == [1, 2, 1, 2, 3], "no signal of the topic is carried out once more"


def test_current_skips_and_a_position_comes_once_more(pipeline: Pipeline, root: Any, database: str) -> None:
    stored = pipeline.store.load()
    assert stored is not None and stored.committed is not None
    insert(root, database, 2, 3)
    reset(pipeline, "current")
    insert(root, database, 4)
    pipeline.drain()
    assert ids(pipeline) == [1, 4]
    assert reset(pipeline, str(stored.committed)).key() == stored.committed.key()
    pipeline.drain()
    assert ids(pipeline) == [1, 4, 2, 3, 4]


def test_a_gtid_set_is_taken_like_the_position_after_it(pipeline: Pipeline, root: Any, database: str) -> None:
    executed = rows(root, "SELECT @@gtid_executed")[0][0]
    insert(root, database, 2, 3)
    pipeline.drain()
    reset(pipeline, executed)
    pipeline.drain()
    assert ids(pipeline) == [1, 2, 3, 2, 3]
    server = rows(root, "SELECT @@server_uuid")[0][0]
    for wrong, text in (
        (f"{server}:1-x", "is not a GTID set"),
        (f"{server}:1-99999999999", "has not executed all"),
        ("binlog.000001:" + "1" * 5000, "this is not an offset"),
    ):
        with pytest.raises(ConfigError, match=text):
            reset(pipeline, wrong)


@pytest.mark.req("FAULT-01")
@pytest.mark.parametrize("backup", [False, True], ids=["not settled", "store from a backup"])
@pytest.mark.exhaustive(but="backup")
def test_stored_does_not_repeat_what_the_ledger_says_is_done(
    pipeline: Pipeline, root: Any, database: str, backup: bool
) -> None:
    older = pipeline.store.load()
    for number in (2, 3):
        insert(root, database, number)
        pipeline.drain()
    insert(root, database, 4)
    run_drain(pipeline.prepare("drain").spec, ThreadRunner(1), pipeline.log)  # and the operator dies before it settles
    if backup:
        assert older is not None
        pipeline.store.save(older, pipeline.store.load())
    reset(pipeline, "stored")
    insert(root, database, 5)
    pipeline.drain()
    assert ids(pipeline) == [1, 2, 3, 4, 5]


def test_an_unfinished_batch_is_set_aside_and_its_writers_are_fenced(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    insert(root, database, 2)
    abandoned = pipeline.prepare("drain")
    before = pipeline.store.load()
    reset(pipeline, "stored")
    after = pipeline.store.load()
    assert before is not None and after is not None
    assert after.pending is None and after.committed == before.committed and after.epoch > abandoned.plan.epoch
    pipeline.drain()
    assert ids(pipeline) == [1, 2]


@pytest.mark.parametrize(
    ("to", "error"),
    [("yesterday", ConfigError), ("binlog.999999:4", BinlogPurgedError), ("{file}:5", ConfigError)],
)
def test_what_is_no_offset_is_refused_and_changes_nothing(pipeline: Pipeline, to: str, error: type[Exception]) -> None:
    before = pipeline.store.load()
    assert before is not None and before.committed is not None
    with pytest.raises(error):
        reset(pipeline, to.format(file=before.committed.file))
    assert pipeline.store.load() == before
    assert pipeline.drain() is None or ids(pipeline) == [1]


def test_a_position_inside_a_transaction_is_refused(pipeline: Pipeline, root: Any, database: str) -> None:
    stored = pipeline.store.load()
    assert stored is not None and stored.committed is not None
    insert(root, database, 2)
    at = stored.committed
    inside = [e for e in rows(root, f"SHOW BINLOG EVENTS IN '{at.file}' FROM {at.pos}") if e[2] == "Table_map"]
    with pytest.raises(ConfigError, match="inside a transaction"):
        reset(pipeline, f"{at.file}:{inside[0][1]}")


def test_a_run_at_work_is_not_disturbed(pipeline: Pipeline) -> None:
    with connect(pipeline.cfg.connection_settings()) as conn:
        run_lock.acquire(conn, pipeline.properties["topic.prefix"], "another/run/task/-1")
        with pytest.raises(RunInProgressError):
            reset(pipeline, "current")


def test_nothing_to_keep_says_what_to_do(properties: dict[str, str]) -> None:
    with pytest.raises(NoOffsetError, match="take a snapshot"):
        reset(Pipeline(properties), "stored")
