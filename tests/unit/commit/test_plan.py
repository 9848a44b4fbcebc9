"""Plans, markers and the ledger's state as values.

A reading of the ledger says which topic it was, and whether that still holds what it held.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from kit.cases import for_each
from kit.store_contract import END, START, plan

from airflow_provider_mysql_cdc.cdc.commit import ledger as ledgers
from airflow_provider_mysql_cdc.cdc.commit.ledger import Ledger
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import writer_key
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import (
    MAX_COUNTS,
    OTHERS_LABEL,
    BatchPlan,
    Marker,
    bounded_counts,
    encode,
    reset_plan,
)
from airflow_provider_mysql_cdc.cdc.errors import FencedError, RecordsLostError, StateError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition
from airflow_provider_mysql_cdc.cdc.sink.record_writer import transactional_id
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topics import TopicInfo

FULL = BatchPlan(
    epoch=7,
    kind="drain",
    start=START,
    end=END,
    writers=3,
    partitions={"p.d.hot": 4, "p.d.täble": 1},
    assignment={"p.d.hot": (0, 1, 2, 0), "p.d.täble": (2,)},
    owner="dag/run/task/-1",
    created_ms=1_700_000_000_000,
    server_id=5400,
)


def marker(writer: int, epoch: int = 7, *, done: bool = True, **more: object) -> Marker:
    reached = more.pop("reached", ResumePosition(END if done else START, 0 if done else 12))
    return Marker(epoch, writer, START, END, reached, done, **more)  # type: ignore[arg-type]


def ledger(*markers: Marker, plan: BatchPlan | None = FULL, **more: object) -> LedgerState:
    return LedgerState(plan=plan, markers={m.writer: m for m in markers}, **more)  # type: ignore[arg-type]


def test_a_marker_is_the_record_of_its_writer() -> None:
    assert marker(1).record("ledger.p")[:2] == ("ledger.p", b"writer/1")


def test_a_topic_unknown_to_the_plan_goes_to_one_writer_on_which_all_agree() -> None:
    assert [FULL.assigned_writer("p.d.hot", n) for n in range(4)] == [0, 1, 2, 0]
    expected = zlib.crc32(b"p.d.new") % 3
    assert {FULL.assigned_writer("p.d.new", n) for n in range(9)} == {expected}
    assert FULL.assigned_writer("p.d.hot", 17) == zlib.crc32(b"p.d.hot") % 3


@for_each(
    "change",
    [
        {"epoch": 8},
        {"kind": "snapshot"},
        {"start": END},
        {"end": START},
        {"writers": 4},
        {"partitions": {**FULL.partitions, "p.d.hot": 5}},
        {"assignment": {**FULL.assignment, "p.d.hot": (0, 1, 2, 1)}},
    ],
)
def test_what_makes_it_another_work(change: dict[str, object]) -> None:
    assert FULL.same_work(replace(FULL, owner="other", attempt="another", pins={"a": "=1"}))
    assert not FULL.same_work(replace(FULL, **change))  # type: ignore[arg-type]


def test_a_record_holds_the_largest_counts_singly_and_the_others_together() -> None:
    counts = {f"t{n:04}": n for n in range(1, 1501)}
    held = json.loads(marker(0, counts=counts).record("ledger.p")[2])["counts"]
    assert len(held) == MAX_COUNTS and sum(held.values()) == sum(counts.values())
    assert held["t1500"] == 1500 and held["t0502"] == 502 and "t0501" not in held and OTHERS_LABEL in held
    assert bounded_counts(held) == held


def test_names() -> None:
    assert (writer_key(2), transactional_id("shop", 2)) == ("writer/2", "shop.2")


def test_ledger_state_is_read_from_the_last_value_of_each_key() -> None:
    offset = FULL.start.to_json()
    rest = {"offset": offset, "rows": 1, "left_out": 0, "ts_ms": 1}
    chunk = {"epoch": 6, "list": "a", "order": 0, "chunk": {}, **rest}
    view = {"epoch": 6, "offset": offset, "ts_ms": 1}
    records = {
        "plan": encode(FULL.to_json()),
        "writer/0": encode(marker(0).to_json()),
        "writer/10": encode(marker(10, epoch=3).to_json()),
        "writer/2": None,
        "chunk/d.t/0": encode(chunk),
        "chunk/d.t/1": None,
        "snapshot": encode({"epoch": 6, "status": "done"}),
        "outcome": encode({"epoch": 6, "ok": True, "counts": {}}),
        "view": encode(view),
        "later": encode({"x": 1}),
        "writers": encode({"count": 11}),
    }
    state = build_ledger_state(records, "id")
    assert state.plan == FULL and set(state.markers) == {0, 10} and state.topic_id == "id"
    assert state.chunks == {"d.t/0": chunk}
    assert state.snapshot == {"epoch": 6, "status": "done"} and state.outcome == {"epoch": 6, "ok": True, "counts": {}}
    assert state.other_records == {"view": view, "later": {"x": 1}}
    assert state.writer_count == 11


@for_each("value", [b"{", b"[]", b"\xff", b""])
def test_a_foreign_record_in_the_ledger_is_named(value: bytes) -> None:
    with pytest.raises(StateError, match="key plan"):
        build_ledger_state({"plan": value})


def test_a_record_of_another_form_is_named() -> None:
    with pytest.raises(StateError, match=r"key writer/0.*writer"):
        build_ledger_state({"writer/0": encode({"epoch": 1})})


def test_a_drain_is_complete_when_all_its_writers_are_done_in_its_epoch() -> None:
    assert ledger(marker(0), marker(1), marker(2)).complete()
    assert ledger(marker(0), marker(1), marker(2, done=False)).missing_writers() == (2,)
    assert ledger(marker(0), marker(1, epoch=6), marker(2)).missing_writers() == (1,)
    assert ledger(marker(0), marker(1), marker(5)).missing_writers() == (2,)
    assert not LedgerState().complete()


def test_a_snapshot_is_complete_only_by_its_own_record() -> None:
    snap = replace(FULL, kind="snapshot", end=START)
    done = {"epoch": 7, "status": "done", "offset": END.to_json()}
    assert ledger(plan=snap, snapshot=done).end() == END
    for record in (None, done | {"epoch": 6}, done | {"status": "running"}, {"epoch": 7, "status": "done"}):
        state = ledger(marker(0), marker(1), marker(2), plan=snap, snapshot=record)
        assert not state.complete() and state.end() is None


def test_the_end_takes_its_gtid_set_from_the_writers_when_the_plan_could_not_know_it() -> None:
    blind = replace(FULL, end=replace(END, gtids=None))
    state = ledger(marker(0), marker(1), marker(2), plan=blind)
    assert state.end() == END


def test_the_end_has_the_transactions_that_were_being_committed_when_it_was_planned() -> None:
    """The server's set can lack a transaction that stands before its position; the writers have read it."""
    server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    end, reached = replace(FULL.end, gtids=f"{server}:1-8:10"), replace(FULL.end, gtids=f"{server}:1-9")
    plan = replace(FULL, end=end)
    done = [marker(n, reached=ResumePosition(reached)) for n in range(3)]
    last = ledger(*done, plan=plan).end()
    assert last is not None and last.gtids == f"{server}:1-10"


def test_a_batch_on_another_server_continues_the_offset_that_it_is_the_place_of() -> None:
    there = replace(FULL, start=BinlogOffset("b.000001", 99, None, "other"), continued_from=FULL.start)
    assert there.continues(FULL.start) and there.continues(there.start)
    assert not there.continues(FULL.end) and not replace(there, continued_from=None).continues(FULL.start)


def test_every_writer_that_may_have_something_open_is_listed_for_fencing() -> None:
    state = ledger(writer_count=3)
    assert state.writer_ids() == (0, 1, 2)
    assert state.writer_ids(5) == (0, 1, 2, 3, 4)
    assert LedgerState().writer_ids() == ()
    assert ledger(plan=reset_plan(8, START, "a person"), writer_count=4).writer_ids(1) == (0, 1, 2, 3)


def test_a_writer_whose_plan_is_no_longer_in_force_stops() -> None:
    ledger().require_plan(FULL)
    ledger().require_plan(replace(FULL, created_ms=1))
    others = (
        replace(FULL, epoch=8),
        replace(FULL, owner="other"),
        replace(FULL, writers=2),
        replace(FULL, attempt="b"),
    )
    for other in others:
        with pytest.raises(FencedError):
            ledger(plan=other).require_plan(FULL)
    with pytest.raises(FencedError):
        LedgerState().require_plan(plan())


def test_a_reset_is_complete_at_once_and_leads_to_its_offset() -> None:
    state = LedgerState(plan=reset_plan(8, START, "a person"), markers={0: marker(0)})
    assert state.complete() and state.end() == START


@pytest.mark.parametrize(("told", "found", "questions"), [("first", "first", 0), (None, "asked", 1)])
def test_the_id_is_requested_only_if_it_was_not_returned(
    told: str | None, found: str, questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def topic_id(admin: object, topic: str) -> str:
        asked.append(topic)
        return "asked"

    monkeypatch.setattr(ledgers, "make_admin", lambda settings: None)
    monkeypatch.setattr(ledgers, "existing_topics", lambda admin, names: {name: TopicInfo(1, told) for name in names})
    monkeypatch.setattr(ledgers, "topic_id", topic_id)
    monkeypatch.setattr(ledgers, "read_topic", lambda *a, **k: iter(()))
    state = Ledger({}, "ledger.p", "p").read()
    assert state is not None and state.topic_id == found
    assert len(asked) == questions


class Topic:
    """A ledger topic that a test writes, and an hour that passes with each look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        done = Marker(1, 0, START, END, ResumePosition(END, 0), done=True).record("ledger.p")
        values = {
            "plan": encode(BatchPlan(1, "drain", START, END, 1).to_json()),
            "writer/0": done.value,
            "note": encode({}),
        }
        self.records = [TopicRecord(0, n, key.encode(), value) for n, (key, value) in enumerate(values.items())]
        self.id, self.later, self.now = "first", list[TopicRecord](), 0.0
        monkeypatch.setattr(ledgers, "make_admin", lambda settings: None)
        monkeypatch.setattr(ledgers, "existing_topics", lambda admin, names: {n: TopicInfo(1, self.id) for n in names})
        monkeypatch.setattr(ledgers, "read_topic", lambda *a, since, **k: self.read(since[0]))
        monkeypatch.setattr(ledgers, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))

    def read(self, since: int) -> Iterator[TopicRecord]:
        return iter([record for record in self.records if record.offset >= since])

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.records += self.later


@pytest.mark.parametrize("opened", [True, False], ids=["in a job", "in Airflow"])
def test_a_ledger_that_has_gone_back_is_an_error(monkeypatch: pytest.MonkeyPatch, opened: bool) -> None:
    """In a job by what it has read itself, in Airflow by what is stored; a broker that restarts may need a moment."""
    topic, ledger = Topic(monkeypatch), Ledger({}, "ledger.p", "p")
    monkeypatch.setattr(ledgers, "require_own_records", lambda *_: None)
    if opened:
        ledger.__enter__()
    first = ledger.read()
    assert first is not None and first.progress_end == 1
    if not opened:
        ledger = Ledger({}, "ledger.p", "p")
        ledger.expect("first", 1)
    topic.records, topic.later = topic.records[:1], topic.records[1:]
    assert (again := ledger.read()) is not None and again.markers
    del topic.records[2:]
    assert ledger.read() is not None, "no other record says how far the stream is"
    topic.records, topic.later = topic.records[:1], []
    for look in (ledger.read, ledger.peek):
        with pytest.raises(RecordsLostError, match="at offset 1, and is at 0 now") as caught:
            look()
        assert not caught.value.can_retry
    topic.id = "second"
    assert ledger.read() is not None, "another topic is another ledger"
