"""Ad-hoc snapshots while the stream runs, on real servers with tasks as threads."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from kit.incremental_rig import FLAT, Writer, ask_for, books, check_exact, reads
from kit.records import compacted, payload
from kit.signals import send
from kit.sql import execute, rows
from kit.table_rig import filled
from kit.window_rig import connection
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.commit.kafka_clients import record_writer
from airflow_provider_mysql_cdc.cdc.drain import drain_driver, drain_writer
from airflow_provider_mysql_cdc.cdc.drain.batch_planner import plan_drain
from airflow_provider_mysql_cdc.cdc.errors import RunInProgressError
from airflow_provider_mysql_cdc.cdc.incremental import window_driver as round_driver
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job import run_lock
from airflow_provider_mysql_cdc.cdc.operate.prepare_drain import prepare_drain
from airflow_provider_mysql_cdc.cdc.operate.prepare_snapshot import prepare_snapshot
from airflow_provider_mysql_cdc.cdc.schema import history
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicSpec, ensure_topics

PROPERTIES = FLAT


def states(pipeline: Pipeline) -> list[str]:
    return [scan.state for _, scan in sorted(books(pipeline).scans.items())]


@pytest.mark.req("INC-03", "INC-09", "INC-10", "INC-13", "INC-26", "EX-12", "EX-14", "SNAP-47")
def test_tables_are_read_again_while_the_stream_runs(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, wholly = history.read_history, list[int]()

    def counted(cfg: Any, first: int = 0, bases: Any = ()) -> Any:
        wholly.extend([first] if not first else [])
        return read(cfg, first, bases)

    monkeypatch.setattr(history, "read_history", counted)
    monkeypatch.setattr(round_driver, "MAX_SCANS_PER_WINDOW", 1)
    execute(root, *filled(database, "a", "b", count=100))
    pipeline.snapshot()
    execute(root, f"UPDATE `{database}`.a SET v = 1 WHERE id < 50")
    ask_for(pipeline, ["a", "b"])
    wholly.clear()
    assert pipeline.drain() is not None
    assert len(wholly) == 1, "a round of tables that begin needs of the history what came since the batch before it"
    assert states(pipeline) == ["done", "done"]
    for table in ("a", "b"):
        check_exact(pipeline, root, table)
        assert sorted(reads(pipeline, table).values()) == [1] * 100
    assert books(pipeline).done_ranges == ()


@pytest.mark.req("INC-15", "INC-16", "INC-20", "INC-21", "INC-22", "INC-23", "INC-24", "INC-25", "INC-27")
def test_nothing_is_lost_or_goes_back_while_keys_change_in_the_window(
    pipeline: Pipeline, root: Any, database: str, stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(root, *filled(database, "a", "b", count=300))
    pipeline.snapshot()
    waits = {"incremental.view_open": 0.2, "incremental.stretch_read": 0.02}
    monkeypatch.setattr(faults, "fault_point", lambda name, writer=None: time.sleep(waits.get(name, 0)))
    writer = Writer(stack, database, ["a", "b"], 330, seed=5)
    writer.start()
    try:
        for n in range(4):
            ask_for(pipeline, ["a", "b"], f"s{n}")
            pipeline.drain()
    finally:
        writer.stop()
    pipeline.drain()
    assert writer.changes > 200
    left_out = [line for line in pipeline.lines if "left out" in line]
    assert left_out, "no event hit a key of an open window"
    for table in ("a", "b"):
        check_exact(pipeline, root, table)
    assert set(states(pipeline)) == {"done"}
    assert rows(root, f"SELECT COUNT(*) FROM `{database}`.a")[0][0] > 0


SIGNALS = "CREATE TABLE `{}`.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL)"


@pytest.mark.parametrize("strategy", ["insert_insert", "insert_delete"])
@pytest.mark.req("INC-02", "INC-05", "INC-06", "INC-14", "INC-28", "EX-13")
@pytest.mark.exhaustive(but="delete")
def test_a_row_of_the_signal_table_asks_for_a_snapshot(
    properties: dict[str, str], root: Any, database: str, strategy: str
) -> None:
    pipeline = Pipeline(
        properties
        | FLAT
        | {
            "table.include.list": f"{database}.a,{database}.b",
            "signal.data.collection": f"{database}.signals",
            "incremental.snapshot.watermarking.strategy": strategy,
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": f"{properties['topic.prefix']}.notes",
        }
    )
    execute(root, *filled(database, "a", "b", count=40), SIGNALS.format(database))
    pipeline.snapshot()
    execute(root, f"GRANT INSERT, DELETE ON `{database}`.signals TO {pipeline.properties['database.user']}")
    asked = f'{{"data-collections": ["{database}.a"], "type": "incremental"}}'
    execute(root, f"INSERT INTO `{database}`.signals VALUES ('ad-hoc-1', 'execute-snapshot', '{asked}')")
    pipeline.drain()
    check_exact(pipeline, root, "a")
    assert sorted(reads(pipeline, "a").values()) == [1] * 40
    assert reads(pipeline, "b") == {}
    kinds = [t for (t,) in rows(root, f"SELECT type FROM `{database}`.signals ORDER BY type")]
    closed = ["snapshot-window-close", "snapshot-window-open"] if strategy == "insert_insert" else []
    assert kinds == ["execute-snapshot", *closed]
    told = [payload(r.value) for r in pipeline.read(f"{properties['topic.prefix']}.notes")]
    told = [note for note in told if note["aggregate_type"] == "Incremental Snapshot"]
    assert [t["type"] for t in told] == ["STARTED", *["IN_PROGRESS"] * 3, "TABLE_SCAN_COMPLETED", "COMPLETED"]
    assert {t["id"] for t in told} == {"ad-hoc-1"}


def test_a_blocking_snapshot_reads_everything_while_the_stream_waits(
    pipeline: Pipeline, root: Any, database: str, stack: Any
) -> None:
    """Changes that were not drained when it was asked for come before its rows, those of other tables too."""
    keyless = [f"CREATE TABLE `{database}`.c (a INT)", f"INSERT INTO `{database}`.c VALUES (1), (1), (2)"]
    # The first and the last key range have a row that the writer never changes: of none that is left, none is marked.
    ends = f"INSERT INTO `{database}`.a VALUES (-1, 0), (1000, 0)"
    execute(root, *filled(database, "a", "b", count=100), ends, *keyless)
    pipeline.snapshot()
    execute(root, f"UPDATE `{database}`.b SET v = 7 WHERE id < 5", f"DELETE FROM `{database}`.a WHERE id = 3")
    ask_for(pipeline, ["a", "c"], kind="blocking")
    writer = Writer(stack, database, ["a", "b"], 110, seed=3)
    writer.start()
    try:
        pipeline.drain()
    finally:
        writer.stop()
    pipeline.drain()
    assert states(pipeline) == ["done", "done"]
    for table in ("a", "b"):
        check_exact(pipeline, root, table)
    found = [payload(r.value)["source"]["snapshot"] for r in pipeline.records("c")]
    assert found[3:] == ["first_in_data_collection", "true", "last"]
    told = [v["source"]["snapshot"] for r in pipeline.records("a") if (v := payload(r.value)) and v["op"] == "r"]
    assert told[102:].count("first") == 1 and told[102:].count("last_in_data_collection") == 1
    assert len(reads(pipeline, "a", "true")) > 90


@pytest.mark.req("INC-36", "INC-37", "INC-40", "INC-41", "INC-42", "INC-43", "INC-46", "EX-15")
def test_a_message_of_the_signal_topic_asks_for_a_snapshot_and_nothing_is_written_to_the_source(
    properties: dict[str, str], root: Any, database: str
) -> None:
    prefix = properties["topic.prefix"]
    kafka = {"signal.enabled.channels": "kafka", "signal.kafka.topic": f"{prefix}-asks"}
    pipeline = Pipeline(properties | FLAT | kafka | {"read.only": "true"})
    execute(root, *filled(database, "a", "b", count=40))
    pipeline.snapshot()
    end = rows(root, "SHOW BINARY LOG STATUS")
    data = {"data-collections": [f"{database}.a", f"{database}.nothing"], "type": "INCREMENTAL"}
    with record_writer(pipeline.cfg, "asks") as asks:
        asks.init()
        ensure_topics(make_admin(pipeline.cfg.kafka_settings()), {f"{prefix}-asks": TopicSpec(1, 1)})
        for key, value in (
            ("another", {"type": "execute-snapshot", "data": data}),
            (prefix, {"type": "execute-snapshot", "data": data}),
            (prefix, {"type": "no-such-signal", "data": {}}),
        ):
            asks.produce(f"{prefix}-asks", key.encode(), json.dumps(value).encode(), 0)
        asks.commit()
    assert pipeline.drain() is not None
    assert sorted(reads(pipeline, "a").values()) == [1] * 40 and reads(pipeline, "b") == {}
    check_exact(pipeline, root, "a")
    assert rows(root, "SHOW BINARY LOG STATUS") == end
    assert any("no-such-signal" in line and "refused" in line for line in pipeline.lines)
    assert any("nothing" in line and "no captured table" in line for line in pipeline.lines)
    assert pipeline.drain() is None, "each message is carried out once"


@pytest.mark.req("INC-17", "INC-18", "FAULT-19")
def test_a_snapshot_that_rests_goes_on_where_it_stopped(pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, *filled(database, "a", count=64))
    pipeline.snapshot()
    for kind, data in (("execute-snapshot", {"data-collections": [f"{database}.a"]}), ("pause-snapshot", {})):
        send(pipeline.cfg, kind, data)
    pipeline.drain()
    assert states(pipeline) == ["waiting"] and reads(pipeline, "a") == {}
    assert pipeline.drain() is None, "nothing is read while it rests, and no job is started for it"
    send(pipeline.cfg, "resume-snapshot", {})
    pipeline.drain()
    assert states(pipeline) == ["done"] and sorted(reads(pipeline, "a").values()) == [1] * 64
    send(pipeline.cfg, "execute-snapshot", {"data-collections": [f"{database}.a"]}, "again")
    send(pipeline.cfg, "stop-snapshot", {"data-collections": [f"{database}.a"]})
    pipeline.drain()
    assert states(pipeline) == ["done", "aborted"] and sorted(reads(pipeline, "a").values()) == [1] * 64


def test_a_drain_gives_way_to_another_run_that_is_at_work(pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, *filled(database, "a", count=3))
    pipeline.snapshot()
    execute(root, f"UPDATE `{database}`.a SET v = 1")
    cfg = pipeline.cfg
    with run_lock.hold_run_lock(cfg.connection_settings(), cfg.topic_prefix, "other/run/snapshot/-1"):
        assert prepare_drain(cfg, pipeline.store, pipeline.owner, pipeline.log, give_way=True) is None
        assert any("gives way" in line for line in pipeline.lines)
        with pytest.raises(RunInProgressError):  # before Spark starts
            prepare_snapshot(cfg, pipeline.store, pipeline.owner, pipeline.log, again=True)
        assert prepare_snapshot(cfg, pipeline.store, pipeline.owner, pipeline.log) is None, "none is due"
    assert prepare_drain(cfg, pipeline.store, pipeline.owner, pipeline.log, give_way=True) is not None


@pytest.mark.parametrize("born", ["before the first snapshot", "in the stream"])
@pytest.mark.req("INC-01", "INC-18")
@pytest.mark.exhaustive(but="in the stream")
def test_a_table_that_is_new_in_the_list_comes_whole_while_the_stream_goes_on(
    pipeline: Pipeline, root: Any, database: str, stack: Any, born: str
) -> None:
    early = ("a", "b") if born == "before the first snapshot" else ("a",)
    execute(root, *filled(database, *early, count=60))
    pipeline.properties["table.include.list"] = f"{database}.a"
    pipeline.snapshot()
    if born == "in the stream":
        execute(root, *filled(database, "b", count=60))
        pipeline.drain()
    execute(root, f"UPDATE `{database}`.b SET v = 1 WHERE id = 7", f"UPDATE `{database}`.a SET v = 1 WHERE id = 7")
    pipeline.properties["table.include.list"] = f"{database}.a,{database}.b"
    writer = Writer(stack, database, ["a", "b"], 70, seed=11)
    writer.start()
    try:
        pipeline.drain()
        send(pipeline.cfg, "execute-snapshot", {"data-collections": [f"{database}.b"]})
        pipeline.drain()
    finally:
        writer.stop()
    pipeline.drain()
    assert states(pipeline) == ["done"]
    check_exact(pipeline, root, "a")
    check_exact(pipeline, root, "b", known=False)
    # A table that is taken out again ends where the drain stands that knows no more of it.
    pipeline.properties["table.include.list"] = f"{database}.a"
    execute(root, f"DELETE FROM `{database}`.b", f"UPDATE `{database}`.a SET v = v + 1")
    ended = len(pipeline.records("b"))
    assert pipeline.drain() is not None
    assert len(pipeline.records("b")) == ended
    check_exact(pipeline, root, "a")


def test_a_session_that_waits_for_events_takes_signals_too(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes while the binlog is quiet and the session only waits for its end."""
    execute(root, *filled(database, "a", count=3))
    pipeline.snapshot()
    execute(root, f"UPDATE `{database}`.a SET v = 1")
    job = pipeline.prepare("drain")
    looks: list[bool] = []

    def look(*args: Any, even_empty: bool, **more: Any) -> Any:
        if not looks:
            send(pipeline.cfg, "execute-snapshot", {"data-collections": [f"{database}.a"]})
        looks.append(even_empty)
        return plan_drain(*args, even_empty=even_empty, **more)

    monkeypatch.setattr(drain_driver, "plan_drain", look)
    monkeypatch.setattr(drain_driver, "CHECK_INTERVAL_S", 0.1)
    run_drain(replace(job.spec, run_for_s=5), ThreadRunner(1), pipeline.log)
    assert looks.count(True) == 1 and states(pipeline) == ["done"]


@pytest.mark.exhaustive
def test_a_name_means_the_same_table_until_the_window_is_over(
    properties: dict[str, str], root: Any, database: str, stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another table takes the name at the end of the batch; what was in it before nobody may be shown."""
    pipeline = Pipeline(properties | FLAT | {"table.include.list": f"{database}.a"})
    execute(root, *filled(database, "a", count=64), *filled(database, "b", count=64, value=7))
    pipeline.snapshot()
    change = f"UPDATE `{database}`.b SET v = 8"
    swap = f"RENAME TABLE `{database}`.a TO `{database}`.old, `{database}`.b TO `{database}`.a"
    other = threading.Thread(target=lambda: execute(connection(stack), change, swap))
    opened: list[str] = []

    def point(name: str, writer: int | None = None) -> None:
        if name == "incremental.view_open":
            opened.append(name)
        elif name == "writer.done" and opened and not other.ident:
            other.start()
            other.join(1)

    monkeypatch.setattr(drain_writer, "fault_point", point)
    monkeypatch.setattr(faults, "fault_point", point)
    pipeline.slots = 1
    send(pipeline.cfg, "execute-snapshot", {"data-collections": [f"{database}.a"]})
    pipeline.drain()
    other.join(20)
    pipeline.drain()
    assert opened and rows(root, f"SELECT DISTINCT v FROM `{database}`.a") == [(8,)]
    found = {row["id"]: row["v"] for row in compacted(pipeline.records("a")).values()}
    assert set(found.values()) in ({0}, {8}), "rows of the table that took the name, from before it did"
