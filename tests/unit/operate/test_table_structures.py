"""The version of a table's structure is the last record of the schema history that changes it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.operate import schema_history
from airflow_provider_mysql_cdc.cdc.operate.schema_history import StructureRecord, _continues, with_records
from airflow_provider_mysql_cdc.cdc.schema.history_replay import TopicEnd
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo


def record(offset: int, *changes: tuple[str, str], server: str = "shop", **more: Any) -> TopicRecord:
    """Return a record of the history that names tables with what is done to them."""
    listed = [{"type": kind, "id": name} for kind, name in changes]
    value = {"source": {"server": server}, "ts_ms": offset * 10, "tableChanges": listed, **more}
    return TopicRecord(0, offset, None, json.dumps(value).encode())


def versions(*records: TopicRecord, before: dict[str, StructureRecord] | None = None) -> dict[str, int]:
    """Return the records of captured tables, those of the database ``a``."""
    found = with_records(before or {}, iter(records), "shop", lambda table: table.db == "a")
    assert all(version.ts_ms == version.offset * 10 for version in found.values())
    return {table: version.offset for table, version in found.items()}


def test_the_last_change_of_a_table_counts() -> None:
    first = record(1, ("CREATE", '"a"."t"'), ("CREATE", '"a"."u"'), ("CREATE", '"b"."t"'))
    assert versions(first, record(2, ("ALTER", '"a"."t"'))) == {"a.t": 2, "a.u": 1}
    assert versions(first, record(2, ("DROP", '"a"."t"')), record(3, ("CREATE", '"a"."t"'))) == {"a.t": 3, "a.u": 1}
    assert versions(first, record(2, ("DROP", '"a"."t"'))) == {"a.u": 1}
    assert versions(record(4, ("ALTER", '"a"."t"')), before={"a.u": StructureRecord(3, 30)}) == {"a.u": 3, "a.t": 4}


def test_a_description_names_its_table_too_and_odd_names_are_those_of_assets() -> None:
    described = record(5, structure={"id": {"db": "a", "table": "x.y"}})
    assert versions(described, record(6, ("CREATE", '"a"."q""q"'))) == {
        TableId("a", "x.y").path(): 5,
        TableId("a", 'q"q').path(): 6,
    }


@for_each(
    "other",
    [
        record(2, ("ALTER", '"a"."t"'), server="other"),
        TopicRecord(0, 2, None, b"no JSON"),
        TopicRecord(0, 2, None, None),
        record(2, tableChanges=5),
        record(2, ("ALTER", "unquoted")),
        record(2, ts_ms="now"),
    ],
)
def test_what_cannot_be_read_says_nothing(other: TopicRecord) -> None:
    assert versions(record(1, ("CREATE", '"a"."t"')), other, record(3, ("CREATE", '"a"."u"'))) == {"a.t": 1, "a.u": 3}


def test_a_later_reading_keeps_what_is_known_and_adds_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    log, read = [record(n, ("CREATE", f'"a"."t{n}"')) for n in range(5)], list[range]()

    def between(*_: Any, since: dict[int, int], **__: Any) -> Any:
        read.append(range(since[0], end))
        return iter(log[since[0] : end])

    monkeypatch.setattr(schema_history, "make_admin", lambda _: None)
    monkeypatch.setattr(schema_history, "existing_topics", lambda _, names: dict.fromkeys(names, TopicInfo(1, "id", 1)))
    monkeypatch.setattr(schema_history, "end_offsets", lambda *_, **__: {0: (0, end)})
    monkeypatch.setattr(schema_history, "read_topic", between)
    cfg, found = config(topic__prefix="shop", database__include__list="a"), None
    for end in (3, 3, 5):
        found = schema_history.read_table_structures(cfg, found)
        assert list(found.versions) == [f"a.t{n}" for n in range(end)]
    assert read == [range(3), range(3, 5)]


def test_only_the_same_topic_is_read_on() -> None:
    assert _continues(TopicEnd("x", 5), TopicEnd("x", 5)) and _continues(TopicEnd("x", 5), TopicEnd("x", 9))
    assert not _continues(TopicEnd("x", 5), TopicEnd("y", 9)), "made anew"
    assert not _continues(TopicEnd("x", 5), TopicEnd("x", 4))
    assert not _continues(TopicEnd(None, 5), TopicEnd(None, 9)), "a broker without topic ids"
