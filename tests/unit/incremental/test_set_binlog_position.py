"""A signal moves the stream: what is written with the move, and which rows of the signal table have acted before it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config, memory_job, transactions
from kit.memory_kafka import MemoryKafka
from kit.store_contract import END, START, UUID, plan

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import PLAN_KEY, PROCESSED_SIGNALS_KEY, SIGNAL_OFFSET_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState, ProcessedSignals
from airflow_provider_mysql_cdc.cdc.commit.plan import Marker, encode, reset_plan
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.failover import requested_position as named_place
from airflow_provider_mysql_cdc.cdc.drain.failover.server_transactions import moved_by_hand
from airflow_provider_mysql_cdc.cdc.errors import BinlogPurgedError, ConfigError
from airflow_provider_mysql_cdc.cdc.incremental import set_binlog_position as moving
from airflow_provider_mysql_cdc.cdc.incremental import signal_processor as taking
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import (
    IncrementalState,
    read_incremental_state,
    state_changes,
)
from airflow_provider_mysql_cdc.cdc.incremental.set_binlog_position import (
    PositionMove,
    signals_taken_before,
    signals_taken_records,
)
from airflow_provider_mysql_cdc.cdc.incremental.table_scan import TableScan
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals.actions import SetBinlogPosition
from airflow_provider_mysql_cdc.cdc.signals.kafka_channel import PollResult
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal

CFG = config()
MIDDLE = START.with_position(START.file, 900)
BOTH = f"{UUID}:5,aaaaaaaa-0000-0000-0000-000000000001:1-3"


def ledger(*, done: bool = True, taken: BinlogOffset | None = None, reached: BinlogOffset = END) -> LedgerState:
    """Return the ledger behind, or in the middle of, the first batch."""
    batch = plan(1, writers=1)
    others = {} if taken is None else {PROCESSED_SIGNALS_KEY: ProcessedSignals(taken, 2).to_json()}
    return LedgerState(batch, {0: Marker(1, 0, START, END, ResumePosition(reached), done)}, other_records=others)


def written(found: list[Any]) -> list[BinlogOffset]:
    return [BinlogOffset.from_json(json.loads(value)["offset"]) for _, _, value, _ in found]


@for_each(
    ("state", "expected"),
    [
        (ledger(), [END]),
        (ledger(taken=START), [END]),
        (ledger(taken=END.with_position(END.file, 9000)), []),
        (ledger(done=False, reached=MIDDLE), [MIDDLE]),
        (LedgerState(plan(1, writers=1)), [START]),
        (LedgerState(reset_plan(2, END, "o")), []),
        (LedgerState(), []),
    ],
    ids=["complete", "beyond", "moved back before", "in the middle", "at its start", "just moved", "empty"],
)
def test_a_move_writes_down_how_far_the_signal_table_has_acted(
    monkeypatch: pytest.MonkeyPatch, state: LedgerState, expected: list[BinlogOffset]
) -> None:
    job = memory_job(monkeypatch, CFG, MemoryKafka())
    assert written(signals_taken_records(job, state, 3)) == expected


def test_what_comes_again_and_waits_is_forgotten_by_the_next_move(monkeypatch: pytest.MonkeyPatch) -> None:
    job = memory_job(monkeypatch, CFG, MemoryKafka())
    again, new = (
        Signal(name, "log", "{}", "source", position=place, epoch=2) for name, place in (("again", START), ("new", END))
    )
    given = {f"source/{s.id}": s.to_json() for s in (again, new)}
    state = replace(ledger(taken=MIDDLE), signals=given)
    found = {key: value for _, key, value, _ in signals_taken_records(job, state, 5)}
    assert found.pop(PROCESSED_SIGNALS_KEY.encode()) is not None
    assert found == {b"signal/source/again": None}


def test_rows_of_the_signal_table_act_once_in_one_binlog(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any) -> BinlogOffset:
        raise BinlogPurgedError("reset")

    state, said = ledger(taken=END), list[str]()
    job: Any = None
    monkeypatch.setattr(moving, "check_available", lambda conn, settings, offset: offset)
    monkeypatch.setattr(moving, "place_on_server", lambda cfg, conn, offset: offset)

    def acts(place: BinlogOffset | None, epoch: int = 2) -> bool:
        found = taking.SignalProcessor(CFG, None, job, state, said.append, IncrementalState())
        found.process(Signal("s", "log", '{"message": "acted"}', "source", position=place, epoch=epoch))
        return said.pop() == "acted"

    assert acts(None) and acts(END) and acts(END.with_position(END.file, 9000))
    assert not acts(START) and not acts(MIDDLE)
    assert acts(START, 1), "a batch before the move has handed it over, and nobody has taken it"
    assert acts(BinlogOffset("binlog.000001", 4, None, UUID.replace("3", "4"))), "another server's"
    monkeypatch.setattr(moving, "check_available", gone)
    assert signals_taken_before(CFG, None, state) is None and acts(START)


def test_everything_that_becomes_of_a_move_is_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = MemoryKafka()
    job = memory_job(monkeypatch, CFG, kafka)
    job.begin(plan(1, writers=1))
    signal = Signal("back", "set-binlog-position", '{"binlog_filename": "b.000009", "binlog_position": 4}', "airflow")
    marker = Marker(1, 0, START, END, ResumePosition(END), True)
    scan = TableScan(TableId("shop", "t"), "s", 0).begin(("id",), ("SIGNED",), (9,), 1)
    job.commit(
        [
            SideRecord(CFG.ledger_topic, b"writer/0", encode(marker.to_json())),
            job.record("signal/airflow/x", signal.to_json()),
            *(
                job.record(key, value)
                for key, value in state_changes(IncrementalState(), IncrementalState({0: scan}))
                if value is not None
            ),
        ]
    )
    move = PositionMove(END, START, (SideRecord(CFG.history_topic, None, b"{}"),))
    monkeypatch.setattr(taking, "find_move", lambda *_: move)
    lines: list[str] = []
    before = len(transactions(kafka, CFG.ledger_topic))
    books, moved = taking.process_signals(CFG, None, job, job.read(), lines.append, "o")
    assert len(transactions(kafka, CFG.ledger_topic)) == before + 1
    assert moved and "are published again" in lines[0]
    last = transactions(kafka, CFG.ledger_topic)[-1]
    assert {b"signal/airflow/x", PROCESSED_SIGNALS_KEY.encode(), PLAN_KEY.encode(), b"incremental/request/back"} <= {
        *last
    }
    after = job.read()
    assert after.end() == START and not after.signals and after.processed_signals == ProcessedSignals(END, 2)
    assert read_incremental_state(after).requests["back"].verdict == "accepted" == books.requests["back"].verdict
    assert read_incremental_state(after).scans[0] == scan.restart(), (
        "what it has read was read of a stream that was here"
    )
    assert [r.value for r in kafka.committed(CFG.history_topic)] == [b"{}"]
    again = {"signal/airflow/y": signal.to_json()}
    job.commit([job.record(key, value) for key, value in again.items()])
    books, moved = taking.process_signals(CFG, None, job, job.read(), lines.append, "o")
    assert not moved and "carried out before" in lines[-1], "the same id twice"


def test_the_place_in_the_signal_topic_moves_with_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal of a trusted channel is read once, whatever ends the run."""
    cfg, kafka = config(signal__trusted__channels="kafka"), MemoryKafka()
    job = memory_job(monkeypatch, cfg, kafka)
    job.begin(plan(1, writers=1))
    job.commit(
        [
            SideRecord(
                cfg.ledger_topic, b"writer/0", encode(Marker(1, 0, START, END, ResumePosition(END), True).to_json())
            )
        ]
    )
    signal = Signal("k", "set-binlog-position", '{"binlog_filename": "b.000009", "binlog_position": 4}', "kafka")
    place = {"topic": "in", "id": None, "offsets": {"0": 7}}
    monkeypatch.setattr(taking, "poll_signals", lambda *_: PollResult([("signal/kafka/6", signal)], place))
    monkeypatch.setattr(taking, "find_move", lambda *_: PositionMove(END, START))
    assert taking.process_signals(cfg, None, job, job.read(), lambda line: None, "o")[1]
    last = transactions(kafka, cfg.ledger_topic)[-1]
    assert {SIGNAL_OFFSET_KEY.encode(), PLAN_KEY.encode()} <= {*last}


@pytest.mark.parametrize("first", ["told", "moved"])
def test_reported_structures_and_a_move_wait_for_each_other(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """What is told between two batches holds where the stream stands, and that is what the other one changes."""
    table = {"columns": [{"name": "a", "typeName": "INT", "optional": True}]}
    data = json.dumps({"database": "d", "changes": [{"type": "CREATE", "id": "d.t", "table": table}]})
    place = '{"binlog_filename": "b.000009", "binlog_position": 4}'
    monkeypatch.setattr(taking, "load_schema_state", lambda *_, **__: SchemaState())
    monkeypatch.setattr(taking, "find_move", lambda *_: PositionMove(END, START))
    job = memory_job(monkeypatch, CFG, MemoryKafka())
    given = {"told": ("schema-changes", data), "moved": ("set-binlog-position", place)}
    signals = [Signal(name, *what, "airflow") for name, what in given.items()]
    found = taking.SignalProcessor(CFG, None, job, ledger(), lambda line: None, IncrementalState())
    for signal in sorted(signals, key=lambda s: s.id != first):
        found.process(signal)
    ((refused, why, _),) = found.refused
    assert refused.id != first and "send this one again after it" in why
    assert (found.move is None) == (first == "told") and bool(found.schema_records) == (first == "told")


def test_the_stream_stands_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        PositionMove(END, END).notification_data()["direction"] == "none"
        and "already" in PositionMove(END, END).log_line()
    )
    assert PositionMove(START, END).notification_data() | {"from": "", "to": ""} == {
        "from": "",
        "to": "",
        "direction": "forward",
    }
    assert "skipped" in PositionMove(START, END).log_line()


# -- sets of GTIDs ---------------------------------------------------------------------------------------------------

FILES = {"b.000001": "", "b.000002": f"{UUID}:1-10", "b.000003": f"{UUID}:1-20"}


@for_each(("wanted", "file"), [("1-5", "b.000001"), ("1-10", "b.000002"), ("1-19", "b.000002"), ("1-99", "b.000003")])
def test_the_last_file_before_which_nothing_is_missing(monkeypatch: pytest.MonkeyPatch, wanted: str, file: str) -> None:
    monkeypatch.setattr(named_place, "previous_gtids_of", lambda conn, name: GtidSet.parse(FILES[name]))
    assert named_place.start_file(None, [*FILES], GtidSet.parse(f"{UUID}:{wanted}"), "w")[0] == file


@pytest.mark.parametrize("covered", [True, False])
def test_transactions_that_were_read_empty_are_remembered_behind_a_move(
    monkeypatch: pytest.MonkeyPatch, covered: bool
) -> None:
    monkeypatch.setattr(moving, "end_of_binlog", lambda conn, settings: END)
    monkeypatch.setattr(moving, "position_at", lambda conn, settings, end, file, pos: MIDDLE)
    monkeypatch.setattr(moving, "history_covers", lambda *_: covered)
    monkeypatch.setattr(moving, "schema_records", lambda *_: ([], 0))
    state = ledger(reached=replace(END, read_empty=f"{UUID}:7"))
    job = memory_job(monkeypatch, CFG, MemoryKafka())
    action = SetBinlogPosition("move", "source", MIDDLE.file, MIDDLE.pos)
    assert moving.find_move(CFG, None, job, state, action).target.read_empty == f"{UUID}:7"


@for_each(
    ("server", "kept"),
    [
        ("aaaaaaaa-0000-0000-0000-000000000001", f"{UUID}:5"),
        ("BBBBBBBB-0000-0000-0000-000000000002", BOTH),
        (None, BOTH),
    ],
)
def test_empty_transactions_that_another_server_has_executed_itself_are_accepted_with_a_move_to_it(
    server: str | None, kept: str
) -> None:
    stands = replace(END, server_uuid="bbbbbbbb-0000-0000-0000-000000000002", read_empty=BOTH)
    assert moved_by_hand(replace(START, server_uuid=server), stands).read_empty == kept


def test_what_the_server_has_purged_and_the_set_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_place, "previous_gtids_of", lambda conn, name: GtidSet.parse(FILES[name]))
    with pytest.raises(BinlogPurgedError, match=f"no binlog file of it has {UUID}:6-10"):
        named_place.start_file(None, ["b.000002", "b.000003"], GtidSet.parse(f"{UUID}:1-5"), "w")


def test_without_gtids_a_set_names_no_place() -> None:
    here = BinlogOffset("b.000001", 4, None, UUID)
    with pytest.raises(ConfigError, match="GTIDs are off"):
        named_place.position_of_gtids(CFG, None, here, GtidSet.parse(f"{UUID}:1"))
