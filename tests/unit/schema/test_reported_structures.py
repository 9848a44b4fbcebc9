"""Structures that a row of the signal table tells hold from its transaction's end on, whenever a writer dies."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kit.cases import for_each
from kit.drain_rig import Rig
from kit.memory_kafka import MemoryKafka
from kit.signal_stream import Binlog
from unit.signals.test_signal_rows import handed_over, run

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.commit.plan import Marker
from airflow_provider_mysql_cdc.cdc.drain.topic_shares import TopicShares
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history import replay
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord

HISTORY = "schemahistory.p"
FLAT = {"value.converter.schemas.enable": "false", "include.schema.changes": "true"}


def tells(name: str, column: str, kind: str = "ALTER", type_: str = "INT") -> tuple[str, str, str]:
    """Return the row of a signal that tells a table of one column."""
    columns = [{"name": column, "typeName": type_, "optional": True}]
    change = {"type": kind, "id": '"shop"."t"', "table": {"columns": columns, "primaryKeyColumnNames": []}}
    return name, "schema-changes", json.dumps({"database": "shop", "changes": [change]})


def row(log: Binlog, value: int) -> None:
    """Insert a row of one INT into shop.t."""
    log.begin()
    log.table(7, "shop", "t", columns=((wt.LONG, 0),), charset=None)
    log.add(c.WRITE_ROWS_EVENT_V2, (7).to_bytes(6, "little") + b"\1\0\2\0\1\1\0" + value.to_bytes(4, "little"))
    log.commit()


def stream() -> Binlog:
    log = Binlog()
    log.transaction(tells("one", "v", "CREATE"), tells("wrong", "x", type_="NOTHING"))
    row(log, 1)
    log.begin()
    log.table()
    log.insert(tells("two", "w"))
    row_in_the_same_transaction(log, 2)
    log.commit()
    row(log, 3)
    return log


def row_in_the_same_transaction(log: Binlog, value: int) -> None:
    log.table(7, "shop", "t", columns=((wt.LONG, 0),), charset=None)
    log.add(c.WRITE_ROWS_EVENT_V2, (7).to_bytes(6, "little") + b"\1\0\2\0\1\1\0" + value.to_bytes(4, "little"))


def rows(kafka: MemoryKafka) -> list[dict[str, int]]:
    # The test's events have no time: their nanoseconds are no JSON.
    found = [re.search(r'"after":({.*?})', (r.value or b"").decode()) for r in kafka.committed("p.shop.t")]
    return [json.loads(match[1]) for match in found if match is not None]


def check(kafka: MemoryKafka) -> None:
    assert rows(kafka) == [{"v": 1}, {"v": 2}, {"w": 3}]
    told = [json.loads(r.value or b"") for r in kafka.committed("p")]
    assert [(t["databaseName"], t["ddl"]) for t in told] == [("shop", None)] * 2
    assert [t["tableChanges"][0]["table"]["columns"][0]["name"] for t in told] == ["v", "w"]
    history = [HistoryRecord.from_bytes(r.value or b"") for r in kafka.committed(HISTORY)]
    assert [h.position.pos for h in history] == [404, 1404]
    state = replay(history, until=BinlogOffset("b.000001", 9999), epoch=2)
    assert [column.name for column in state.tables[TableId("shop", "t")].columns] == ["w"]
    signals = [value for _, value in handed_over(kafka)]
    assert [(s["id"], s.get("applied", False)) for s in signals] == [("one", True), ("wrong", False), ("two", True)]


def bear(shares: TopicShares, table: TableId, topic: str) -> TopicShare:
    """Create a topic, without a broker."""
    shares._created_topics.add(topic)
    return shares.share_of(table)


def drained(monkeypatch: pytest.MonkeyPatch, **given: Any) -> Rig:
    monkeypatch.setattr(TopicShares, "_create_topic", bear)
    return run(monkeypatch, stream(), **FLAT, **given)[0]


def test_rows_are_decoded_with_structures_that_were_reported_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    check(drained(monkeypatch).kafka)


@for_each("commit", [(0, 1), (99, 1), (1, 2), (0, 2)], ids=["each", "none", "odd", "even"])
def test_it_is_written_once_wherever_a_writer_dies(monkeypatch: pytest.MonkeyPatch, commit: tuple[int, int]) -> None:
    number = len(stream().events)
    commits = frozenset(range(commit[0], number, commit[1]))
    for kill_at in range(number):
        rig = drained(monkeypatch, commit_at=commits, kill_at=kill_at)
        markers = [r for r in rig.kafka.committed("ledger.p") if (r.key or b"").startswith(b"writer/")]
        resume = Marker.from_json(json.loads(markers[-1].value or b"")).reached if markers else None
        drained(monkeypatch, kafka=rig.kafka, resume=resume, commit_at=commits)
        check(rig.kafka)


def test_where_the_channel_is_off_nothing_of_the_table_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Binlog()
    log.transaction(tells("one", "v", "CREATE"))
    rig, _ = run(monkeypatch, log, **FLAT, **{"signal.enabled.channels": "kafka"})
    assert rig.writer.ddl.state.tables == {} and handed_over(rig.kafka) == []
