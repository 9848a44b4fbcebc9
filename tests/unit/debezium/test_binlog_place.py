"""Where a connector's offset, and its last records, are among the events of a binlog."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.drain_rig import GIVEN

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.binlog import scan
from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.debezium import binlog_place
from airflow_provider_mysql_cdc.cdc.debezium.binlog_place import StartPlace, find_start, find_written
from airflow_provider_mysql_cdc.cdc.debezium.connect_offsets import DebeziumOffset
from airflow_provider_mysql_cdc.cdc.debezium.topic_ends import LastRecord
from airflow_provider_mysql_cdc.cdc.drain.taken_over import TRANSACTION_END, RecordPlace
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, StateError
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

CFG = ConnectorConfig.from_properties(GIVEN)
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
LENGTH = 10
FILE, NEXT = "b.000001", "b.000002"


class Log:
    """A binlog that a test writes: each event takes ten bytes."""

    def __init__(self) -> None:
        self.events: list[tuple[Event, Any]] = []
        self.file, self.pos, self.number = FILE, 4, 0

    def add(self, kind: int, text: Any = None, *, inner: bool = False) -> int:
        """Add an event and return its position; one inside a compressed transaction takes no bytes."""
        start, end = self.pos, self.pos if inner else self.pos + LENGTH
        self.events.append((Event(kind, 0, 1, 0, self.file, start, end, b"", 0, 0, inner), text))
        self.pos = end
        return start

    def transaction(self, *kinds: int, begin: str = "BEGIN", end: int = c.XID_EVENT, inner: bool = False) -> list[int]:
        """Add a transaction; return the positions of its events."""
        self.number += 1
        first = [self.add(c.GTID_LOG_EVENT, f"{UUID}:{self.number}")]
        return [
            *first,
            self.add(c.QUERY_EVENT, begin, inner=inner),
            *(self.add(kind, inner=inner) for kind in kinds),
            *([self.add(end, inner=inner)] if end else []),
        ]

    def rotate(self) -> int:
        at = self.add(c.ROTATE_EVENT)
        self.file, self.pos = NEXT, 4
        return at


ROWS, MAP, QUERY_TEXT = c.WRITE_ROWS_EVENT_V2, c.TABLE_MAP_EVENT, c.ROWS_QUERY_LOG_EVENT


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()

    def open_stream(settings: Any, start: BinlogOffset, **_: Any) -> Any:
        stream = SimpleNamespace(skipped=0, reached=(start.file, start.pos), close=lambda: None)

        def events(end: BinlogOffset, unused: Any) -> Iterator[Event]:
            for event, _ in made.events:
                if (event.file, event.start_pos) >= (start.file, start.pos):
                    stream.reached = (event.file, event.end_pos) if event.type != c.ROTATE_EVENT else (NEXT, 4)
                    yield event

        stream.events = events
        return stream

    texts = lambda event: next(text for e, text in made.events if e is event)  # noqa: E731
    end = lambda conn, settings: BinlogOffset(made.file, made.pos, f"{UUID}:1-{made.number}", UUID)  # noqa: E731
    fakes = {
        "parse_gtid": lambda event: SimpleNamespace(gtid=texts(event)),
        "parse_query": lambda event: SimpleNamespace(sql=texts(event)),
        "end_of_binlog": end,
        "binary_logs": lambda conn: [(name, 10_000) for name in (FILE, NEXT)],
        "check_available": lambda conn, settings, offset: offset,
        "previous_gtids_of": lambda conn, file: GtidSet.parse(f"{UUID}:1" if file == NEXT else ""),
        "purged_gtids": lambda conn: GtidSet(),
        "position_of_gtids": lambda cfg, conn, end, gtids: BinlogOffset("by.000009", 4, str(gtids), UUID),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(binlog_place, name, fake)
    monkeypatch.setattr(scan, "open_stream", open_stream)
    return made


def started(file: str, pos: int, gtids: str | None = None, event: int = 0, row: int = 0) -> tuple[str, int, str | None]:
    found = find_start(CFG, None, DebeziumOffset(file, pos, gtids, event, row)).offset
    return found.file, found.pos, found.gtids


def test_the_stream_begins_at_the_transaction_in_progress(log: Log) -> None:
    log.transaction(MAP, ROWS)
    second = log.transaction(MAP, ROWS, ROWS)
    for gtids in (None, f"{UUID}:1"):
        assert started(FILE, second[1], gtids, event=2, row=1) == (FILE, second[0], f"{UUID}:1")
        assert started(FILE, second[1], gtids) == (FILE, second[0], f"{UUID}:1"), "GTID read, BEGIN not"
        assert started(FILE, second[0], gtids) == (FILE, second[0], f"{UUID}:1")
    assert started(FILE, log.pos) == (FILE, log.pos, f"{UUID}:1-2"), "at the end"
    assert started(FILE, 4) == (FILE, 4, "")


def test_a_statement_that_was_read_last_is_not_in_the_set_yet(log: Log) -> None:
    log.transaction(MAP, ROWS)
    log.transaction(begin="ALTER TABLE t ADD c INT", end=0)
    behind = log.pos
    log.transaction(MAP, ROWS)
    assert started(FILE, behind, f"{UUID}:1") == (FILE, behind, f"{UUID}:1-2")
    assert started(FILE, log.pos, f"{UUID}:1-2")[0] == "by.000009", "a transaction with rows would be left out"


def test_the_end_of_a_file_is_not_the_transaction_before_it(log: Log) -> None:
    log.transaction(MAP, ROWS)
    behind = log.rotate()
    log.transaction(MAP, ROWS)
    assert started(FILE, behind, f"{UUID}:1") == (FILE, behind, f"{UUID}:1")
    assert started(NEXT, 4, f"{UUID}:1") == (NEXT, 4, f"{UUID}:1")


@for_each(("event", "shift"), [(0, 3), (2, LENGTH)])
def test_a_place_that_no_connector_stores_is_looked_up_by_the_set(log: Log, event: int, shift: int) -> None:
    log.transaction(MAP, ROWS)
    second = log.transaction(MAP, ROWS, ROWS)
    assert started(FILE, second[1] + shift, f"{UUID}:1", event)[0] == "by.000009"
    with pytest.raises(BinlogPurgedError, match="does not have the place"):
        started(FILE, second[1] + shift, event=event)


def test_an_offset_behind_rows_of_an_xa_transaction_is_refused(log: Log) -> None:
    xa = log.transaction(MAP, ROWS, ROWS, begin="XA START X'78',X'',1", end=c.XA_PREPARE_LOG_EVENT)
    assert started(FILE, xa[1] + LENGTH)[1] == xa[0], "no row yet"
    with pytest.raises(StateError, match="in the middle of an XA transaction"):
        started(FILE, xa[3] + LENGTH)
    assert started(FILE, log.pos)[1] == log.pos, "prepared: the connector has written all of it"


def written(pos: int, *last: LastRecord, event: int = 0, row: int = 0, gtids: str = "", **start: Any) -> Any:
    begin = BinlogOffset(FILE, pos, gtids, UUID)
    return find_written(CFG, None, DebeziumOffset(FILE, pos, gtids, event, row), StartPlace(begin, **start), last)


def test_events_are_counted_from_begin_on_whatever_they_are(log: Log) -> None:
    log.transaction(MAP, ROWS)
    second = log.transaction(QUERY_TEXT, MAP, ROWS, MAP, ROWS)
    inside = {(1, 0): (1, 0), (2, 1): (1, 1), (3, 1): (1, 1), (4, 0): (2, 0), (5, 7): (2, 7), (6, 0): (3, 0)}
    for (event, row), place in inside.items():
        taken = written(second[0], event=event, row=row, same_server=True, gtids=f"{UUID}:1")
        assert taken.reached == RecordPlace(1, second[0], *place), (event, row)
        assert (taken.until.pos, taken.until.gtids) == (log.pos, f"{UUID}:1-2")
    with pytest.raises(StateError, match="fewer events than the connector says"):
        written(second[0], event=99, same_server=True)


def test_at_another_server_the_events_of_a_transaction_are_not_counted(log: Log) -> None:
    """It may have other events: the connector has passed six, of tables that it does not capture."""
    log.transaction(MAP, ROWS)
    second = log.transaction(MAP, ROWS)
    taken = written(second[0], event=6, same_server=False, gtids=f"{UUID}:1")
    assert (taken.start, taken.reached) == (taken.until, RecordPlace(1, second[0]))
    with pytest.raises(StateError, match=r"middle of a transaction, at another server.*start the connector at this"):
        find_written(
            CFG,
            None,
            DebeziumOffset(FILE, 4, f"{UUID}:1", 6),
            StartPlace(BinlogOffset(FILE, second[0], f"{UUID}:1", UUID), same_server=False),
            [],
            trusts_offset=True,
        )


def test_last_records_get_places_and_the_search_ends_behind_the_last(log: Log) -> None:
    first = log.transaction(MAP, ROWS, MAP, ROWS)
    second = log.transaction(begin="ALTER TABLE t ADD c INT", end=0)
    third = log.transaction(MAP, ROWS)
    behind = log.pos
    log.transaction(MAP, ROWS)
    last = [
        LastRecord("t", 0, FILE, first[3], 5),
        LastRecord("t", 1, FILE, first[5], 0, 2, gtid=f"{UUID}:1"),
        LastRecord("u", 0, FILE, third[3], 1, gtid=f"{UUID}:3"),
        LastRecord("old", 0, FILE, 1, 9),
        LastRecord("ddl", 0, FILE, second[1], 0, 2, is_statement=True),
        LastRecord("tx", 0, transaction_id=f"{UUID}:3", ended=True),
    ]
    taken = written(4, *last, same_server=True)
    assert taken.ends == {
        "t": {0: RecordPlace(1, 4, 1, 5, 0), 1: RecordPlace(1, 4, 2, 0, 2)},
        "u": {0: RecordPlace(1, third[0], 1, 1, 0)},
        "ddl": {0: RecordPlace(1, second[0], 0, 1, 2)},
        "tx": {0: RecordPlace(1, third[0], TRANSACTION_END, 0, 1)},
    }
    assert (taken.until.pos, taken.until.gtids) == (behind, f"{UUID}:1-3")
    done = [
        LastRecord("t", 0, FILE, 900, 1, gtid=f"{UUID}:2"),
        LastRecord("tx", 0, transaction_id=f"{UUID}:2"),
        LastRecord("tx2", 0, transaction_id=f"file={FILE},pos={third[0] - 1}"),
    ]
    assert written(third[0], *done, gtids=f"{UUID}:1-2", same_server=False).until.pos == third[0]


def test_the_statements_of_a_blocking_snapshot_stand_behind_the_transaction_before_it(log: Log) -> None:
    """A connector writes them with the position and GTID of the last event, and not as rows of a snapshot."""
    first = log.transaction(MAP, ROWS)
    taken = written(4, LastRecord("ddl", 0, FILE, first[-1], 0, 2, f"{UUID}:1", is_statement=True), same_server=True)
    assert taken.ends == {"ddl": {0: RecordPlace(1, 4, TRANSACTION_END, 0, 2)}}


@for_each(
    ("last", "text"),
    [
        (LastRecord("t", 0, FILE, 5000, 1), "does not have a change that the connector has written.*topic t"),
        (LastRecord("t", 0, FILE, 14, 1, gtid=f"{UUID}:77"), "does not have a change"),
        (LastRecord("tx", 0, transaction_id=f"{UUID}:77"), "does not have a change.*:77"),
    ],
)
def test_a_record_that_is_not_in_the_binlog_is_named(log: Log, last: LastRecord, text: str) -> None:
    log.transaction(MAP, ROWS)
    with pytest.raises(StateError, match=text):
        written(4, last, same_server=True)


def test_a_record_inside_what_has_no_places_is_named(log: Log) -> None:
    xa = log.transaction(MAP, ROWS, begin="XA START X'78',X'',1", end=c.XA_PREPARE_LOG_EVENT)
    single = log.transaction(MAP, ROWS, inner=True)
    log.add(c.STOP_EVENT)
    double = log.transaction(MAP, ROWS, ROWS, inner=True)
    for at in (xa[3], single[3]):
        with pytest.raises(StateError, match="in the middle of an XA transaction, or killed behind one"):
            written(4, LastRecord("t", 0, FILE, at, 1), same_server=True)
    taken = written(single[0], LastRecord("t", 0, FILE, single[3], 1), same_server=True)
    assert taken.ends["t"][0] == RecordPlace(1, single[0], 1, 1, 0)
    with pytest.raises(StateError, match=r"in the middle of a compressed transaction.*--trust-offset"):
        written(double[0], LastRecord("t", 0, FILE, double[3], 1), same_server=True)
    start, offset = (
        StartPlace(BinlogOffset(FILE, double[0]), same_server=True),
        DebeziumOffset(FILE, double[1], event=2),
    )
    last = LastRecord("t", 0, FILE, double[3], 1)
    taken = find_written(CFG, None, offset, start, [last], trusts_offset=True)
    assert (taken.ends, taken.reached) == ({}, RecordPlace(1, double[0], 1, 0))
