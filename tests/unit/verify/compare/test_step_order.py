"""The order of a key's events where the stream has gone on at another server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.table_records import TableRecords

from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventRecord, event_identity
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import compared_table
from airflow_provider_mysql_cdc.cdc.verify.structures.structure_versions import StructureVersion, TableVersions

pytestmark = pytest.mark.quick

TABLE = TableRecords("CREATE TABLE t (id INT PRIMARY KEY, v INT)", {})
NOW_MS = 1_795_731_228_100


def source(file: int, pos: int, at_ms: int, gtid: str = "") -> dict[str, Any]:
    return {"file": f"binlog.{file:06}", "pos": pos, "ts_ms": at_ms, "gtid": gtid or None}


BEFORE, AFTER = source(11, 9000, NOW_MS), source(6, 400, NOW_MS + 80)


@pytest.mark.parametrize("one_binlog", [True, False])
def test_within_a_second_of_two_servers_the_milliseconds_decide(one_binlog: bool) -> None:
    versions = TableVersions((StructureVersion(BinlogOffset("binlog.000001", 4), TABLE.table),), one_binlog)
    compared = compared_table(TABLE.cfg, 0, TABLE.table, versions=versions)
    assert (compared.step_order(BEFORE) < compared.step_order(AFTER)) is not one_binlog
    assert compared.step_order(BEFORE | {"ts_ms": None}) == (compared.step_order(BEFORE) if one_binlog else 0)
    assert compared.step_order(BEFORE | {"_tidb_commit_ts": 77}) == 77


def test_events_of_two_servers_at_one_position_are_told_apart_by_their_transactions() -> None:
    one = EventRecord("c", None, None, None, source(6, 400, NOW_MS, "a:1"))
    again = replace(one, source=source(6, 400, NOW_MS, "b:1"))
    assert event_identity(one, 5, ()) != event_identity(again, 5, ())
    assert event_identity(one, 5, ()) == event_identity(replace(one), 5, ())
