"""Signals as they come in: what they ask for, what is refused and why, which tables they mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.cases import for_each

from airflow_provider_mysql_cdc.cdc.commit.ledger_records import build_ledger_state
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.signals.kafka_channel import SignalOffsets
from airflow_provider_mysql_cdc.cdc.signals.signal import (
    MAX_DATA,
    ExecuteSnapshot,
    LogMessage,
    PauseSnapshot,
    ResumeSnapshot,
    SchemaChanges,
    SetBinlogPosition,
    Signal,
    SignalRefused,
    StopSnapshot,
    build_signal,
    match_tables,
    pending_signals,
    read_action,
)

NOBODY: frozenset[str] = frozenset()
UUID = "0e4d5dcd-a33b-11ea-80f1-02010a22a99e"


def signal(type_: str, data: Any = "", channel: Any = "source") -> Signal:
    return Signal("ad-hoc-1", type_, data if isinstance(data, str) else json.dumps(data), channel)


def action(type_: str, data: Any = "", channel: Any = "source", trusted: frozenset[str] = NOBODY) -> Any:
    return read_action(signal(type_, data, channel), trusted)


def refusal(type_: str, data: Any = "", channel: Any = "source") -> str:
    with pytest.raises(SignalRefused) as found:
        action(type_, data, channel)
    return found.value.reason


def snapshot(**members: Any) -> dict[str, Any]:
    return {"data-collections": ["d.t"], **{name.replace("_", "-"): value for name, value in members.items()}}


# -- what they ask for ---------------------------------------------------------------------------------------------


@pytest.mark.req("EX-12", "INC-06", "INC-32")
def test_a_snapshot_is_asked_for_with_names_of_tables() -> None:
    found = action("execute-snapshot", '{"data-collections": ["public.MyFirstTable", "public.MySecondTable"]}')
    assert found == ExecuteSnapshot(
        "ad-hoc-1", "source", "incremental", ("public.MyFirstTable", "public.MySecondTable")
    )
    assert "data-collections is missing" in refusal("execute-snapshot", {"type": "incremental"})
    assert "data-collections is missing" in refusal("execute-snapshot", {"data-collections": None})
    assert "data-collections is missing" in refusal("execute-snapshot")


@pytest.mark.req("INC-05", "INC-43")
@for_each(
    "given, kind",
    [("INCREMENTAL", "incremental"), ("incremental", "incremental"), (None, "incremental"), ("Blocking", "blocking")],
)
def test_the_kind_of_a_snapshot_is_read_without_case(given: str | None, kind: str) -> None:
    assert action("execute-snapshot", snapshot(type=given)).kind == kind


@pytest.mark.req("INC-07")
def test_an_empty_list_means_nothing_to_do_and_is_no_error() -> None:
    assert action("execute-snapshot", {"data-collections": []}).collections == ()
    assert match_tables((), [TableId("d", "t")]) == ((), ())


@pytest.mark.req("INC-47")
def test_conditions_and_a_surrogate_key_are_taken_with_the_tables() -> None:
    conditions = [{"data-collection": "d.T", "filter": "color = 'blue'"}, {"data-collection": "d.*", "filter": "1"}]
    found = action("execute-snapshot", snapshot(additional_conditions=conditions, surrogate_key=" seq "))
    assert found.surrogate_key == "seq"
    assert found.condition(TableId("d", "t")) == "color = 'blue'", "the first that matches, without case, as Debezium"
    assert found.condition(TableId("d", "u")) == "1"
    assert found.condition(TableId("e", "t")) is None
    assert action("execute-snapshot", snapshot(surrogate_key="", additional_conditions=[])).surrogate_key is None


def test_snapshots_are_stopped_as_a_whole_or_by_table_and_rest_and_go_on() -> None:
    for everything in ("", {}, {"data-collections": []}, {"data-collections": None, "type": "INCREMENTAL"}):
        assert action("stop-snapshot", everything) == StopSnapshot("ad-hoc-1", "source", ())
    assert action("stop-snapshot", snapshot()).collections == ("d.t",)
    assert "cannot stop a blocking snapshot" in refusal("stop-snapshot", {"type": "blocking"})
    assert action("pause-snapshot", channel="kafka") == PauseSnapshot("ad-hoc-1", "kafka")
    assert action("resume-snapshot", "{}", "airflow") == ResumeSnapshot("ad-hoc-1", "airflow")


def test_a_message_shows_the_offset_in_place_of_its_braces() -> None:
    found = action("log", {"message": "Signal message at offset {} {}"})
    assert isinstance(found, LogMessage)
    assert found.render("b.000001:4") == "Signal message at offset b.000001:4 {}"
    assert "message is missing" in refusal("log", {"message": ""})


def test_structures_of_tables_are_taken_as_they_are() -> None:
    change = {"type": "ALTER", "id": '"d"."t"', "table": {"columns": []}}
    found = action("schema-changes", {"database": "d", "schema": None, "changes": [change]})
    assert found == SchemaChanges("ad-hoc-1", "source", "d", None, (change,))
    assert "changes is missing" in refusal("schema-changes", {"database": "d", "changes": []})
    assert "database is missing" in refusal("schema-changes", {"changes": [change]})
    assert "a list of objects" in refusal("schema-changes", {"database": "d", "changes": ["x"]})


def test_a_place_in_the_binlog_is_a_file_and_position_or_a_set_of_gtids() -> None:
    at_file = action("set-binlog-position", {"binlog_filename": "mysql-bin.000003", "binlog_position": 1234})
    assert at_file == SetBinlogPosition("ad-hoc-1", "source", "mysql-bin.000003", 1234, None)
    first = action("set-binlog-position", {"binlog_filename": "b.000003", "binlog_position": 0})
    assert first.pos == 4, "events of a file begin at 4; the server refuses less"
    assert action("set-binlog-position", {"gtid_set": f"{UUID.upper()}:1-5:3-9"}).gtids == f"{UUID}:1-9"


@for_each(
    "data, why",
    [
        ({}, "either gtid_set, or"),
        ({"gtid_set": f"{UUID}:1", "binlog_position": 4}, "either gtid_set, or"),
        ({"gtid_set": "x:1"}, "not a GTID set"),
        ({"gtid_set": ","}, "is empty"),
        ({"binlog_filename": "b.000001"}, "both"),
        ({"binlog_position": 4}, "both"),
        ({"binlog_filename": "../b.000001", "binlog_position": 4}, "name of a binlog file"),
        ({"binlog_filename": "b", "binlog_position": 4}, "name of a binlog file"),
        ({"binlog_filename": "b.000001", "binlog_position": -1}, "integer of at least 0"),
        ({"binlog_filename": "b.000001", "binlog_position": "4"}, "integer of at least 0"),
        ({"binlog_filename": "b.000001", "binlog_position": True}, "integer of at least 0"),
        ({"binlog_filename": 7, "binlog_position": 4}, "must be a string"),
    ],
)
def test_no_other_place_in_the_binlog_is_taken(data: dict[str, Any], why: str) -> None:
    assert why in refusal("set-binlog-position", data)


# -- what is refused -----------------------------------------------------------------------------------------------


@for_each(
    "data, why",
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('["d.t"]', "not a JSON object"),
        ('"d.t"', "not a JSON object"),
        ("9" * 5000, "is not JSON"),
        ({"data-collections": "d.t"}, "must be a list"),
        ({"data-collections": ["d.t", 7]}, "a list of names"),
        ({"data-collections": ["d.t", ""]}, "a list of names"),
        ('{"data-collections": ["\\ud800"]}', "a list of names"),
        ({"data-collections": ["d.(t"]}, "'d.(t' cannot be used"),
        ({"data-collections": ["d.t{x}"]}, "brace"),
        ({"data-collections": ['"d.t']}, 'of the form "database"."table"'),
        ({"data-collections": ['"a"."b"."c"']}, 'of the form "database"."table"'),
        (snapshot(type="full"), "type of its data must be incremental or blocking, and is 'full'"),
        (snapshot(type=7), "type of its data must be a string"),
        (snapshot(surrogate_key=7), "surrogate-key of its data must be a string"),
        (snapshot(surrogate_key="c" * 65), "at most 64 characters"),
        (snapshot(surrogate_key="a\0b"), "must be a string"),
        (snapshot(additional_conditions={}), "must be a list"),
        (snapshot(additional_conditions=["a = 1"]), "a list of objects"),
        (snapshot(additional_conditions=[{"filter": "a = 1"}]), "additional-conditions[0].data-collection"),
        (snapshot(additional_conditions=[{"data-collection": "d.t", "filter": " "}]), "[0].filter"),
        (snapshot(additional_conditions=[{"data-collection": "(", "filter": "1"}]), "cannot be used"),
        (snapshot(additional_condition="a = 1"), 'use "additional-conditions"'),
    ],
)
def test_a_malformed_snapshot_signal_is_refused_with_one_reason(data: Any, why: str) -> None:
    assert why in refusal("execute-snapshot", data)


def test_an_unknown_type_is_refused_with_the_known_ones() -> None:
    reason = refusal("exec-snapshot", snapshot())
    assert reason.startswith("the type 'exec-snapshot' is not known; known types are execute-snapshot, stop-snapshot")
    assert "is not known" in refusal("snapshot-window-open")
    assert action(" execute-snapshot ", snapshot()).kind == "incremental"


@pytest.mark.parametrize("member", ["additional-conditions", "surrogate-key"])
def test_sql_comes_from_trusted_channels_only(member: str) -> None:
    conditions = [{"data-collection": "d.t", "filter": "1 = 1 OR SLEEP(9)"}]
    data = {"data-collections": ["d.t"], member: conditions if member == "additional-conditions" else "seq"}
    reason = refusal("execute-snapshot", data, "kafka")
    assert member in reason and "signal.trusted.channels" in reason
    assert action("execute-snapshot", data, "kafka", frozenset({"kafka"})).collections == ("d.t",)
    for always in ("source", "airflow"):
        assert action("execute-snapshot", data, always).collections == ("d.t",)
    assert action("execute-snapshot", snapshot(), "kafka").collections == ("d.t",)


def test_structures_and_places_come_from_trusted_channels_only() -> None:
    place = {"binlog_filename": "b.000001", "binlog_position": 4}
    assert "signal.trusted.channels" in refusal("set-binlog-position", place, "kafka")
    assert action("set-binlog-position", place, "kafka", frozenset({"kafka"})).pos == 4
    change = {"database": "d", "changes": [{"type": "CREATE"}]}
    assert "signal.trusted.channels" in refusal("schema-changes", change, "kafka")


def test_what_a_channel_could_not_make_out_is_refused_with_its_reason() -> None:
    with pytest.raises(SignalRefused, match="no JSON at all"):
        read_action(build_signal(None, None, None, "kafka", "no JSON at all"), NOBODY)


@for_each(
    "given, why",
    [
        (("i" * 256, "log", "{}"), "its id has 256 characters; at most 255 are accepted"),
        (("i", "t" * 300, "{}"), "its type has 300 characters"),
        (("i", "log", "ä" * (MAX_DATA // 2 + 1)), f"its data has {MAX_DATA + 2} bytes"),
        (("i", "log", '"' * (MAX_DATA // 2 + 1)), f"its data has {MAX_DATA + 2} bytes in JSON"),
        (("i", "log", "\x01" * (MAX_DATA // 5)), "bytes in JSON"),
        (("i", "log", "\ud800"), "its data contains a code point that is not a valid character"),
    ],
)
def test_what_no_record_can_hold_is_cut_and_refused(given: tuple[str, str, str], why: str) -> None:
    found = build_signal(*given, channel="source")
    assert len(encode(found.to_json())) < 4000
    with pytest.raises(SignalRefused, match=why):
        read_action(found, NOBODY)
    largest = build_signal("i", "log", "x" * MAX_DATA, "source")
    assert not largest.invalid_reason and len(encode(largest.to_json())) < 1_000_000


# -- which tables they mean ----------------------------------------------------------------------------------------

CAPTURED = [TableId(*name.split(".", 1)) for name in ("d.a", "d.b", "e.a", "d.a-b", "d.my.table", "d.x$y", "d.A")]


def meant(*entries: str) -> tuple[list[str], tuple[str, ...]]:
    matched, unmatched = match_tables(entries, CAPTURED)
    return [str(table) for table in matched], unmatched


@pytest.mark.req("INC-04")
def test_entries_are_names_or_expressions_for_whole_names() -> None:
    assert meant("d.a") == (["d.a"], ())
    assert meant("d.[ab]") == (["d.a", "d.b"], ())
    assert meant(r".*\.a") == (["d.a", "e.a"], ())
    assert meant("e.*", "d.b", r".*\.[ab]") == (["e.a", "d.b", "d.a"], ()), "each once, in the order of the entries"
    assert meant("d.", "a") == ([], ("d.", "a"))
    assert meant("d.nothing", "d.b", r"x\..*") == (["d.b"], ("d.nothing", r"x\..*"))
    assert meant("D.a") == ([], ("D.a",)), "letters count as they are written"


def test_a_name_that_reads_as_an_expression_for_something_else_is_a_name_all_the_same() -> None:
    assert meant("d.x$y") == (["d.x$y"], ())
    assert meant("d.a-b") == (["d.a-b"], ())


@pytest.mark.req("INC-08")
def test_parts_in_double_quotes_are_names_and_may_hold_dots() -> None:
    assert meant('"d"."my.table"') == (["d.my.table"], ())
    assert meant('d."my.table"') == (["d.my.table"], ())
    assert meant('"d"."."') == ([], ('"d"."."',)), "never an expression"
    odd = TableId("d", 'a"b')
    assert match_tables(['"d"."a""b"'], [odd]) == ((odd,), ())


def test_an_expression_that_takes_too_long_is_refused_and_stops_nothing_else() -> None:
    slow = TableId("d", "a" * 60 + "!")
    with pytest.raises(SignalRefused, match="takes too long"):
        match_tables([r"d\.(a|aa)+$"], [slow])
    found = ExecuteSnapshot("i", "source", "incremental", ("d.t",), ((r"d\.(a|aa)+$", "1"),))
    with pytest.raises(SignalRefused, match="takes too long"):
        found.condition(slow)


# -- in the ledger -------------------------------------------------------------------------------------------------


def ledger(records: dict[str, Any]) -> LedgerState:
    return build_ledger_state({key: encode(value) for key, value in records.items()})


def test_signals_wait_in_the_ledger_in_the_order_of_their_channels() -> None:
    keys = ["source/7-2", "source/7-10", "source/12-1", "kafka/9", "kafka/10", "airflow/02-b", "airflow/01-a"]
    given = {
        f"signal/{key}": Signal(key, "log", "{}", key.split("/")[0]).to_json()  # type: ignore[arg-type]
        for key in [*reversed(keys[:5]), *keys[5:]]
    }
    state = ledger(given)
    assert state.other_records == {}
    found = pending_signals(state.signals)
    assert {key: one.to_json() for key, one in found} == given
    for channel in ("source", "kafka", "airflow"):
        assert [one.id for _, one in found if one.channel == channel] == [k for k in keys if k.startswith(channel)]
    refused = build_signal("x", None, None, "kafka", "why")
    assert Signal.from_json(refused.to_json()) == refused and refused.ledger_key("3") == "signal/kafka/3"


def test_a_damaged_signal_is_named() -> None:
    written = signal("log", "{}", "kafka").to_json()
    for change in ({"id": None}, {"channel": "jmx"}, {"channel": "airflow"}):
        with pytest.raises(DamagedRecordError, match="signal/kafka/3"):
            pending_signals(ledger({"signal/kafka/3": written | change}).signals)


def test_a_damaged_place_in_the_signal_topic_is_named() -> None:
    for offsets in ({"1": "2"}, {"one": 2}, {"1": -2}):
        damaged = {"topic": "t", "topic_id": None, "offsets": offsets}
        with pytest.raises(DamagedRecordError, match="signal-offset"):
            SignalOffsets.stored(ledger({"signal-offset": damaged}))
