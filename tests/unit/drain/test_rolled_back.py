"""ROLLBACK in the binlog behind rows is named, and never taken for a COMMIT."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from kit.cases import for_each
from kit.drain_rig import Rig

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.errors import UnsupportedEventError


def statement(sql: str, pos: int) -> Event:
    body = struct.pack("<IIBHH", 11, 0, 2, 0, 0) + b"db\0" + sql.encode()
    return Event(c.QUERY_EVENT, 0, 1, 0, "b.000001", pos, pos + 50, body, 0, len(body), False)


@for_each("sql", ["ROLLBACK", "rollback ;", "ROLLBACK TO `s`", "ROLLBACK TO SAVEPOINT s"])
def test_rows_before_it_end_the_batch(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    rig = Rig(monkeypatch)

    def events(_: Any) -> Iterator[Any]:
        yield statement("BEGIN", 4)
        rig.sink.produce("p.d.t", b"k", b"v", 0)
        rig.writer.position.add_rows(1)
        yield statement(sql, 500)

    with pytest.raises(UnsupportedEventError, match=r"rolled back in the binlog") as caught:
        rig.run(events)
    assert "b.000001:500" in caught.value.where and not caught.value.can_retry
    assert rig.markers() == []


@for_each("sql", ["ROLLBACK", "ROLLBACK TO `s`", "SAVEPOINT `s`", "COMMIT"])
def test_without_rows_it_is_nothing(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    rig = Rig(monkeypatch)
    rig.run(lambda _: iter([statement("BEGIN", 4), statement(sql, 500)]))
    assert rig.markers()[-1]["offset"]["pos"] == 9999
