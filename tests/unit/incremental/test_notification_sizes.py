"""Notifications of a snapshot of many tables: their size grows with the number of tables, and not with its square."""

from __future__ import annotations

from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.incremental import notifications
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import IncrementalState
from airflow_provider_mysql_cdc.cdc.incremental.scan_updates import SnapshotRequest, queue_scans
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import DoneKeyRange, KeyRange
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals.notification_record import (
    MAX_ADDITIONAL_CHARS,
    join_names,
    notification_record,
)

CFG = config(notification__enabled__channels="sink", notification__sink__topic__name="notices")


def snapshot_bytes(count: int) -> int:
    """Return the bytes of all notifications of a snapshot of so many tables, each of one key range."""
    tables = [TableId("warehouse", f"orders_of_{n:05}") for n in range(count)]
    state = queue_scans(IncrementalState(), SnapshotRequest("all", "incremental", tables, {}), 1)
    ranges = [DoneKeyRange(KeyRange(t, n, 0, ("id",), ("SIGNED",), None, (9,), True), 1) for n, t in enumerate(tables)]
    after = state.with_scans([scan.finish() for scan in state.active_scans])
    published = [notifications.started(state, "all"), *notifications.changed(state, after, ranges)]
    records = [notification_record(CFG, n.aggregate_type, n.type, n.id, n.additional_data, 1) for n in published]
    assert len(records) == 2 * count + 2
    return sum(len(record.value or b"") for record in records if record is not None)


def test_twice_the_tables_are_twice_the_bytes() -> None:
    assert snapshot_bytes(1000) < 2.2 * snapshot_bytes(500) and snapshot_bytes(1000) < 3_000_000


def test_a_long_list_ends_with_the_number_of_the_others() -> None:
    names = [f"d.t{n}" for n in range(100)]
    assert join_names(names[:3]) == "d.t0,d.t1,d.t2" and join_names([]) == ""
    assert join_names(["d.a", "d.b", "d.a"]) == "d.a,d.b", "a table with two scans"
    short = join_names(names, 40)
    assert short == "d.t0,d.t1,d.t2,d.t3,d.t4,and 95 more" and len(short) <= 40
    exact = ",".join(names)
    assert join_names(names, len(exact)) == exact and join_names(names, len(exact) - 1).endswith(",and 3 more")
    assert join_names(["n" * 70_000, "m"]) == "and 2 more"
    many = join_names(f"database.table_{n}" for n in range(10_000))
    assert len(many) <= MAX_ADDITIONAL_CHARS and many.partition(",and ")[2].endswith(" more")
