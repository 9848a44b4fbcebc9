"""The metrics of real runs: what snapshots, drains and ad-hoc snapshots measure, and what the ledger says of it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.incremental_rig import ask_for
from kit.sql import execute, rows
from kit.table_rig import filled
from kit.tcp_proxy import tcp_proxy
from pipelinelib.pipeline import Pipeline
from pipelinelib.stand_ins import ThreadRunner

from airflow_provider_mysql_cdc.cdc.binlog import broken_connections
from airflow_provider_mysql_cdc.cdc.commit import kafka_clients
from airflow_provider_mysql_cdc.cdc.commit.run_tally import current_tally
from airflow_provider_mysql_cdc.cdc.drain import committer, reconnects, writer_meter
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SinkError
from airflow_provider_mysql_cdc.cdc.faults import FaultRaised
from airflow_provider_mysql_cdc.cdc.incremental.drain_job import run_drain
from airflow_provider_mysql_cdc.cdc.job import job_metrics
from airflow_provider_mysql_cdc.cdc.metrics.metric_table import METRICS
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamCounts
from airflow_provider_mysql_cdc.cdc.operate import stream_status
from airflow_provider_mysql_cdc.cdc.operate.stream_status import read_status
from airflow_provider_mysql_cdc.cdc.snapshot import chunk_queue
from airflow_provider_mysql_cdc.cdc.snapshot import rows as row_stream

PROPERTIES = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "topic.creation.default.partitions": "3",
}


def counts(pipeline: Pipeline) -> StreamCounts:
    """Return the counts in the ledger."""
    tally = current_tally(kafka_clients.ledger(pipeline.cfg).peek())
    assert tally is not None
    return tally.metrics.counts


def families(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """Return the metrics as ``mysql-cdc status`` has them."""
    return read_status(pipeline.cfg).families()


@pytest.mark.req("MET-58", "MET-25", "MET-26", "MET-27", "MET-28", "MET-29", "STRM-16", "MET-30", "MET-35")
@pytest.mark.parametrize(
    ("writers", "query"),
    [
        pytest.param("1", "false", marks=pytest.mark.native),
        pytest.param("3", "false", marks=pytest.mark.native),
        ("3", "true"),  # with statements the kernel does not decode whole transactions
    ],
)
@pytest.mark.exhaustive(but="3-true")
def test_events_are_counted_once_whatever_the_number_of_writers(
    pipeline: Pipeline, root: Any, database: str, writers: str, query: str
) -> None:
    pipeline.properties |= {"drain.writers": writers, "drain.small.batch.bytes": "0", "include.query": query}
    pipeline.properties |= {"table.exclude.list": rf"{database}\.left_out"}
    execute(root, *filled(database, "a", "b", "left_out", count=2))
    pipeline.snapshot()
    execute(
        root,
        f"INSERT INTO `{database}`.a VALUES (10, 0), (11, 0), (12, 0)",
        f"UPDATE `{database}`.a SET v = 1 WHERE id IN (10, 11)",
        f"DELETE FROM `{database}`.a WHERE id = 12",
        # Of the rows of one statement each writer has some.
        f"INSERT INTO `{database}`.a VALUES {','.join(f'({key}, 0)' for key in range(30, 54))}",
        *(f"DELETE FROM `{database}`.a WHERE id BETWEEN {key} AND {key + 3}" for key in range(30, 54, 4)),
        f"UPDATE `{database}`.b SET id = id + 100 WHERE id IN (0, 1)",
        f"INSERT INTO `{database}`.left_out VALUES (10, 0), (11, 0)",
        f"UPDATE `{database}`.left_out SET v = 7",
    )
    pipeline.drain()
    # Two changed keys are two deletes and two creates; each statement on the table that is left out is one event.
    expected = StreamCounts(created=29, updated=2, deleted=27, filtered=2, committed=13)
    assert counts(pipeline) == expected
    streaming = families(pipeline)["streaming"]
    assert streaming["TotalNumberOfEventsSeen"] == 60
    assert streaming["TotalNumberOfCreateEventsSeen"] == 29
    assert streaming["TotalNumberOfUpdateEventsSeen"] == 2
    assert streaming["TotalNumberOfDeleteEventsSeen"] == 27
    assert streaming["NumberOfEventsFiltered"] == 2
    assert streaming["NumberOfCommittedTransactions"] == 13
    assert streaming["CapturedTables"] == [f"{database}.a", f"{database}.b"]
    execute(root, f"INSERT INTO `{database}`.a VALUES (20, 0)")
    pipeline.drain()
    assert counts(pipeline) == replace(expected, created=30, committed=14), "counts go on from run to run"


@pytest.mark.req("MET-23", "MET-24", "MET-34", "MET-36", "MET-37", "MET-40", "MET-41", "MET-42", "MET-43", "MET-33")
def test_position_and_last_event_are_those_of_the_binlog(pipeline: Pipeline, root: Any, database: str) -> None:
    pipeline.properties["include.query"] = "true"  # so that the kernel does not decode whole transactions
    execute(root, *filled(database, "a", count=2))
    pipeline.snapshot()
    assert "streaming" not in families(pipeline)
    execute(root, f"INSERT INTO `{database}`.a VALUES (10, 0)")
    execute(root, f"UPDATE `{database}`.a SET v = 1 WHERE id = 10")
    (file, end, *_, gtids), gtid = rows(root, "SHOW BINARY LOG STATUS")[0], rows(root, "SELECT @@server_uuid")[0][0]
    time.sleep(1.5)
    pipeline.drain()
    status = read_status(pipeline.cfg)
    streaming = status.families()["streaming"]
    assert f"table={database}.a, op=u, file={file}, pos=" in streaming["LastEvent"]
    place = streaming["SourceEventPosition"]
    assert place["file"] == file and int(place["pos"]) < end
    assert place["server_id"] == str(rows(root, "SELECT @@server_id")[0][0])
    assert (streaming["BinlogFilename"], streaming["BinlogPosition"]) == (file, end)
    assert streaming["IsGtidModeEnabled"] is True
    assert streaming["GtidSet"] == str(gtids).replace("\n", "")
    assert streaming["LastTransactionId"] == place["gtid"] and place["gtid"].startswith(gtid)
    assert streaming["Connected"] is False, "no run is active"
    # The drain began 1.5 s after the last commit, and what it has handled is not older now.
    stored = status.metrics.streaming["MilliSecondsBehindSource"]
    assert 1_400 <= stored < 60_000
    assert 0 <= streaming["MilliSecondsSinceLastEvent"] < 60_000


@pytest.mark.req("MET-60")
def test_what_a_status_says_is_in_the_table(pipeline: Pipeline, root: Any, database: str) -> None:
    """All of them at once, so that each metric of the table is made somewhere, and each that is made is described."""
    execute(root, *filled(database, "a", count=40))
    pipeline.properties["incremental.snapshot.chunk.size"] = "1"
    pipeline.snapshot()
    seen = {("snapshot", name) for name in families(pipeline)["snapshot"]}
    execute(root, f"INSERT INTO `{database}`.a VALUES (100, 0)", f"ALTER TABLE `{database}`.a ADD COLUMN w INT")
    ask_for(pipeline, ["a"])
    pipeline.drain()
    for family in ("streaming", "schema-history"):
        seen |= {(family, name) for name in families(pipeline)[family]}
    assert seen == {(str(metric.family), metric.name) for metric in METRICS if not metric.absent}
    assert "snapshot" not in families(pipeline), "it belongs to an earlier run (MET-60)"


@pytest.mark.req("MET-45", "MET-33")
def test_a_connection_that_breaks_is_counted(
    properties: dict[str, str], stack: Any, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broken_connections, "FIRST_DELAY_S", 0.01)
    seen = list[bool]()
    wait = reconnects.Reconnects.wait

    def noted_wait(self: Any, *args: Any) -> None:
        seen.append(self.check.__self__.counts.meter.connected)
        wait(self, *args)

    monkeypatch.setattr(reconnects.Reconnects, "wait", noted_wait)
    with tcp_proxy(stack.mysql_host, stack.mysql_port) as proxy:
        pipeline = Pipeline(properties | PROPERTIES | {"database.port": str(proxy.port)})
        execute(root, *filled(database, "a", count=2))
        pipeline.snapshot()
        values = ", ".join(f"({number}, 1)" for number in range(100, 30_000))
        execute(root, f"INSERT INTO `{database}`.a VALUES {values}")
        spec = pipeline.prepare("drain").spec
        proxy.cut_after(100_000, times=8)
        run_drain(spec, ThreadRunner(1), pipeline.log)
        assert pipeline.settle().complete
    assert families(pipeline)["streaming"]["NumberOfDisconnects"] >= 1
    assert seen and not any(seen), "the writer says that it is not connected while it waits"
    assert counts(pipeline).created == 29_900, "what was read twice counts once"


@pytest.mark.req("MET-46", "MET-35")
def test_transactions_that_are_rolled_back_are_counted(pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, *filled(database, "a", count=2))
    pipeline.snapshot()
    for number, verb in enumerate(("COMMIT", "ROLLBACK", "ROLLBACK")):
        xid = f"'{database}{number}'"
        execute(
            root,
            f"XA START {xid}",
            f"INSERT INTO `{database}`.a VALUES ({10 + number}, 0)",
            f"XA END {xid}",
            f"XA PREPARE {xid}",
            f"XA {verb} {xid}",
        )
    pipeline.drain()
    streaming = families(pipeline)["streaming"]
    assert streaming["NumberOfRolledBackTransactions"] == 2
    assert (streaming["NumberOfCommittedTransactions"], streaming["TotalNumberOfCreateEventsSeen"]) == (1, 1)


@pytest.mark.req("MET-44", "STRM-26")
def test_what_is_skipped_is_counted(pipeline: Pipeline, root: Any, database: str) -> None:
    pipeline.properties |= {"time.precision.mode": "connect", "event.processing.failure.handling.mode": "warn"}
    execute(root, f"CREATE TABLE `{database}`.clock (id INT PRIMARY KEY, t TIME NOT NULL)")
    pipeline.snapshot()
    execute(root, f"INSERT INTO `{database}`.clock VALUES (1, '01:00:00'), (2, '100:00:00'), (3, '100:00:01')")
    pipeline.drain()
    streaming = families(pipeline)["streaming"]
    assert (streaming["NumberOfSkippedEvents"], streaming["TotalNumberOfCreateEventsSeen"]) == (2, 1)


class Gate:
    """Let a writer go up to an event, and hold it there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, events: int) -> None:
        self.reached, self.open, self._left = threading.Event(), threading.Event(), events
        add_rows = writer_meter.WriterMeter.add_rows

        def held(meter: Any, *args: Any) -> None:
            add_rows(meter, *args)
            self._left -= 1
            if self._left == 10:  # each report until then is written, one after the other
                monkeypatch.setattr(committer, "PROGRESS_SECONDS", 0.0)
            if self._left == 0:
                self.reached.set()
                assert self.open.wait(60)
                monkeypatch.setattr(committer, "PROGRESS_SECONDS", 60.0)

        monkeypatch.setattr(writer_meter.WriterMeter, "add_rows", held)
        monkeypatch.setattr(job_metrics, "PUBLISH_INTERVAL_S", 0.0)
        publish = job_metrics.JobMetrics.publish_if_due

        def published(metrics: Any) -> None:
            publish(metrics)
            metrics._publishing.join()  # the writer goes on when its report is in the ledger

        monkeypatch.setattr(job_metrics.JobMetrics, "publish_if_due", published)


def until(look: Callable[[], Any], seconds: float = 30) -> Any:
    """Wait until a function returns something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


@pytest.mark.req("MET-31", "MET-32", "MET-33", "MET-38", "MET-39", "MET-49")
def test_a_run_that_hangs_is_seen_from_outside(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lag grows although nothing else happens, and its progress record gets old."""
    pipeline.properties |= {"commit.bytes": "1024", "heartbeat.interval.ms": "0", "include.query": "true"}
    execute(root, *filled(database, "a", count=2))
    pipeline.snapshot()
    assert read_status(pipeline.cfg).lag.milliseconds == 0
    execute(root, *(f"INSERT INTO `{database}`.a VALUES ({number}, 0)" for number in range(100, 600)))
    gate, spec = Gate(monkeypatch, events=300), pipeline.prepare("drain").spec
    thread = threading.Thread(target=run_drain, args=(spec, ThreadRunner(1), pipeline.log))
    thread.start()
    try:
        assert gate.reached.wait(60)
        status = until(lambda: (found := read_status(pipeline.cfg)).progress_ms is not None and found)
        streaming = status.families()["streaming"]
        assert status.active is True and status.batch["complete"] is False
        assert streaming["Connected"] is True
        assert 0 < streaming["TotalNumberOfCreateEventsSeen"] < 500
        assert streaming["QueueTotalCapacity"] == 100_000
        assert 0 < streaming["QueueRemainingCapacity"] <= 100_000
        assert streaming["MaxQueueSizeInBytes"] == 1024 and streaming["CurrentQueueSizeInBytes"] >= 0
        assert status.families()["schema-history"]["Status"] == "RUNNING"
        first = read_status(pipeline.cfg).lag
        time.sleep(1.2)
        second = read_status(pipeline.cfg).lag
        assert first.milliseconds and second.milliseconds and second.milliseconds - first.milliseconds >= 1_000
        monkeypatch.setattr(stream_status, "FRESH_MS", 0)
        stale = read_status(pipeline.cfg)
        assert stale.families()["streaming"]["MilliSecondsBehindSource"] == stale.lag.milliseconds
    finally:
        gate.open.set()
        thread.join()
    pipeline.settle()
    status = read_status(pipeline.cfg)
    assert (status.active, status.batch["ok"], status.lag.milliseconds) == (False, True, 0)
    assert status.families()["streaming"]["TotalNumberOfCreateEventsSeen"] == 500
    assert status.families()["schema-history"]["Status"] == "STOPPED"


@pytest.mark.req("MET-34")
def test_the_lag_between_runs_is_the_age_of_the_first_change_that_is_not_in_kafka(
    pipeline: Pipeline, root: Any, database: str
) -> None:
    """Nobody drains, as with a paused DAG: the lag grows from the first change of a captured table on, and no other."""
    pipeline.properties["table.include.list"] = rf"{database}\.a"
    execute(root, *filled(database, "a", "other", count=2))
    pipeline.snapshot()
    time.sleep(1.1)
    assert read_status(pipeline.cfg).lag.milliseconds == 0, "nothing happens"
    execute(root, f"UPDATE `{database}`.other SET v = v + 1", "FLUSH BINARY LOGS", "FLUSH PRIVILEGES")
    idle = read_status(pipeline.cfg).lag
    assert idle.milliseconds == 0 and idle.bytes, "only other tables change"
    execute(root, "XA START 'lag'", f"INSERT INTO `{database}`.a VALUES (9, 0)", "XA END 'lag'", "XA PREPARE 'lag'")
    assert read_status(pipeline.cfg).lag.milliseconds == 0, "it may be rolled back"
    execute(root, "XA ROLLBACK 'lag'")
    execute(root, f"INSERT INTO `{database}`.a VALUES (10, 0)")
    before = time.monotonic()
    time.sleep(1.5)
    execute(root, f"INSERT INTO `{database}`.a VALUES (11, 0)")
    lag = read_status(pipeline.cfg).lag
    assert lag.milliseconds is not None and lag.milliseconds >= 1_500
    assert lag.milliseconds <= (time.monotonic() - before) * 1000 + 1_000
    pipeline.drain()
    drained = read_status(pipeline.cfg)
    assert drained.lag.milliseconds == 0 == drained.families()["streaming"]["MilliSecondsBehindSource"]
    execute(root, f"ALTER TABLE `{database}`.a ADD COLUMN w INT")
    time.sleep(0.1)
    assert (read_status(pipeline.cfg).lag.milliseconds or 0) > 0, "a change of a captured structure is one"


def test_what_cannot_be_measured_is_not_said_to_be_zero(pipeline: Pipeline, root: Any, database: str) -> None:
    execute(root, *filled(database, "a", count=2))
    assert read_status(pipeline.cfg).lag.milliseconds is None
    pipeline.snapshot()
    pipeline.properties["database.port"] = "1"
    status = read_status(pipeline.cfg)
    assert status.active is None and status.lag.milliseconds is None and status.lag.why
    text = status.prometheus()
    assert "mysql_cdc_lag_known{" in text and "mysql_cdc_lag_seconds" not in text


@pytest.mark.req("MET-50", "MET-51", "MET-52", "MET-53", "MET-54", "MET-55", "MET-56", "MET-49", "MET-59")
def test_the_recovery_of_the_schema_history_is_measured(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(root, *filled(database, "a", count=2))
    pipeline.snapshot()
    assert "schema-history" not in families(pipeline), "a first snapshot recovers nothing"
    execute(root, f"ALTER TABLE `{database}`.a ADD COLUMN w INT")
    pipeline.drain()
    on_record, seen = job_metrics.HistoryMeter.on_record, list[str]()

    def noted(meter: Any, record: Any) -> None:
        on_record(meter, record)
        seen.append(meter.attributes()["Status"])

    monkeypatch.setattr(job_metrics.HistoryMeter, "on_record", noted)
    execute(root, f"ALTER TABLE `{database}`.a ADD COLUMN x INT")
    began = int(time.time())
    pipeline.drain()
    history = families(pipeline)["schema-history"]
    assert set(seen) == {"RECOVERING"} and history["ChangesRecovered"] == len(seen) >= 2
    assert history["ChangesApplied"] == len(seen) + 1
    assert began <= history["RecoveryStartTime"] <= time.time()
    assert history["LastRecoveredChange"] == f"ALTER TABLE `{database}`.a ADD COLUMN w INT"
    assert history["LastAppliedChange"] == f"ALTER TABLE `{database}`.a ADD COLUMN x INT"
    for name in ("MilliSecondsSinceLastRecoveredChange", "MilliSecondsSinceLastAppliedChange"):
        assert 0 <= history[name] < 60_000
    assert history["Status"] == "STOPPED"


@pytest.mark.req("MET-57", "MET-03", "MET-04", "MET-05", "MET-08", "MET-09", "MET-10", "MET-11", "MET-12", "MET-13")
def test_a_snapshot_that_is_complete_says_what_it_has_read(pipeline: Pipeline, root: Any, database: str) -> None:
    pipeline.properties |= {"table.exclude.list": rf"{database}\.left_out", "snapshot.chunk.rows": "10"}
    execute(root, *filled(database, "a", "b", "left_out", count=30), *filled(database, "c", count=1))
    execute(root, f"DELETE FROM `{database}`.c")
    pipeline.snapshot()
    snapshot = families(pipeline)["snapshot"]
    assert snapshot["TotalNumberOfEventsSeen"] == 60
    assert snapshot["NumberOfEventsFiltered"] == 0
    assert snapshot["CapturedTables"] == [f"{database}.{name}" for name in "abc"]
    assert (snapshot["TotalTableCount"], snapshot["RemainingTableCount"]) == (3, 0)
    assert snapshot["RowsScanned"] == {f"{database}.a": 30, f"{database}.b": 30, f"{database}.c": 0}
    assert (snapshot["SnapshotRunning"], snapshot["SnapshotAborted"], snapshot["SnapshotCompleted"]) == (
        False,
        False,
        True,
    )
    assert 0 <= snapshot["SnapshotDurationInSeconds"] < 120


@pytest.mark.req("MET-11", "MET-09", "MET-12")
def test_a_snapshot_that_fails_is_aborted(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline.slots = 1
    pipeline.properties |= {"snapshot.chunk.rows": "10"}
    execute(root, *filled(database, "a", "b", count=30))
    monkeypatch.setattr(chunk_queue.ChunkQueue, "done", _failing_after(chunk_queue.ChunkQueue.done, 3))
    with pytest.raises(CdcError):
        pipeline.snapshot()
    monkeypatch.undo()
    snapshot = families(pipeline)["snapshot"]
    assert (snapshot["SnapshotRunning"], snapshot["SnapshotAborted"], snapshot["SnapshotCompleted"]) == (
        False,
        True,
        False,
    )
    assert (snapshot["TotalTableCount"], snapshot["RemainingTableCount"]) == (2, 1)
    assert snapshot["RowsScanned"] == {f"{database}.a": 30, f"{database}.b": 0}


def _failing_after(method: Any, calls: int) -> Any:
    """Return a method whose later calls fail."""
    left = [calls]

    def failing(self: Any, *args: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise SinkError("this chunk is not taken", retriable=True)
        return method(self, *args)

    return failing


@pytest.mark.req("MET-14", "SNAP-56", "MET-22", "SNAP-57", "MET-01", "MET-02", "MET-10")
@pytest.mark.parametrize("mode", ["minimal", "extended"])
@pytest.mark.exhaustive(but="extended")
def test_a_running_snapshot_is_seen_from_outside(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Rows are told every 10,000, and the lock while it is held."""
    pipeline.properties["snapshot.locking.mode"] = mode
    execute(root, *filled(database, "a", count=25_000))
    seen, locks = list[dict[str, Any]](), list[bool]()
    publish, on_lock = job_metrics.JobMetrics.publish_if_due, chunk_queue.SnapshotMeter.on_lock

    def published(metrics: Any) -> None:
        publish(metrics)
        metrics._publishing.join()
        seen.append(until(lambda: published_state(metrics.snapshot())))

    def published_state(now: dict[str, Any]) -> dict[str, Any] | None:
        """Return what is seen once it is what the job knows: a commit's marker reaches a partition after EndTxn."""
        told = families(pipeline).get("snapshot", {})
        counted = ("RowsScanned", "RemainingTableCount")
        return told if all(told.get(name) == now[name] for name in counted) else None

    def noted_lock(meter: Any, held: bool) -> None:
        on_lock(meter, held)
        locks.append(meter.attributes()["HoldingGlobalLock"])

    monkeypatch.setattr(row_stream, "PIECE_BYTES", 1 << 14)  # rows come in blocks of as many as have arrived
    monkeypatch.setattr(job_metrics, "PUBLISH_INTERVAL_S", 0.0)
    monkeypatch.setattr(job_metrics, "_PUBLISH_TIMEOUT_S", 60.0)  # a record that Kafka takes too late is given up
    monkeypatch.setattr(job_metrics.JobMetrics, "publish_if_due", published)
    monkeypatch.setattr(chunk_queue.SnapshotMeter, "on_lock", noted_lock)
    pipeline.snapshot()
    read = [snapshot["RowsScanned"][f"{database}.a"] for snapshot in seen]
    assert 10_000 <= read[0] < 20_000 <= read[1] <= read[2] == 25_000
    assert [snapshot["RemainingTableCount"] for snapshot in seen] == [1, 1, 0]
    assert seen[0]["LastEvent"] == f"chunk={database}.a/0, row={read[0]}"
    assert all(0 <= snapshot["MilliSecondsSinceLastEvent"] < 600_000 for snapshot in seen), "no time since 1970"
    assert all(snapshot["SnapshotRunning"] and not snapshot["SnapshotAborted"] for snapshot in seen)
    assert all(snapshot["HoldingGlobalLock"] is (mode == "extended") for snapshot in seen)
    assert locks == [True, False]


@pytest.mark.req("MET-17", "MET-18", "MET-19", "MET-20", "MET-21")
def test_the_key_range_of_an_ad_hoc_snapshot_is_told(pipeline: Pipeline, root: Any, database: str) -> None:
    pipeline.slots = 1
    pipeline.properties["incremental.snapshot.chunk.size"] = "1"
    execute(root, *filled(database, "a", count=40))
    pipeline.snapshot()
    execute(root, f"DELETE FROM `{database}`.a WHERE id < 3")
    pipeline.drain()
    assert "ChunkId" not in families(pipeline)["streaming"]
    ask_for(pipeline, ["a"])
    pipeline.drain()
    streaming = families(pipeline)["streaming"]
    # Sixteen rows at a time: 3 to 18, 19 to 34, and the rest.
    assert streaming["ChunkId"].endswith("/2")
    assert {name: streaming[name] for name in ("ChunkFrom", "ChunkTo", "TableFrom", "TableTo")} == {
        "ChunkFrom": "[34]",
        "ChunkTo": "[39]",
        "TableFrom": "[3]",
        "TableTo": "[39]",
    }


def test_a_driver_that_dies_at_the_end_of_a_batch_loses_no_count(
    pipeline: Pipeline, root: Any, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each event counts once: of writers that committed and ended, and of those that go on after a failure."""
    pipeline.properties |= {"commit.bytes": "1024"}
    execute(root, *filled(database, "a", count=2))
    pipeline.snapshot()
    for number, point in enumerate(("driver.before_outcome", "writer.after_commit", "writer.before_commit")):
        first = 1000 * (number + 1)
        execute(root, *(f"INSERT INTO `{database}`.a VALUES ({first + n}, 0)" for n in range(100)))
        fired = tmp_path / point
        with monkeypatch.context() as patch:
            patch.setenv("MYSQL_CDC_FAULT", json.dumps({"point": point, "action": "raise", "fired": str(fired)}))
            spec = pipeline.prepare("drain").spec
            with pytest.raises((FaultRaised, CdcError)):
                run_drain(spec, ThreadRunner(1), pipeline.log)
        assert fired.exists(), "the fault never fired"
        if pipeline.settle().complete is False:
            pipeline.drain()
        assert counts(pipeline) == StreamCounts(created=100 * (number + 1), committed=100 * (number + 1))
