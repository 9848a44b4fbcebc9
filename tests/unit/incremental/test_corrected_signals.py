"""A signal that was refused, or whose scans were aborted, can be corrected and sent again under its id."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.incremental import notifications, signal_processor
from airflow_provider_mysql_cdc.cdc.incremental.incremental_state import (
    IncrementalState,
    RequestRecord,
    read_incremental_state,
    snapshot_status,
    state_changes,
)
from airflow_provider_mysql_cdc.cdc.incremental.signal_processor import SignalProcessor
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals.content_digest import content_digest
from airflow_provider_mysql_cdc.cdc.signals.signal import Signal, build_signal

CAPTURED = [TableId("shop", "items"), TableId("shop", "orders")]
GOOD = json.dumps({"data-collections": ["shop.orders"]})
WRONG = {
    "bad JSON": '{"data-collections": ["shop.orders"]',
    "unknown table": '{"data-collections": ["shop.oders"]}',
    "wrong condition": json.dumps(
        {
            "data-collections": ["shop.orders"],
            "additional-conditions": [{"data-collection": "shop.orders", "filter": "id < 1) OR (1"}],
        }
    ),
}


@pytest.fixture(autouse=True)
def source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal_processor, "captured_tables", lambda conn, cfg: CAPTURED)
    monkeypatch.setattr(signal_processor, "watermark_obstacle", lambda conn, cfg: None)
    monkeypatch.setattr(signal_processor, "quoting_mode", lambda conn: 0)


def run(state: IncrementalState, *signals: Signal) -> tuple[SignalProcessor, list[str]]:
    """Process signals as one run does, with the state that it reads from the ledger."""
    lines: list[str] = []
    stored = {key: value for key, value in state_changes(IncrementalState(), state) if value is not None}
    read = read_incremental_state(LedgerState(other_records=stored))
    job: Any = None
    processor = SignalProcessor(config(), None, job, LedgerState(), lines.append, read)
    for signal in signals:
        processor.process(signal)
    return processor, lines


def ask(data: str, type_: str = "execute-snapshot") -> Signal:
    return build_signal("mine", type_, data, "source")


def aborted(state: IncrementalState, reason: str = "Unknown column") -> IncrementalState:
    return state.with_scans([scan.abort(reason) for scan in state.active_scans])


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_refused_signal_is_taken_when_it_was_corrected(wrong: str) -> None:
    before, _ = run(IncrementalState(), ask(wrong))
    assert [refusal.signal.id for refusal in before.refused] == ["mine"]
    after, _ = run(before.state, ask(GOOD))
    assert after.refused == [] and [str(scan.table) for scan in after.state.active_scans] == ["shop.orders"]
    assert after.state.requests["mine"].verdict == "accepted" and after.state.requests["mine"].reason == ""


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_copy_of_a_refused_signal_is_reported_once(wrong: str) -> None:
    first, _ = run(IncrementalState(), ask(wrong), ask(wrong))
    assert len(first.refused) == 1
    again, lines = run(first.state, ask(wrong))
    assert again.refused == [] and again.state == first.state and "were reported before" in lines[-1]


def test_a_correction_that_is_wrong_too_is_reported() -> None:
    first, _ = run(IncrementalState(), ask(WRONG["unknown table"]))
    again, _ = run(first.state, ask('{"data-collections": ["shop.odrers"]}'))
    [refusal] = again.refused
    assert "shop.odrers" in refusal.reason and "shop.odrers" in again.state.requests["mine"].reason
    other = ask(WRONG["unknown table"][:-1] + ', "type": "blocking"}')
    assert len(run(first.state, other)[0].refused) == 1, "another content that is refused for the same reason"


def test_a_refused_signal_is_taken_when_the_table_exists_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = run(IncrementalState(), ask(WRONG["unknown table"]))
    monkeypatch.setattr(signal_processor, "captured_tables", lambda conn, cfg: [TableId("shop", "oders")])
    again, _ = run(first.state, ask(WRONG["unknown table"]))
    assert again.refused == [] and len(again.state.active_scans) == 1


def test_a_copy_of_a_signal_that_was_carried_out_is_not_reported_as_aborted() -> None:
    first, _ = run(IncrementalState(), ask(GOOD))
    again, lines = run(first.state, ask(json.dumps(json.loads(GOOD), indent=1)))
    assert again.refused == [] and again.state == first.state and "was carried out before" in lines[0]
    other, _ = run(first.state, ask('{"data-collections": ["shop.items"]}'))
    assert len(other.refused) == 1 and other.state == first.state, "another content under the id of a running snapshot"


def test_a_signal_whose_scans_were_aborted_is_taken_when_it_was_corrected() -> None:
    """A condition with an unknown column is accepted, and the server refuses it when the table is read."""
    wrong = GOOD[:-1] + ', "additional-conditions": [{"data-collection": "shop.orders", "filter": "gone = 1"}]}'
    first, _ = run(IncrementalState(), ask(wrong))
    copy, _ = run(aborted(first.state), ask(wrong))
    assert copy.state.active_scans == [] and copy.refused == [], "a copy does not start it again"
    worse, _ = run(aborted(first.state), ask(WRONG["unknown table"]), ask(WRONG["unknown table"]))
    assert len(worse.refused) == 1 and worse.state.requests["mine"].verdict == "refused"
    assert len(run(worse.state, ask(GOOD))[0].state.scans) == 1
    after, _ = run(aborted(first.state), ask(GOOD))
    [scan] = after.state.scans.values()
    assert (scan.state, scan.condition, scan.number) == ("waiting", None, 1), "the aborted scan is not part of it"
    assert [n.type for n in notifications.changed(after.state, aborted(after.state))][-1] == "COMPLETED"


def test_records_of_earlier_versions_have_no_content() -> None:
    refused = IncrementalState(
        requests={"mine": RequestRecord("mine", "refused", reason="no captured table matches x")}
    )
    assert len(run(refused, ask(GOOD))[0].state.active_scans) == 1
    accepted = IncrementalState(requests={"mine": RequestRecord("mine", "accepted", ts_ms=1)})
    again, _ = run(accepted, ask(GOOD))
    assert len(again.refused) == 1 and again.state == accepted


def test_a_corrected_signal_that_waits_is_not_the_refused_one() -> None:
    refused, _ = run(IncrementalState(), ask(WRONG["bad JSON"]))
    stored = {key: value for key, value in state_changes(IncrementalState(), refused.state) if value is not None}
    assert snapshot_status(LedgerState(other_records=stored), "mine").state == "aborted"
    waiting = LedgerState(other_records=stored, signals={"airflow/1": ask(GOOD).to_json() | {"channel": "airflow"}})
    assert snapshot_status(waiting, "mine").state == "waiting"


def test_the_content_is_type_data_and_what_cannot_be_read() -> None:
    assert content_digest(ask('{"a": 1, "b": 2}')) == content_digest(ask('{ "b":2,"a":1}'))
    assert content_digest(ask("{}")) == content_digest(build_signal("other", "execute-snapshot ", "{}", "kafka"))
    others = [ask("{"), ask("{}", "stop-snapshot"), build_signal("mine", "execute-snapshot", "{}", "source", "why")]
    assert len({content_digest(signal) for signal in [ask("{}"), *others]}) == 4
    content_digest(ask("[" * 100_000))
