"""What properties of jobs change in how a job is cut, planned, paced and bounded; the server is left out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import case, for_each
from kit.decode_builder import column, table
from kit.memory_job import config
from kit.store_contract import END, START, plan

from airflow_provider_mysql_cdc.cdc.binlog import broken_connections
from airflow_provider_mysql_cdc.cdc.binlog.position import BinlogEnd
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.drain import batch_planner, drain_driver, drain_writer, reconnects
from airflow_provider_mysql_cdc.cdc.drain.failover import failover
from airflow_provider_mysql_cdc.cdc.errors import CdcError, SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.incremental import window_driver
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState
from airflow_provider_mysql_cdc.cdc.signals import signal_table
from airflow_provider_mysql_cdc.cdc.snapshot import snapshot_driver, view_coordinator
from airflow_provider_mysql_cdc.cdc.verify import group_queue
from airflow_provider_mysql_cdc.cdc.verify.repair import repair_window
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import RepairMode, VerifyRequest
from airflow_provider_mysql_cdc.cdc.verify.views import replica_views

T = table(column("id", "INT", nullable=False), key=("id",))
Patch = pytest.MonkeyPatch
Measure = Callable[[Patch, ConnectorConfig], Any]


class Asked(Exception):
    """Carry what was asked for."""


def _asking(*given: Any, **named: Any) -> Any:
    raise Asked(*given)


def _asked(call: Callable[[], object]) -> Any:
    with pytest.raises(Asked) as asked:
        call()
    return asked.value.args


def chunk_rows(patch: Patch, cfg: ConnectorConfig) -> Any:
    """Return the rows of each chunk; 0 for a table of which none are read."""
    sizes = list[int]()
    patch.setattr(snapshot_driver, "split_table", lambda conn, table, rows, single_chunk: sizes.append(rows) or [])
    patch.setattr(snapshot_driver, "check_override", lambda *given: None)
    driver = SimpleNamespace(cfg=cfg)
    driver._reads = partial(snapshot_driver._SnapshotDriver._reads, driver)
    snapshot_driver._SnapshotDriver._plan_chunks(driver, None, {T.id: T}, {})  # type: ignore[arg-type]
    return sum(sizes)


def snapshot_tasks(patch: Patch, cfg: ConnectorConfig) -> Any:
    driver = SimpleNamespace(cfg=cfg, runner=SimpleNamespace(slots=_asking))
    queue: Any = SimpleNamespace(waiting=range(99))
    read: Any = snapshot_driver._SnapshotDriver._read_chunks
    return _asked(lambda: read(driver, queue, START, None, None, None, None))[0]


def window_tasks(patch: Patch, cfg: ConnectorConfig) -> Any:
    driver: Any = SimpleNamespace(cfg=cfg, runner=SimpleNamespace(slots=_asking))
    return _asked(lambda: window_driver.WindowDriver._task_count(driver))[0]


def key_range_rows(patch: Patch, cfg: ConnectorConfig) -> Any:
    patch.setattr(window_driver, "read_incremental_state", lambda ledger: IncrementalState())
    patch.setattr(window_driver.KeyRangeQueue, "for_scans", _asking)
    cursor = SimpleNamespace(execute=lambda sql: None)
    conn = SimpleNamespace(cursor=lambda: nullcontext(cursor))
    driver: Any = SimpleNamespace(cfg=cfg, conn=conn, log=None, _write_state=lambda *states: None)
    scans: Any = ((), SimpleNamespace(renamed=lambda scans: (), stream_offset=None))
    return _asked(lambda: window_driver.WindowDriver._build_queue(driver, None, scans, None))[3]  # type: ignore[arg-type]


def batch(patch: Patch, cfg: ConnectorConfig) -> Any:
    """Return where a batch ends, and its writers; it has 100 bytes."""
    patch.setattr(batch_planner, "choose_end", lambda conn, start, most, reached: replace(END, pos=END.pos + most))
    patch.setattr(batch_planner, "check_available", lambda conn, settings, start: start)
    patch.setattr(batch_planner, "range_bytes", lambda conn, start, end: 100)
    patch.setattr(batch_planner, "_build_plan", lambda cfg, conn, span, *given: (span[1].pos - END.pos, given[-1]))
    patch.setattr(batch_planner, "with_assignments", lambda cfg, conn, plan, weights: plan)
    return batch_planner.plan_drain(cfg, None, START, 1, "o", {}, reached=BinlogEnd(END, ""))


def view(patch: Patch, cfg: ConnectorConfig) -> Any:
    """Return mode and time limit of the lock of a snapshot's view."""
    patch.setattr(view_coordinator, "connect", lambda settings: nullcontext())
    patch.setattr(view_coordinator, "open_view", _asking)
    barrier = SimpleNamespace(wait=lambda point: None)
    leader: Any = SimpleNamespace(cfg=cfg, barrier=barrier, tables=[], callbacks=SimpleNamespace(on_lock=None))
    return _asked(lambda: view_coordinator.ViewOpener.lead(leader, None))[3:5]  # type: ignore[arg-type]


def between_batches(patch: Patch, cfg: ConnectorConfig) -> Any:
    """Return the seconds between the starts of two batches."""
    held = SimpleNamespace(require=None, close=lambda: None, timer=None)
    patch.setattr(drain_driver, "run_lock", SimpleNamespace(hold_run_lock=lambda *given: nullcontext(held)))
    patch.setattr(drain_driver, "JobLedger", lambda *given: nullcontext(SimpleNamespace(schema_ids=None)))
    for name in ("DriverConnection", "BatchWriters", "Heartbeats", "SucceedingRunner"):
        patch.setattr(drain_driver, name, lambda *given, **named: held)
    patch.setattr(drain_driver, "BatchInterval", _asking)
    made = plan(writers=1).to_json()
    spec: Any = SimpleNamespace(properties=cfg.properties(), run_for_s=0, plan=made, owner="o", run="r")
    return _asked(lambda: drain_driver.run_drain(spec, None, print))[0]  # type: ignore[arg-type]


def between_looks(patch: Patch, cfg: ConnectorConfig) -> Any:
    """Return the seconds between two looks for something to drain."""
    patch.setattr(drain_driver, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=_asking))
    patch.setattr(drain_driver, "new_end", lambda conn, start: None)
    ledger = SimpleNamespace(end=lambda: START, plan_in_force=lambda: SimpleNamespace(kind="drain", epoch=1))
    job, source = SimpleNamespace(latest=lambda: ledger), SimpleNamespace(conn=None)
    waits: Any = (cfg, source, job, None, {}, (0.0, 9.0), None, lambda: None)
    return _asked(lambda: drain_driver._next_plan(*waits))[0]


def asks_gtids(patch: Patch, cfg: ConnectorConfig) -> Any:
    patch.setattr(failover, "fetch_all", lambda conn, sql: [("ON",)])
    patch.setattr(failover, "_no_gtids_error", lambda conn, offset, why: SourceError(why))
    offset = replace(START, gtids="00010203-0405-0607-0809-0a0b0c0d0e0f:1-5")
    try:
        return str(failover._stored_gtids(cfg, None, offset))
    except CdcError:
        return None


def groups(patch: Patch, cfg: ConnectorConfig) -> Any:
    patch.setattr(group_queue, "verdict_basis", lambda *given: None)
    for name in ("known_captured", "unknown_tables", "choose_tables"):
        patch.setattr(group_queue, name, lambda *given: ())
    patch.setattr(group_queue, "sized_tables", lambda *given: [])
    patch.setattr(group_queue, "plan_groups", _asking)
    context: Any = SimpleNamespace(cfg=cfg, conn=None)
    request: Any = SimpleNamespace(repair=RepairMode.NO, tables=())
    return _asked(lambda: group_queue.plan_group_queue(context, request, ""))[1]


def repaired(patch: Patch, cfg: ConnectorConfig) -> Any:
    return repair_window.most_found(cfg, VerifyRequest(repair=RepairMode.YES, examples=1))


def waits_for_replica(patch: Patch, cfg: ConnectorConfig) -> Any:
    patch.setattr(replica_views, "connect_replica", lambda settings: nullcontext())
    patch.setattr(replica_views, "require_usable_replica", lambda *given: None)
    patch.setattr(replica_views, "time", SimpleNamespace(monotonic=lambda: 100.0))
    patch.setattr(replica_views, "_wait_for_stream", _asking)
    settings: Any = SimpleNamespace(address=lambda: "")
    opened = _asked(lambda: replica_views.open_replica_views(cfg, None, settings, [], START, print, print))
    return opened[3] - 100.0


def created_tables(patch: Patch, cfg: ConnectorConfig) -> Any:
    made = list[str]()
    patch.setattr(signal_table, "read_table_facts", lambda conn, cfg: signal_table.SignalTableFacts({}))
    patch.setattr(signal_table, "create_signal_table", lambda conn, table: made.append(str(table)))
    patch.setattr(signal_table, "signal_table_problems", lambda facts, cfg: [])
    signal_table.require_watermarks(None, cfg, print)
    return made


EFFECTS: list[tuple[str, str, Measure, Any, Any, dict[str, str]]] = [
    ("snapshot.chunk.rows", "7", chunk_rows, 100_000, 7, {}),
    ("snapshot.include.collection.list", r"db\.other", chunk_rows, 100_000, 0, {}),
    ("snapshot.parallelism", "2", snapshot_tasks, 0, 2, {}),
    ("snapshot.locking.mode", "extended", view, ("minimal", 10), ("extended", 10), {}),
    ("snapshot.lock.timeout.ms", "7000", view, ("minimal", 10), ("minimal", 7), {}),
    ("incremental.snapshot.chunk.size", "7", key_range_rows, 1024, 7, {}),
    ("max.batch.bytes", "7", batch, (0, 1), (7, 1), {}),
    ("drain.writers", "3", batch, (0, 1), (0, 3), {"drain.small.batch.bytes": "0"}),
    ("drain.small.batch.bytes", "0", batch, (0, 1), (0, 3), {"drain.writers": "3"}),
    ("poll.interval.ms", "20", between_looks, 0.25, 0.02, {}),
    ("gtid.ignore.on.recovery", "true", asks_gtids, "00010203-0405-0607-0809-0a0b0c0d0e0f:1-5", None, {}),
    ("signal.data.collection.create", "true", created_tables, [], ["d.s"], {"signal.data.collection": "d.s"}),
    ("verify.group.rows", "7", groups, 10_000_000, 7, {}),
    ("repair.max.rows", "7", repaired, 1000, 7, {}),
    ("verify.replica.timeout.ms", "7000", waits_for_replica, 600.0, 7.0, {}),
]


@for_each(("name", "value", "measure", "before", "after", "given"), EFFECTS)
def test_a_property_changes_what_a_job_does(
    monkeypatch: Patch, name: str, value: str, measure: Measure, before: Any, after: Any, given: dict[str, str]
) -> None:
    for properties, wanted in ((given, before), (given | {name: value}, after)):
        with case(properties):
            assert measure(monkeypatch, config(**properties)) == wanted


def test_a_property_changes_what_other_parts_of_the_job_do(monkeypatch: Patch) -> None:
    """The second of two places that read it."""
    for properties, tasks in (({}, 0), ({"snapshot.parallelism": "2"}, 2)):
        assert window_tasks(monkeypatch, config(**properties)) == tasks
    for properties, seconds in (({}, 0.35), ({"poll.interval.ms": "20"}, 0.02)):
        assert between_batches(monkeypatch, config(**properties)) == seconds


def test_a_broken_connection_is_opened_again_as_often_as_it_may_be(monkeypatch: Patch) -> None:
    def broken(conn: Any, sql: str) -> Any:
        raise SourceConnectionError("broken")

    monkeypatch.setattr(broken_connections, "reconnect_delays", _asking)
    monkeypatch.setattr(reconnects, "Reconnects", _asking)
    monkeypatch.setattr(reconnects, "fetch_all", broken)
    monkeypatch.setattr(drain_writer, "Reconnects", _asking)
    monkeypatch.setattr(drain_driver, "run_lock", SimpleNamespace(hold_run_lock=lambda *given: _asking(given[3])))
    for properties, attempts in (({}, 8), ({"connect.max.attempts": "3"}, 3)):
        cfg = config(**properties)
        source: Any = SimpleNamespace(_cfg=cfg, conn=None, close=lambda: None, _log=None)
        writer: Any = SimpleNamespace(context=SimpleNamespace(cfg=cfg), committer=SimpleNamespace(check=0, note=0))
        spec: Any = SimpleNamespace(properties=cfg.properties(), run_for_s=0, plan=plan(writers=1).to_json(), owner="o")
        calls: list[Callable[[], object]] = [
            partial(broken_connections.read_with_retries, cfg, print, print),
            partial(reconnects.DriverConnection.renew_if_broken, source, print),
            partial(drain_writer.DrainWriter._read_batch, writer),
            partial(drain_driver.run_drain, spec, None, print),  # type: ignore[arg-type]
        ]
        assert [_asked(call)[0] for call in calls] == [attempts] * 4
