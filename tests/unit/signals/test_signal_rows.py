"""Signals in the rows of the signal table: found wherever they stand, handed over once, whenever a writer dies."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import column
from kit.drain_rig import START, Rig
from kit.memory_kafka import MemoryKafka
from kit.signal_stream import BINARY, FILE, LATIN1, Binlog, log_signals, rows_body

from airflow_provider_mysql_cdc.cdc.binlog import constants as c
from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, Marker
from airflow_provider_mysql_cdc.cdc.drain.drain_writer_factory import create_writer
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.errors import BinlogCorruptError, SchemaError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.offset import ResumePosition
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.signals import table_rows
from airflow_provider_mysql_cdc.cdc.signals.signal import SignalRefused, pending_signals, read_action

LEDGER = "ledger.p"
GIVEN = {
    "heartbeat.interval.ms": "0",
    "database.include.list": "shop",
    "signal.data.collection": "ops.signals",
}


class Killed(Exception):
    """The writer's process is gone."""


def run(
    monkeypatch: pytest.MonkeyPatch,
    log: Binlog,
    *,
    resume: ResumePosition | None = None,
    kafka: MemoryKafka | None = None,
    commit_at: frozenset[int] = frozenset(),
    kill_at: int | None = None,
    **given: str,
) -> tuple[Rig, list[tuple[str, str]]]:
    """Drain a binlog; commit, or die, behind events of these numbers."""
    rig = Rig(monkeypatch, resume, **GIVEN | given)
    if kafka is not None:
        rig.sink._kafka = rig.kafka = kafka
        rig.sink.init()
    rig.writer.ddl.ddl_events._server_variables = {"lower_case_table_names": 0, "explicit_defaults_for_timestamp": 1}
    watermarks: list[tuple[str, str]] = []
    if rig.writer.handlers.signals is not None:
        rig.writer.handlers.signals.on_watermark = lambda id_, type_: watermarks.append((id_, type_))

    def events(on_wait: Any) -> Iterator[Any]:
        for number, event in enumerate(log.events):
            yield event
            if number in commit_at and not rig.writer.position.is_before_resume():
                rig.sink.produce("p.shop.t", b"k", b"v", 0)
                rig.clock.now += 1000
                on_wait()
                assert not rig.sink.bytes_pending
            if number == kill_at:
                raise Killed

    if kill_at is None:
        rig.run(events)
    else:
        with pytest.raises(Killed):
            rig.run(events)
    return rig, watermarks


def handed_over(kafka: MemoryKafka) -> list[tuple[str, dict[str, Any]]]:
    """Return every signal record that was ever committed, in the order of the topic."""
    return [
        (r.key.decode(), json.loads(r.value or b""))
        for r in kafka.committed(LEDGER)
        if r.key is not None and r.key.startswith(b"signal/")
    ]


def ids(kafka: MemoryKafka) -> list[str]:
    return [value["id"] for _, value in handed_over(kafka)]


@pytest.mark.req("INC-29", "INC-31")
def test_inserted_rows_become_signals_that_wait_in_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Binlog()
    snapshot = '{"data-collections": ["schema1.table1", "schema2.table2"],"type":"incremental"}'
    log.transaction(("ad-hoc-1", "execute-snapshot", snapshot), *log_signals("ö"))
    log.transaction(("", "stop-snapshot", None))
    rig, _ = run(monkeypatch, log)
    state = build_ledger_state({r.key.decode(): r.value for r in rig.kafka.committed(LEDGER) if r.key})
    found = pending_signals(state.signals)
    assert [key for key, _ in found] == ["signal/source/1-000001-4-1", "signal/source/1-000001-4-2",
                                         "signal/source/1-000001-404-1"]  # fmt: skip
    assert [signal.id for _, signal in found] == ["ad-hoc-1", "ö", ""]
    action: Any = read_action(found[0][1], frozenset())
    assert (action.kind, action.collections) == ("incremental", ("schema1.table1", "schema2.table2"))
    assert rig.kafka.committed("p.ops.signals") == [], "the table is not captured"


def test_a_signal_has_the_time_of_its_transactions_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a commit time in the GTID event, which only MySQL 8.0 and later log, it is known to the second."""
    log = Binlog()
    log.transaction(("ask", "execute-snapshot", "{}"), ("stop", "stop-snapshot", "{}"))
    log.events[-1] = log.events[-1]._replace(timestamp=1_700_000_000)
    rig, _ = run(monkeypatch, log)
    assert [value["sent_ms"] for _, value in handed_over(rig.kafka)] == [1_700_000_000_999, 1_700_000_000_000]


def test_rows_that_are_changed_or_deleted_and_those_of_other_tables_are_no_signals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Binlog()
    log.begin()
    log.table()
    log.delete(*log_signals("deleted"))
    log.add(c.UPDATE_ROWS_EVENT_V2, rows_body(1, tuple(log_signals("old", "new"))))
    log.table(2, "ops", "others")
    log.insert(*log_signals("elsewhere"), number=2)
    log.table(3, "Ops", "Signals")
    log.insert(*log_signals("case"), number=3)
    log.commit()
    rig, watermarks = run(monkeypatch, log)
    assert handed_over(rig.kafka) == [] and watermarks == []


def test_only_writer_0_hands_over_and_only_where_the_channel_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Binlog()
    log.transaction(*log_signals("s1"))
    off, _ = run(monkeypatch, log, **{"signal.enabled.channels": "kafka"})
    assert handed_over(off.kafka) == []
    context = replace(off.writer.context, plan=BatchPlan(1, "drain", START, START, 2))
    writers = [
        create_writer(replace(context, index=index, window_keys=keys))
        for index, keys in ((0, None), (1, WindowKeys((), low_watermark_id="x-open")))
    ]
    assert writers[0].handlers.signals is None, "nobody wants anything of the table"
    waits = writers[1].handlers.signals
    assert waits is not None and waits.side_records is None


@pytest.mark.parametrize("strategy, closed", [("insert_insert", 1), ("insert_delete", 2)])
def test_watermarks_are_no_signals_and_go_to_whoever_waits(
    monkeypatch: pytest.MonkeyPatch, strategy: str, closed: int
) -> None:
    log = Binlog()
    log.transaction(("u1-open", "snapshot-window-open", "{}"))
    log.transaction(("u1-close", "snapshot-window-close", "{}"))
    for row in (("u2-open", "snapshot-window-open", "{}"), ("u1-close", "snapshot-window-close", "{}")):
        log.begin()
        log.table()
        log.delete(row)
        log.commit()
    rig, watermarks = run(monkeypatch, log, **{"incremental.snapshot.watermarking.strategy": strategy})
    assert handed_over(rig.kafka) == []
    assert (
        watermarks
        == [
            ("u1-open", "snapshot-window-open"),
            ("u1-close", "snapshot-window-close"),
            ("u2-close", "snapshot-window-close"),
        ][: 1 + closed]
    )
    rig, again = run(monkeypatch, log, resume=ResumePosition(START.with_position(FILE, 3000), 0))
    assert again == watermarks[:2], "a retry learns of them again, whatever is committed"


# -- once, whatever happens ------------------------------------------------------------------------------------------


def three_transactions() -> tuple[Binlog, list[str]]:
    log = Binlog()
    log.transaction(*log_signals("s1"))
    log.begin()
    log.table()
    log.insert(*log_signals("s2", "s3"))
    log.table(2, "ops", "others")
    log.insert(*log_signals("no"), number=2)
    log.table()
    log.insert(*log_signals("s4"))
    log.commit()
    log.statement("CREATE TABLE ops.x (a INT)")
    log.begin()
    log.table()
    log.insert(*log_signals("s5"))
    log.statement("COMMIT")
    return log, ["s1", "s2", "s3", "s4", "s5"]


@for_each("commit", ["each", "none", "odd", "even"])
def test_each_signal_is_handed_over_once_wherever_a_writer_dies(monkeypatch: pytest.MonkeyPatch, commit: str) -> None:
    """A commit can come inside a transaction, behind some of its row events; its signals then come with its end."""
    log, expected = three_transactions()
    steps = {"each": (0, 1), "none": (99, 1), "odd": (1, 2), "even": (0, 2)}[commit]
    commits = frozenset(range(steps[0], len(log.events), steps[1]))
    for kill_at in range(len(log.events)):
        rig, _ = run(monkeypatch, log, commit_at=commits, kill_at=kill_at)
        before = ids(rig.kafka)
        assert before == expected[: len(before)]
        markers = [r for r in rig.kafka.committed(LEDGER) if (r.key or b"").startswith(b"writer/")]
        resume = Marker.from_json(json.loads(markers[-1].value or b"")).reached if markers else None
        run(monkeypatch, log, kafka=rig.kafka, resume=resume, commit_at=commits)
        assert ids(rig.kafka) == expected, (commit, kill_at)
        keys = [key for key, _ in handed_over(rig.kafka)]
        assert len(set(keys)) == len(keys)


def test_no_signal_is_visible_before_its_transaction_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = three_transactions()
    every = frozenset(range(len(log.events)))
    for kill_at in (6, 8, 10):
        rig, _ = run(monkeypatch, log, commit_at=every, kill_at=kill_at)
        assert ids(rig.kafka) == ["s1"], kill_at


# -- rows that are not as they should be -----------------------------------------------------------------------------


def one_refusal(rig: Rig) -> str:
    (record,) = handed_over(rig.kafka)
    (found,) = pending_signals({record[0].removeprefix("signal/"): record[1]})
    with pytest.raises(SignalRefused) as refused:
        read_action(found[1], frozenset())
    return refused.value.reason


def test_a_row_that_cannot_be_read_is_a_refused_signal_and_the_others_count(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Binlog()
    good = [tuple(value.encode() for value in row) for row in log_signals("a", "b")]
    log.begin()
    log.table()
    log.add(c.WRITE_ROWS_EVENT_V2, rows_body(1, (good[0], (b"bad", b"log", b"\xff\xfe"), good[1])))
    log.commit()
    rig, _ = run(monkeypatch, log)
    assert ids(rig.kafka) == ["a", "bad", "b"]
    assert handed_over(rig.kafka)[1][1]["invalid_reason"] == "c2 cannot be read"
    assert "refused" not in handed_over(rig.kafka)[0][1]


def test_missing_values_are_refused_and_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Binlog()
    log.transaction((None, None, None))
    rig, _ = run(monkeypatch, log)
    assert "the type '' is not known" in one_refusal(rig)


def test_a_flood_of_signals_in_one_transaction_is_cut_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_rows, "MAX_TRANSACTION_SIGNALS", 3)
    log = Binlog()
    log.transaction(*log_signals(*map(str, range(5))))
    log.transaction(*log_signals("later"))
    rig, _ = run(monkeypatch, log)
    assert ids(rig.kafka) == ["0", "1", "2", "", "later"]
    assert "inserted 2 signals more than the 3" in handed_over(rig.kafka)[3][1]["invalid_reason"]
    monkeypatch.setattr(table_rows, "MAX_TRANSACTION_SIGNALS", 100)
    monkeypatch.setattr(table_rows, "MAX_TRANSACTION_BYTES", 10)
    rig, _ = run(monkeypatch, log)
    assert ids(rig.kafka) == ["0", "", "later"]


def test_rows_of_another_width_than_announced_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Binlog()
    log.begin()
    log.table()
    log.insert(("a", "b"))
    with pytest.raises(BinlogCorruptError, match="2 columns"):
        run(monkeypatch, log)


# -- which structure it has ------------------------------------------------------------------------------------------


def known(*columns: Any) -> Table:
    return Table(TableId("ops", "signals"), columns)


HISTORY = known(
    column("id", "VARCHAR", 1, length=42, charset="utf8mb4"),
    column("type", "VARCHAR", 2, length=32, charset="utf8mb4"),
    column("data", "TEXT", 3, charset="utf8mb4"),
)


def read_with(monkeypatch: pytest.MonkeyPatch, table: Table | None, row: tuple[Any, ...], **announced: Any) -> Rig:
    log = Binlog()
    log.begin()
    log.table(**announced)
    log.insert(row)
    log.commit()
    rig = Rig(monkeypatch, **GIVEN)
    if table is not None:
        rig.writer.ddl.state = rig.writer.ddl.state.with_table(table)
    rig.run(lambda _: iter(log.events))
    return rig


def test_the_historys_structure_is_taken_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    # A server of 5.7 tells no character sets; without the history its columns could not be read.
    assert ids(read_with(monkeypatch, HISTORY, ("a", "log", "{}"), charset=None).kafka) == ["a"]
    # The history may not know a change of a table that was not followed then; the binlog tells enough.
    other = known(*HISTORY.columns[:2])
    assert ids(read_with(monkeypatch, other, ("a", "log", "{}")).kafka) == ["a"]


def test_further_columns_and_other_character_sets_are_borne(monkeypatch: pytest.MonkeyPatch) -> None:
    four = (*((wt.VARCHAR, 100),) * 2, (wt.BLOB, 2), (wt.STRING, 254 | 40 << 8))
    rig = read_with(monkeypatch, None, (b"\xe4", "log", "{}", "x"), columns=four, charset=LATIN1)
    assert ids(rig.kafka) == ["ä"]


@pytest.mark.parametrize(
    "announced, why",
    [
        ({"charset": None}, "does not contain the table, and the binlog alone does not describe"),
        ({"charset": BINARY}, "does not describe its columns"),
        ({"columns": ((wt.VARCHAR, 168), (wt.LONG, 0), (wt.BLOB, 2))}, "does not describe its columns"),
        ({"columns": ((wt.VARCHAR, 168), (wt.VARCHAR, 168))}, "it has only 2 columns"),
    ],
)
def test_a_table_without_a_structure_is_skipped_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, announced: dict[str, Any], why: str
) -> None:
    log = Binlog()
    log.begin()
    log.table(**announced)
    log.insert(("a", "log", "{}"))
    log.commit()
    caplog.set_level(logging.WARNING)
    rig = Rig(monkeypatch, **GIVEN)
    rig.run(lambda _: iter(log.events))
    assert handed_over(rig.kafka) == []
    (message,) = caplog.messages
    assert message.startswith("the rows of the signal table ops.signals cannot be read from b.000001:104 on")
    assert why in message and "three character columns" in message
    with pytest.raises(SchemaError, match="cannot be read"):
        run(monkeypatch, log)
