"""The checks of the history topic before it is read or written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.errors import SchemaError, SinkError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.schema import history, history_owner
from airflow_provider_mysql_cdc.cdc.schema.history_cache import HistoryCache, TopicEnd
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import HiddenByTransaction, TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo

OWN = HistoryRecord("p", BinlogOffset("binlog.000001", 4), 1, 1, "d", "CREATE TABLE t (a INT)").to_bytes()
LONG = 5000


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> dict[int, bytes]:
    """Return records of a long topic by offset; all others are this stream's."""
    records: dict[int, bytes] = {}

    def read(settings: Any, name: str, bounds: Mapping[int, tuple[int, int]], **_: Any) -> Iterator[TopicRecord]:
        for first, end in bounds.values():
            yield from (TopicRecord(0, offset, None, records.get(offset, OWN)) for offset in range(first, end))

    monkeypatch.setattr(history_owner, "end_offsets", lambda *_, **__: {0: (10, LONG)})
    monkeypatch.setattr(history_owner, "read_between", read)
    monkeypatch.setattr(history, "make_admin", lambda _: None)
    monkeypatch.setattr(history, "require_settings", lambda *_, **__: None)
    monkeypatch.setattr(history, "first_offsets", lambda *_: {0: 0})
    monkeypatch.setattr(history, "existing_topics", lambda _, names: dict.fromkeys(names, TopicInfo(1, "id", 1)))
    return records


@pytest.mark.parametrize("offset", [10, 509, LONG - 500, LONG - 1])
def test_a_sample_reads_the_beginning_and_the_end(topic: dict[int, bytes], offset: int) -> None:
    history.require_own_history(config(), sample=True)
    topic[offset] = b"other"
    with pytest.raises(SchemaError, match=f"not this stream's.*offset {offset}"):
        history.require_own_history(config(), sample=True)


def test_what_a_transaction_hides_is_left_to_the_batch(
    topic: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: Any, **__: Any) -> Iterator[TopicRecord]:
        yield TopicRecord(0, 10, None, OWN)
        raise HiddenByTransaction

    monkeypatch.setattr(history_owner, "read_between", read)
    history.require_own_history(config(), sample=True)


@pytest.mark.req("SCH-06")
def test_a_history_without_its_first_records_is_named_before_a_snapshot(
    topic: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot would succeed, and the first drain after it could not read the topic."""
    monkeypatch.setattr(history, "first_offsets", lambda *_: {0: 3})
    for check in (history.require_history, partial(history.require_own_history, sample=True)):
        with pytest.raises(SchemaError, match="first records of the schema history were deleted"):
            check(config())
    history.require_own_history(config(snapshot__mode="recovery"), sample=True)
    topic[10] = b"other"
    with pytest.raises(SchemaError, match="not this stream's"):
        history.require_own_history(config(), sample=True)


@pytest.mark.req("SCH-05")
def test_several_partitions_are_refused_unless_the_topic_is_recreated(
    topic: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "existing_topics", lambda _, names: dict.fromkeys(names, TopicInfo(2, "id", 1)))
    for check in (history.require_history, partial(history.require_own_history, sample=True)):
        with pytest.raises(SchemaError, match="no single order"):
            check(config())
    history.require_own_history(config(snapshot__mode="recovery"), sample=True)


@pytest.mark.parametrize("prefix", ["", "p"])
def test_a_damaged_record_of_its_own_is_damaged_and_no_other_programs(prefix: str) -> None:
    damaged = OWN.replace(b'"server":"p"', f'"server":"{prefix}"'.encode()).replace(b'"pos":4', b'"pos":"four"')
    assert b"four" in damaged
    history_owner.require_own_record(config(), TopicRecord(0, 1, None, damaged))


@for_each(
    ("end", "offset", "found"),
    [
        (TopicEnd("id", 7), 7, TopicEnd("id", 7)),
        (TopicEnd("id", 7), 8, None),
        (TopicEnd("id", 7), 3, None),
        (TopicEnd("id", 7), None, None),
        (TopicEnd(None, 0), 0, None),
    ],
)
def test_a_history_that_ends_where_a_job_has_read_to_is_not_described_again(
    monkeypatch: pytest.MonkeyPatch, end: TopicEnd, offset: int | None, found: TopicEnd | None
) -> None:
    def last_offsets(*_: Any) -> dict[int, int]:
        if offset is None:
            raise SinkError("the topic does not exist")
        return {0: offset}

    monkeypatch.setattr(history, "make_admin", lambda _: None)
    monkeypatch.setattr(history, "last_offsets", last_offsets)
    assert history.unmoved_end(config(), HistoryCache(end)) == found
