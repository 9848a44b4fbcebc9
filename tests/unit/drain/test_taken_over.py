"""What a connector has written behind the start of the stream is left out, record by record."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import MOVED_KEY, TAKEN_OVER_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, decode, encode
from airflow_provider_mysql_cdc.cdc.drain.taken_over import TRANSACTION_END, RecordPlace, TakenOver, taken_over
from airflow_provider_mysql_cdc.cdc.drain.writer_position import WriterPosition
from airflow_provider_mysql_cdc.cdc.errors import ServerChangedError
from airflow_provider_mysql_cdc.cdc.formats.record_topics import partition_of
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, PreparedXa
from airflow_provider_mysql_cdc.cdc.model.records import CHANGE, NEW_KEY, TOMBSTONE, PartitionedRecord, SideRecord
from airflow_provider_mysql_cdc.cdc.verify import verify_round
from airflow_provider_mysql_cdc.cdc.verify.structures.structure_versions import TableVersions

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
START = BinlogOffset("b.000009", 100, f"{UUID}:1-5", UUID)
UNTIL = BinlogOffset("b.000010", 50, f"{UUID}:1-8", UUID)
TAKEN = TakenOver(
    START,
    UNTIL,
    RecordPlace(9, 100, 2, 1),
    {
        "t": {0: RecordPlace(9, 100, 3, 0, 2), 1: RecordPlace(9, 300, 1, 1)},
        "ddl": {0: RecordPlace(9, 200, 0, 1, 2)},
        "tx": {0: RecordPlace(9, 100, TRANSACTION_END, 0, 1)},
    },
    written={"t": 7, "tx": 2},
)


def position(pos: int, events: int = 0, statements: int = 0, file: str = "b.000009") -> WriterPosition:
    made = WriterPosition(replace(START, file=file, pos=pos))
    made.events, made.statements = events, statements
    return made


def written(topic: str, at: WriterPosition, *records: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Return row, number and partition of the records that are still written."""
    rows: list[PartitionedRecord] = [(b"k", b"v", row, number, None, p) for row, number, p in records]
    return [(row, number, p) for _, _, row, number, _, p in TAKEN.without_written(topic, rows, at)]


def test_up_to_the_offset_nothing_is_written_in_any_partition() -> None:
    assert written("other", position(100, 1), (0, 0, 0), (1, 0, 7)) == []
    assert written("other", position(100, 2), (0, 0, 0), (1, 0, 0), (2, 0, 5)) == [(1, 0, 0), (2, 0, 5)]
    assert TAKEN.holds_event(position(100, 1))
    assert not TAKEN.holds_event(position(100, 2))


def test_behind_it_each_partition_goes_on_behind_its_last_record() -> None:
    delete = [(0, CHANGE, 0), (0, TOMBSTONE, 0), (0, NEW_KEY, 0), (1, CHANGE, 0)]
    assert written("t", position(100, 3), *delete) == [(0, NEW_KEY, 0), (1, CHANGE, 0)]
    assert written("t", position(300, 1), (0, 0, 0), (0, 0, 1), (1, 0, 1)) == [(0, 0, 0), (1, 0, 1)]
    assert written("t", position(4, 1, file="b.000010"), (0, 0, 0), (0, 0, 1)) == [(0, 0, 0), (0, 0, 1)]


def test_records_of_statements_and_transactions_are_left_out_in_their_topics() -> None:
    ddl, tx = SideRecord("ddl", None, b"{}"), SideRecord("tx", None, b"{}")
    at = position(200, statements=1)
    assert [TAKEN.holds_statement(ddl, n, at) for n in (0, 1, 2)] == [True, True, False]
    assert not TAKEN.holds_statement(SideRecord("history", None, b"{}"), 0, at)
    assert TAKEN.holds_boundary(tx, position(100), end=False)
    assert TAKEN.holds_boundary(tx, position(100), end=True)
    assert not TAKEN.holds_boundary(tx, position(200), end=False)
    spread = replace(TAKEN, ends={"tx": {2: RecordPlace(9, 100, 0, 0, 1)}}, boundary_partitions=3)
    keys = {partition_of(key, 3): key for key in (b"a", b"b", b"c", b"d", b"e", b"f")}
    held = [spread.holds_boundary(SideRecord("tx", keys[p], b"{}"), position(100), end=False) for p in range(3)]
    assert held == [False, False, True], "a connector writes it into the partition of its key"


def test_rows_that_were_prepared_before_the_start_are_the_connector_s() -> None:
    assert TAKEN.holds_xa(PreparedXa("x", "b.000008", 900, 950), UUID)
    assert not TAKEN.holds_xa(PreparedXa("x", "b.000009", 100, 150), UUID)
    assert not TAKEN.holds_xa(PreparedXa("x", "b.000008", 900, 950), "another server")


def plan(start: BinlogOffset) -> BatchPlan:
    return BatchPlan(3, "drain", start, start, 1)


def test_behind_its_end_nothing_is_looked_at_any_more() -> None:
    assert not TAKEN.is_passed(position(900))
    assert not TAKEN.is_passed(position(49, file="b.000010"))
    assert TAKEN.is_passed(position(50, file="b.000010"))


def test_it_concerns_batches_that_begin_before_its_end() -> None:
    assert TAKEN.is_ahead(plan(START))
    assert not TAKEN.is_ahead(plan(UNTIL))
    promoted = BinlogOffset("x.000001", 4, f"{UUID}:1-8", "11111111-1111-1111-1111-111111111111")
    assert not TAKEN.is_ahead(plan(promoted))
    with pytest.raises(ServerChangedError, match="run mysql_cdc_drain once at the server before"):
        TAKEN.is_ahead(plan(replace(promoted, gtids=f"{UUID}:1-7")))


def test_the_ledger_keeps_it() -> None:
    record = decode(encode(TAKEN.to_json()))
    assert taken_over(LedgerState(other_records={TAKEN_OVER_KEY: record})) == TAKEN
    assert taken_over(LedgerState()) is None


@pytest.mark.parametrize("key", [None, TAKEN_OVER_KEY, MOVED_KEY])
def test_a_verification_knows_that_events_may_have_come_again(key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connector that was killed writes again what it has not noted; so does a stream that was moved back."""
    ledger = LedgerState(other_records={} if key is None else {key: {}})
    context = SimpleNamespace(cfg=config(), job=SimpleNamespace(latest=lambda: ledger))
    monkeypatch.setattr(verify_round, "read_versions", lambda *_: {"d.t": TableVersions(())})
    read: Any = verify_round.VerifyRound._read_versions
    found = read(SimpleNamespace(context=context), [], BatchPlan(1, "drain", START, UNTIL, 1))
    assert found["d.t"].read_again is (key is not None)
