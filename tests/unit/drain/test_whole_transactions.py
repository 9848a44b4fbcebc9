"""Whole transactions beside the loop of events: what the stream yields then, and where a writer stands behind them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.binlog_bytes import UUID_TEXT, Dump, stream_of
from kit.cases import for_each
from kit.drain_rig import Rig
from kit.fake_kernel import installed
from kit.transaction_bytes import begin_body, gtid_body

from airflow_provider_mysql_cdc.cdc.avro import avro_source
from airflow_provider_mysql_cdc.cdc.avro import avro_source as avro_marks
from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.decode import native_transactions as native_walk
from airflow_provider_mysql_cdc.cdc.decode.native_transactions import (
    BATCH_FULL,
    DECLINED,
    TRUNCATED,
    MarkedTime,
    NativeTransactions,
    mark,
    split_marks,
)
from airflow_provider_mysql_cdc.cdc.drain.table_route import RouteSettings, TableRoute
from airflow_provider_mysql_cdc.cdc.drain.whole_transactions import WholeTransactions, create_transaction_decoder
from airflow_provider_mysql_cdc.cdc.drain.writer_meter import WriterCounts
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.emit.source_block import source_block
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare
from airflow_provider_mysql_cdc.cdc.metrics.stream_metrics import StreamCounts
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidTracker
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.table import TableId

START = BinlogOffset("binlog.000001", 4, "")


def transaction(dump: Dump, kind: int = c.GTID_LOG_EVENT) -> Dump:
    return dump.add(kind, gtid_body()).add(c.QUERY_EVENT, begin_body()).add(c.XID_EVENT, bytes(8))


class Walk:
    """Deals with whole transactions of three events, as long as it is to."""

    def __init__(self, *, most: int = 99) -> None:
        self.most = most
        self.asked: list[tuple[int, int, int]] = []

    def __call__(self, chunk: bytes, at: int, file: str, pos: int, limit: int, tail: int) -> NativeTransactions:
        self.asked.append((len(chunk) - at, pos, limit))
        stop, end = at, pos
        for _ in range(3 if self.most else 0):
            if stop + 4 + int.from_bytes(chunk[stop : stop + 3], "little") > len(chunk):
                return NativeTransactions(at, pos, TRUNCATED, [], [], None)
            size = int.from_bytes(chunk[stop : stop + 3], "little")
            stop, end = stop + 4 + size, end + size - 1
        self.most -= 1
        return NativeTransactions(stop, end, BATCH_FULL if stop > at else DECLINED, [], [], None)


@pytest.mark.parametrize("first", [c.GTID_LOG_EVENT, c.ANONYMOUS_GTID_LOG_EVENT])
def test_events_of_whole_transactions_are_not_yielded(first: int) -> None:
    dump = transaction(transaction(Dump().begin(), first))
    walked = len(dump.events)
    dump.add(c.ROWS_QUERY_LOG_EVENT, b"\1x")
    transaction(dump)
    with stream_of(dump.data, START) as stream:
        found = [(e.type, e.start_pos) for e in stream.events(dump.offset(), Walk(most=2))]
    assert found == [(kind, start) for kind, _, start, _, _ in dump.events[walked:]]


def test_a_transaction_decoder_gets_its_position_and_ends_the_stream() -> None:
    dump, walk = transaction(transaction(Dump().begin())), Walk()
    with stream_of(dump.data, START) as stream:
        assert list(stream.events(dump.offset(), walk)) == []
    assert [(pos, limit) for _, pos, limit in walk.asked] == [
        (dump.events[0][2], dump.pos),
        (dump.events[3][2], dump.pos),
    ]


def test_bytes_are_waited_for_where_a_transaction_is_cut_off() -> None:
    dump, walk = transaction(Dump().begin()), Walk()
    data = bytes(dump.data)
    with stream_of([data[:-60], data[-60:-30], data[-30:]], START) as stream:
        assert list(stream.events(dump.offset(), walk)) == []
    # How many pieces arrive at once is not known.
    sizes = [size for size, _, _ in walk.asked]
    assert sizes == sorted(set(sizes)) and {pos for _, pos, _ in walk.asked} == {dump.events[0][2]}


class Writer:
    """What a writer gives to the walk of its transactions."""

    def __init__(self, found: NativeTransactions, resume: ResumePosition | None = None) -> None:
        self.done: list[Any] = []
        self.found, self.failed, self.by_event = found, False, False
        self.at = WriterPosition(START, resume=resume)
        self.counts = WriterCounts()
        note = self.done.append
        self.walked = WholeTransactions(
            walker=self,  # type: ignore[arg-type]
            output=SimpleNamespace(  # type: ignore[arg-type]
                taken_over=None,
                produce_decoded=lambda *given: note(given),
                counts=self.counts,
            ),
            position=self.at,
            committer=SimpleNamespace(  # type: ignore[arg-type]
                check=lambda: note(
                    (self.at.last_transaction, str(self.at.boundary), self.at.tracker.text(), self.at.events)
                )
            ),
        )

    def decode_transactions(self, *_: Any) -> NativeTransactions:
        return self.found

    def sign(self, signers: dict[int, str]) -> None:
        """Take what the kernel would."""

    def run(self, kind: int = c.GTID_LOG_EVENT) -> NativeTransactions:
        return self.walked.decode_transactions(bytes(9) + bytes([kind]), 0, "binlog.000001", 4, 1 << 63, 4)


FOUND = NativeTransactions(
    99,
    500,
    BATCH_FULL,
    [("t", [1, 2], 0, "g:8", 2, 70), ("u", [3], 4, "g:9", 1, 30)],
    [(UUID_TEXT, 4, 7), (UUID_TEXT, 9, 10)],
    (7, f"{UUID_TEXT}:9", 5, 11),
)


def test_a_commit_after_whole_transactions_names_the_end_of_the_last_one() -> None:
    writer = Writer(FOUND)
    assert writer.run() is FOUND
    marker = ((7, f"{UUID_TEXT}:9"), "binlog.000001:500", f"{UUID_TEXT}:4-6:9", 0)
    assert writer.done == [*FOUND.segments, marker]


def test_what_the_kernel_decodes_is_counted_where_its_partition_is_the_writers() -> None:
    mine = SimpleNamespace(path="d.t", share=TopicShare("t", 5, frozenset({0}), False))
    segments: Any = [(mine, [1, 2], 0, None, 0, 70), (mine, [3], 4, None, 0, 30)]
    writer = Writer(FOUND._replace(segments=segments, changes=[(2, 1, 0), (9, 9, 9)], totals=(4, 6)))
    writer.run()
    found = writer.counts.meter.metrics(writer.at, None, {}, (0, 0))
    assert found.counts == StreamCounts(created=2, updated=1, committed=4, filtered=6)
    assert found.last_event is not None and (found.last_event.table, found.last_event.gtid) == ("d.t", f"{UUID_TEXT}:9")


def test_what_an_earlier_attempt_committed_is_passed_event_by_event() -> None:
    writer = Writer(FOUND, ResumePosition(BinlogOffset("binlog.000001", 400), 0, 0))
    assert (writer.run().at, writer.run().cut, writer.done) == (0, False, [])


def test_a_transaction_decoder_that_has_failed_is_not_called_again() -> None:
    writer = Writer(FOUND)
    writer.failed = True
    assert (writer.run().at, writer.done) == (0, [])


def test_transactions_without_a_gtid_are_not_asked_for_where_ids_are_written() -> None:
    writer = Writer(FOUND)
    assert writer.run(c.ANONYMOUS_GTID_LOG_EVENT) is FOUND and writer.done
    writer.by_event, writer.done[:] = True, []
    assert (writer.run(c.ANONYMOUS_GTID_LOG_EVENT).at, writer.done) == (0, [])
    assert writer.run() is FOUND


@for_each("runs", [[(1, 4)], [(4, 6), (6, 7)], [(4, 6), (8, 9)], [(2, 3), (1, 2)], [(4, 5), (2, 4)]])
@for_each("start", ["", f"{UUID_TEXT}:1-3", f"{UUID_TEXT}:1-3:10-12"])
def test_runs_of_gtids_are_added_as_one_after_the_other(start: str, runs: list[tuple[int, int]]) -> None:
    one, each = GtidTracker(start), GtidTracker(start)
    for first, end in runs:
        one.add_range(UUID_TEXT, first, end)
        for number in range(first, end):
            each.add(f"{UUID_TEXT}:{number}")
    assert one.text() == each.text()


def test_marks_stand_between_the_pieces_of_a_text() -> None:
    clock = MarkedTime("us", {1000: "ms"})
    text = f'{{"a":{clock // 1000},"b":{clock}000,{mark("x")}'
    assert split_marks(text) == [(b'{"a":', "ms"), (b',"b":', "us"), (b"000,", "x"), (b"", "")]


AVRO = {"": "io.confluent.connect.avro.AvroConverter", ".schema.registry.url": "http://r"}
PROPERTIES = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "kafka.bootstrap.servers": "k:1"}


@for_each(
    ("more", "walks"),
    [
        ({}, True),
        ({"cdc.id.header": "true"}, True),
        ({"provide.transaction.metadata": "true"}, False),
        ({"include.query": "true"}, False),
        ({"gtid.source.excludes": "aaaaaaaa-.*"}, False),
        ({"value.format": "ticdc-avro", "schema-registry": "http://r"}, True),
        ({f"value.converter{more}": text for more, text in AVRO.items()}, True),
    ],
)
def test_what_only_the_loop_of_events_does_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, str], walks: bool
) -> None:
    cfg = ConnectorConfig.from_properties({**PROPERTIES, **more})
    given: Any = SimpleNamespace(low_watermark_id=None)
    with installed(monkeypatch, native_walk, "NativeTransactionDecoder"):
        tally = RouteSettings.for_writer(cfg).tally
        walker = create_transaction_decoder(cfg, tally)
        assert (walker is not None) is walks and (walker is None or walker.by_event is ("cdc.id.header" in more))
        assert create_transaction_decoder(cfg, tally, window_keys=given) is None
    monkeypatch.setenv("MYSQL_CDC_NATIVE", "off")
    assert create_transaction_decoder(cfg, RouteSettings.for_writer(cfg).tally) is None


class Learning:
    """Notes what a walker is told."""

    def __init__(self) -> None:
        self.known: list[Any] = []

    def needs_table(self, table_map: bytes) -> bool:
        return all(table_map != known[0] for known in self.known)

    def learn(self, *given: Any) -> None:
        self.known.append(given)

    def forget(self) -> None:
        self.known.clear()


def test_a_transaction_decoder_learns_tables_and_forgets_them_when_a_structure_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig, walker = Rig(monkeypatch), Learning()
    writer, none = rig.writer, TopicShare("", 0, frozenset(), False)
    writer.handlers.whole_transactions = writer.ddl.whole_transactions = WholeTransactions(
        walker,  # type: ignore[arg-type]
        writer.output,
        writer.position,
        writer.committer,
    )
    route = TableRoute(TableId("d", "t"), "", none, None, None, ())
    signals, formed = replace(route, signals=cast(Any, object())), replace(route, record_format=cast(Any, object()))
    event = Event(c.TABLE_MAP_EVENT, 1, 1, 0, "b.000001", 4, 99, b"...\7\0\0\0\0\0raw.crc!", 3, 13)
    for one in (signals, formed, route, route):
        monkeypatch.setattr(writer.routes, "of_table_map", lambda *_, one=one: one)
        writer.handlers._table_map(event)
    assert walker.known == [(b"raw.", route, None, None, 1)]
    writer.ddl._replace_state(SchemaState(), event, ())
    assert walker.known == []


def test_a_source_block_that_the_kernel_would_write_otherwise_is_not_marked() -> None:
    block = avro_source.avro_source(TableId("d", "t"), "p", source_block(TableId("d", "t"), prefix="p"))
    assert avro_marks.marked_context(block) is not None
    for name, optional in (("server_id", True), ("thread", False)):
        members = tuple(replace(m, optional=optional) if m.name == name else m for m in block.plain.layout.source)
        plain = replace(block.plain, layout=replace(block.plain.layout, source=members))
        assert avro_marks.marked_context(replace(block, plain=plain)) is None, name
