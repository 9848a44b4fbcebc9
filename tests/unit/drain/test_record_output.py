"""What a writer produces of the records that come: those of its partitions, each on its own."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.decode_builder import column, table
from kit.drain_rig import routes_of
from kit.memory_job import config
from kit.store_contract import plan
from unit.drain.test_table_routes import AS_IT_IS, TOPIC, T, make

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.drain import table_route
from airflow_provider_mysql_cdc.cdc.drain.row_events import RecordOutput
from airflow_provider_mysql_cdc.cdc.drain.table_route import TableRoute
from airflow_provider_mysql_cdc.cdc.drain.taken_over import RecordPlace, TakenOver
from airflow_provider_mysql_cdc.cdc.drain.whole_transactions import WholeTransactions
from airflow_provider_mysql_cdc.cdc.drain.writer_meter import WriterCounts
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare, partition_of
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import AddedHeaders
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_source import TicdcSource

SHARE = TopicShare("t", 3, frozenset({1, 2}), False)
FORM: Any = SimpleNamespace()
RECORDS = [(b"k1", b"v1", 0, 0, None, None), (b"k2", None, 0, 1, ("h", b"x"), None)]
CONTEXT = [("run", b"r")]


class Output:
    """Notes what is produced."""

    def __init__(self, *, identity: bool = False) -> None:
        self.one: list[Any] = []
        self.all: list[Any] = []
        self.plain: list[Any] = []
        self.met: list[Any] = []
        sink: Any = SimpleNamespace(
            produce=lambda *given: self.one.append(given),
            produce_all=lambda *given: self.all.append(given),
            note_partition=lambda *given: self.met.append(given),
            produce_plain=lambda *given: self.plain.append(given),
        )
        at: Any = SimpleNamespace(gtid="g:8", events=3, boundary="b:4")
        counts = WriterCounts()
        self.counts, self.tables = counts.by_topic, counts.by_table
        self.output = RecordOutput(sink, CONTEXT, identity, False, at, None, "history", None, counts)

    def walked(self, partition: int, gtid: str | None = "g:9") -> Any:
        self.output.produce_decoded(route(), list(RECORDS), partition, gtid, 5, 9)
        return self


def route(share: TopicShare = SHARE) -> Any:
    return TableRoute(TableId("d", "t"), "t", share, None, None, (), path="d.t")


def test_records_of_whole_transactions_in_other_partitions_are_left_out() -> None:
    found = Output().walked(0)
    assert (found.one, found.all, found.plain, found.counts, found.tables) == ([], [], [], {}, {})


def test_records_of_whole_transactions_go_to_their_partition() -> None:
    found = Output().walked(2)
    assert (found.one, found.all, found.plain) == ([], [], [("t", RECORDS, CONTEXT, 2, 9)])
    assert (found.counts, found.tables) == ({"t": 2}, {"d.t": 2})


def test_records_of_whole_transactions_with_ids_go_to_their_partition() -> None:
    found = Output(identity=True).walked(1)
    assert found.all == found.plain == [] and found.counts == {"t": 2} and found.met == [("t", 1)]
    assert found.one == [
        ("t", b"k1", b"v1", 1, [*CONTEXT, ("cdc-id", b"g:9/5/0/0")]),
        ("t", b"k2", None, 1, [("h", b"x"), *CONTEXT, ("cdc-id", b"g:9/5/0/1")]),
    ]


def test_a_transaction_without_a_gtid_is_named_by_its_server_and_position() -> None:
    """The same position of another server is another transaction."""
    found = Output(identity=True)
    found.output.server_uuid = "uuid-1"
    found.walked(1, None)
    assert [headers[-1] for *_, headers in found.one] == [
        ("cdc-id", b"uuid-1/b:4/5/0/0"),
        ("cdc-id", b"uuid-1/b:4/5/0/1"),
    ]


def test_unwrapped_rows_that_a_connector_has_not_written_do_not_pass_the_chain_again() -> None:
    found, added, whole = Output(), AddedHeaders([("__op", b"c")]), TopicShare("t", 1, frozenset({0}), True)
    found.output.taken_over = SimpleNamespace(without_written=lambda topic, kept, at: kept[1:])  # type: ignore[assignment]
    records: list[Any] = [(b"k1", b"v1", row, 0, added, None) for row in range(3)]
    found.output.produce_rows(route(whole), records, "b:4", 0)
    assert found.one == [] and found.counts == {"t": 2}
    assert found.all == [("t", [(b"k1", b"v1", row, 0, added, 0) for row in (1, 2)], CONTEXT)]


@pytest.mark.parametrize("identity", [True, False])
def test_flat_rows_of_whole_transactions_go_to_their_partition_and_those_of_other_writers_are_left_out(
    identity: bool,
) -> None:
    found, formed = Output(identity=identity), replace(route(), record_format=FORM)
    flat = [(b"k1", b"v1", 0, 0, None, 0), (b"k2", b"v2", 1, 0, None, 2), (b"k3", None, 2, 0, None, 1)]
    for record in flat:
        found.output.produce_decoded(formed, [record], record[5], "g:8", 3, 9)
    assert (found.counts, found.tables) == ({"t": 2}, {"d.t": 2})
    if identity:
        told = [(key, value, part, headers[-1]) for _, key, value, part, headers in found.one]
        assert found.all == found.plain == []
        assert told == [
            (b"k2", b"v2", 2, ("cdc-id", b"g:8/3/1/0")),
            (b"k3", None, 1, ("cdc-id", b"g:8/3/2/0")),
        ]
    else:
        assert found.one == found.all == []
        assert found.plain == [("t", flat[1:2], CONTEXT, 2, 9), ("t", flat[2:], CONTEXT, 1, 9)]


@pytest.mark.parametrize(("share", "partitions"), [(SHARE, 3), (TopicShare("", 0, frozenset(), False), 1)])
def test_a_transaction_decoder_gets_the_number_of_partitions(share: TopicShare, partitions: int) -> None:
    told: list[Any] = []
    walker: Any = SimpleNamespace(needs_table=lambda _: True, learn=lambda *given: told.append(given))
    none: Any = None
    event = Event(c.TABLE_MAP_EVENT, 1, 1, 0, "b.000001", 4, 99, b"\7\0\0\0\0\0raw.", 0, 10)
    flat = replace(route(share), record_format=FORM, source=TicdcSource(none, extension=True))
    for one in (route(share), flat):
        WholeTransactions(walker, none, none, none).add_route(event, one)
    assert [given[-1] for given in told] == [partitions, partitions]


@pytest.mark.parametrize("formed", [True, False])
def test_rows_are_selected_by_the_key_that_their_records_have(monkeypatch: pytest.MonkeyPatch, formed: bool) -> None:
    """Keys that are formed behind the decoder are other ones than it makes."""
    told: list[Any] = []
    made: Any = SimpleNamespace(
        **dict.fromkeys(("write", "update", "delete", "partial_update")), table=table(column("id", "INT"))
    )
    monkeypatch.setattr(table_route, "create_avro_rows", lambda *_: None)
    monkeypatch.setattr(table_route, "compile_decoder", lambda *given: told.append(given[-1]) or made)
    form: Any = SimpleNamespace(id_headers=lambda: None)
    forms: Any = SimpleNamespace(table_format=lambda *_: form) if formed else None
    batch = plan(writers=2, partitions={TOPIC: 2}, assignment={TOPIC: (0, 1)})
    make(routes_of(config(), batch, formats=forms), AS_IT_IS, T)
    (owned,) = told
    assert (owned is None) is formed and (formed or owned.own_partitions == {0})


@pytest.mark.parametrize("formed", [False, True])
def test_rows_behind_a_connector_s_last_records_are_produced_in_their_format_and_partition(formed: bool) -> None:
    """Partitions are chosen by the keys as they are written, in a format by its own."""
    record_format: Any = SimpleNamespace(
        key_bytes=lambda key: b"f" + key,
        value_bytes=lambda value: value and b"f" + value,
        partition=lambda key, *_: int(key[-1:]) % 3,
    )
    found = Output()
    found.output.position = WriterPosition(BinlogOffset("b.000001", 4))
    found.output.position.events = 1
    written = {"t": {1: RecordPlace(1, 4, 1, 1)}}
    until = BinlogOffset("b.000001", 99)
    found.output.taken_over = TakenOver(found.output.position.start, until, RecordPlace(1, 4), written)
    target = replace(route(), record_format=record_format if formed else None)
    rows = [(b"%d" % n, b"v", n, 0, None, None) for n in range(6)]
    assert found.output.produce_rows(target, list(rows), "b:4", 0) == []
    partitions = {key: partition_of(key, 3) for key, *_ in rows}
    wanted = [
        (b"f" + key if formed else key, part)
        for key, _, row, *_ in rows
        if (part := int(key) % 3 if formed else partitions[key]) in (1, 2) and not (part == 1 and row < 1)
    ]
    assert [(key, part) for _, key, _, part, _ in found.one] == wanted
    assert found.counts == {"t": len(wanted)}
