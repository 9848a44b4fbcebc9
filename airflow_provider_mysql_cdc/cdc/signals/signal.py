"""Signals: requests to a running stream, and the actions that they request.

A signal is pending in the ledger under ``signal/<channel>/<name>`` until the driver processes it between two batches.
Types and members are Debezium's (INC-28 to INC-32, INC-40 to INC-43; ``SignalAction`` and its kinds in Debezium 3.6.1).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import SIGNAL_PREFIX
from airflow_provider_mysql_cdc.cdc.model.gtid import GtidSet
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import (
    INT64_MAX,
    Count,
    Record,
    damaged_record,
    is_integer,
    is_text,
    record_location,
)
from airflow_provider_mysql_cdc.cdc.signals.actions import (
    ExecuteSnapshot,
    LogMessage,
    PauseSnapshot,
    ResumeSnapshot,
    SchemaChanges,
    SetBinlogPosition,
    SignalAction,
    SignalChannel,
    SignalRefused,
    SnapshotKind,
    StopSnapshot,
    match_tables,
    quote_text,
    table_matcher,
)

__all__ = [
    "MAX_DATA",
    "ExecuteSnapshot",
    "LogMessage",
    "PauseSnapshot",
    "ResumeSnapshot",
    "SchemaChanges",
    "SetBinlogPosition",
    "Signal",
    "SignalAction",
    "SignalRefused",
    "StopSnapshot",
    "build_signal",
    "match_tables",
    "pending_signals",
    "read_action",
]

SCHEMA_CHANGES = "schema-changes"
"""The only type that takes effect at its binlog position, and not after the batch."""
STOP_SNAPSHOT = "stop-snapshot"
ALWAYS_TRUSTED = frozenset({"source", "airflow"})
"""Whoever can write to these channels can already read the source, or set up its jobs."""
MAX_ID = 255
"""Most characters of an id or a type; a notification repeats the id."""
MAX_DATA = 512 * 1024
"""Most bytes of a signal's data in the JSON of its ledger record, where a quote takes two bytes and a control character
six; brokers accept records of 1 MiB."""
_MAX_COLUMN_NAME = 64
"""Most characters of a column name in MySQL."""
_BINLOG_FILE = re.compile(r"[A-Za-z0-9_.-]{1,200}\.[0-9]{6,10}")
_FIRST_POSITION = 4


@dataclass(frozen=True, slots=True)
class Signal(Record):
    """Hold a signal: checked before it is sent (``checked_signal``), or as a channel brought it (``build_signal``).

    Args:
        id: The signal's id; log lines and notifications refer to it.
        type: The signal's type, for example ``execute-snapshot``.
        data: JSON text of its parameters; empty for none.
        channel: The channel that it is sent over.
        invalid_reason: Why the channel's record cannot be read as a signal, or empty.
        position: For a row of the signal table, the transaction boundary before it.
        epoch: Epoch of the batch that read the row; or 0.
        applied: Whether the batch that read the row has already applied its table structures from its position on.
        sent_ms: When it was sent, in milliseconds since 1970; 0 if it is not known.
        partition: For a record of the Kafka topic, its partition.
    """

    id: str
    type: str
    data: str
    channel: SignalChannel
    invalid_reason: str = ""
    position: BinlogOffset | None = None
    epoch: Count = 0
    applied: bool = False
    sent_ms: Count = 0
    partition: Count = 0

    @property
    def sequence(self) -> str:
        """Return the name of the sequence whose order is known without clocks: a channel, or a partition of Kafka."""
        return f"{self.channel}/{self.partition}" if self.channel == "kafka" else self.channel

    def ledger_key(self, name: str) -> str:
        """Return its ledger key.

        Args:
            name: A name that is unique within the channel.
        """
        return f"{SIGNAL_PREFIX}{self.channel}/{name}"


def build_signal(
    id_: str | None, type_: str | None, data: str | None, channel: SignalChannel, invalid_reason: str = ""
) -> Signal:
    """Return the signal of a channel's record; text that the ledger cannot store is cut, and makes the signal invalid.

    Args:
        id_: The signal's id, or None.
        type_: Its type, or None.
        data: JSON text of its parameters, or None.
        channel: The channel.
        invalid_reason: Why the channel could not read one of them, or empty.
    """
    texts = {"id": id_ or "", "type": type_ or "", "data": data or ""}
    for name, limit in (("id", MAX_ID), ("type", MAX_ID), ("data", MAX_DATA)):
        text = texts[name]
        if not is_text(text):
            texts[name] = text = text.encode("utf-8", "replace").decode()
            invalid_reason = invalid_reason or f"its {name} contains a code point that is not a valid character"
        size = len(text) if limit == MAX_ID else len(json.dumps(text, ensure_ascii=False).encode()) - 2
        if size > limit:
            texts[name] = text[:MAX_ID]
            what = "characters" if limit == MAX_ID else "bytes in JSON"
            invalid_reason = invalid_reason or f"its {name} has {size} {what}; at most {limit} are accepted"
    return Signal(texts["id"], texts["type"], texts["data"], channel, invalid_reason)


def pending_signals(records: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Signal]]:
    """Return the pending signals of the ledger with their keys; those of one channel in the order of their arrival.

    Args:
        records: ``LedgerState.signals``: values by key without its prefix, in the order of the ledger.

    Raises:
        DamagedRecordError: A record does not have the members of a signal.
    """
    signals = {}
    for key, record in records.items():
        with record_location(f"key {SIGNAL_PREFIX}{key}"):
            signals[key] = Signal.from_json(record)
            if not key.startswith(f"{signals[key].channel}/"):
                raise damaged_record("channel: expected that of the key")
    return [(SIGNAL_PREFIX + key, signals[key]) for key in sorted(signals, key=_sort_key)]


def _sort_key(key: str) -> tuple[str, list[int], str]:
    """Return the sort key of ``source/<epoch>-<file>-<position>-<number>`` and ``kafka/<offset>``.

    ``airflow/<uuid>`` keeps the order of the ledger, because the clocks of the sending hosts differ.
    """
    channel, _, name = key.partition("/")
    if channel == "airflow":
        return channel, [], ""
    numbers = [int(part) for part in name.split("-") if part.isdecimal() and part.isascii() and len(part) < 20]
    return channel, numbers, name


def read_action(signal: Signal, trusted: frozenset[str]) -> SignalAction:
    """Return the action that a signal requests.

    Args:
        signal: The signal.
        trusted: ``signal.trusted.channels``: channels that may send SQL, in addition to ``ALWAYS_TRUSTED``.

    Raises:
        SignalRefused: The signal cannot be carried out.
    """
    if signal.invalid_reason:
        raise SignalRefused(signal.invalid_reason)
    reader = _ACTION_READERS.get(signal.type.strip())
    if reader is None:
        raise SignalRefused(
            f"the type {quote_text(signal.type)} is not known; known types are {', '.join(_ACTION_READERS)}"
        )
    return reader(signal, _SignalData.parse(signal.data), signal.channel in ALWAYS_TRUSTED | trusted)


class _SignalData:
    """Read the members of a signal's data.

    Args:
        data: The members.
        path: Path of the members within the data, for messages.
    """

    def __init__(self, data: Mapping[str, Any], path: str = "") -> None:
        self._data, self._path = data, path

    @classmethod
    def parse(cls, text: str) -> _SignalData:
        """Read the JSON text; an empty text has no members.

        Raises:
            SignalRefused: The text is not a JSON object.
        """
        try:
            data = json.loads(text) if text.strip() else {}
        except ValueError as error:
            raise SignalRefused(f"its data is not JSON: {error}") from None
        except RecursionError:
            raise SignalRefused("its data is nested too deeply") from None
        if not isinstance(data, dict):
            raise SignalRefused("its data is not a JSON object")
        return cls(data)

    def text(self, name: str) -> str:
        """Return a string without surrounding blanks; empty when it is missing or null."""
        value = self._data.get(name)
        if value is None:
            return ""
        if not is_text(value) or "\0" in value:
            raise self.refusal(name, "a string")
        return str(value).strip()

    def items(self, name: str) -> list[Any] | None:
        """Return a list, or None when it is missing or null."""
        value = self._data.get(name)
        if value is not None and not isinstance(value, list):
            raise self.refusal(name, "a list")
        return value

    def objects(self, name: str) -> list[_SignalData]:
        """Return the objects of a list; none when it is missing."""
        objects = self.items(name) or []
        if not all(isinstance(value, dict) for value in objects):
            raise self.refusal(name, "a list of objects")
        return [_SignalData(value, f"{name}[{i}].") for i, value in enumerate(objects)]

    def table_entries(self, name: str) -> tuple[str, ...] | None:
        """Return a list of valid table names or regular expressions, or None when it is missing."""
        entries = self.items(name)
        if entries is None:
            return None
        if not all(is_text(value) and value.strip() for value in entries):
            raise self.refusal(name, "a list of names")
        names = tuple(dict.fromkeys(value.strip() for value in entries))
        for entry in names:
            table_matcher(entry)
        return names

    def snapshot_kind(self) -> SnapshotKind:
        """Return the kind of a snapshot, read without regard to case (INC-43)."""
        value = self.text("type").lower() or "incremental"
        if value not in ("incremental", "blocking"):
            raise self.refusal("type", "incremental or blocking")
        return cast(SnapshotKind, value)

    def whole_number(self, name: str) -> int | None:
        """Return an integer of at least 0, or None when it is missing or null."""
        value = self._data.get(name)
        if value is not None and not (is_integer(value) and 0 <= value <= INT64_MAX):
            raise self.refusal(name, "an integer of at least 0")
        return cast("int | None", value)

    def members(self) -> Mapping[str, Any]:
        """Return the members as they are."""
        return self._data

    def refusal(self, name: str, expected: str) -> SignalRefused:
        """Return the refusal of a member.

        Args:
            name: The member.
            expected: The value that is expected.
        """
        value = self._data.get(name)
        actual = f", and is {quote_text(value)}" if isinstance(value, str) else ""
        return SignalRefused(f"{self._path}{name} of its data must be {expected}{actual}")


def _require_trust(signal: Signal, trusted: bool, what: str) -> None:
    if not trusted:
        raise SignalRefused(
            f"{what} is not accepted from channel {signal.channel}; add the channel to signal.trusted.channels if only "
            "people who may run such SQL on the source can write to it"
        )


def _execute_snapshot(signal: Signal, data: _SignalData, trusted: bool) -> SignalAction:
    collections = data.table_entries("data-collections")
    if collections is None:
        raise SignalRefused("data-collections is missing from its data")
    if "additional-condition" in data.members():
        raise SignalRefused(
            'its data has additional-condition, which is not supported; use "additional-conditions": [{..}]'
        )
    conditions = tuple(_condition(member) for member in data.objects("additional-conditions"))
    surrogate_key = data.text("surrogate-key") or None
    if surrogate_key is not None and len(surrogate_key) > _MAX_COLUMN_NAME:
        raise data.refusal("surrogate-key", f"a column name of at most {_MAX_COLUMN_NAME} characters")
    if conditions:
        _require_trust(signal, trusted, "SQL (additional-conditions)")
    if surrogate_key:
        _require_trust(signal, trusted, "surrogate-key")
    return ExecuteSnapshot(signal.id, signal.channel, data.snapshot_kind(), collections, conditions, surrogate_key)


def _condition(data: _SignalData) -> tuple[str, str]:
    name, sql = data.text("data-collection"), data.text("filter")
    for member, text in (("data-collection", name), ("filter", sql)):
        if not text:
            raise data.refusal(member, "a string that is not empty")
    table_matcher(name, ignore_case=True)
    return name, sql


def _stop_snapshot(signal: Signal, data: _SignalData, trusted: bool) -> SignalAction:
    if data.snapshot_kind() == "blocking":
        raise SignalRefused("a signal cannot stop a blocking snapshot; stop its Airflow task instead")
    return StopSnapshot(signal.id, signal.channel, data.table_entries("data-collections") or ())


def _log_message(signal: Signal, data: _SignalData, trusted: bool) -> SignalAction:
    if not (message := data.text("message")):
        raise SignalRefused("message is missing from its data")
    return LogMessage(signal.id, signal.channel, message)


def _schema_changes(signal: Signal, data: _SignalData, trusted: bool) -> SignalAction:
    _require_trust(signal, trusted, "schema-changes")
    changes = tuple(change.members() for change in data.objects("changes"))
    database = data.text("database")
    if not changes or not database:
        raise SignalRefused(f"{'changes' if not changes else 'database'} is missing from its data, or empty")
    return SchemaChanges(signal.id, signal.channel, database, data.text("schema") or None, changes)


def _set_binlog_position(signal: Signal, data: _SignalData, trusted: bool) -> SignalAction:
    _require_trust(signal, trusted, "set-binlog-position")
    file, pos, gtids = data.text("binlog_filename"), data.whole_number("binlog_position"), data.text("gtid_set")
    if bool(gtids) == bool(file or pos is not None):
        raise SignalRefused("its data must hold either gtid_set, or binlog_filename and binlog_position")
    action = SetBinlogPosition(signal.id, signal.channel)
    if gtids:
        try:
            gtid_set = GtidSet.parse(gtids)
        except ValueError as error:
            raise SignalRefused(f"gtid_set of its data is not a GTID set: {error}") from None
        if not gtid_set:
            raise SignalRefused("gtid_set of its data is empty")
        return replace(action, gtids=str(gtid_set))
    if not file or pos is None:
        raise SignalRefused("its data must hold both binlog_filename and binlog_position")
    if not _BINLOG_FILE.fullmatch(file):
        raise data.refusal("binlog_filename", "the name of a binlog file, as SHOW BINARY LOGS lists it")
    return replace(action, file=file, pos=max(pos, _FIRST_POSITION))


_ACTION_READERS: dict[str, Callable[[Signal, _SignalData, bool], SignalAction]] = {
    "execute-snapshot": _execute_snapshot,
    STOP_SNAPSHOT: _stop_snapshot,
    "pause-snapshot": lambda signal, data, trusted: PauseSnapshot(signal.id, signal.channel),
    "resume-snapshot": lambda signal, data, trusted: ResumeSnapshot(signal.id, signal.channel),
    "log": _log_message,
    SCHEMA_CHANGES: _schema_changes,
    "set-binlog-position": _set_binlog_position,
}
