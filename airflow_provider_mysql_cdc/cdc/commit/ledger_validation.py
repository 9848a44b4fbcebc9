"""Check the ledger records whose JSON is kept as it is: the members that are read of them."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import (
    CAPTURED_LISTS_KEY,
    CHUNK_PREFIX,
    HISTORY_KEY,
    OUTCOME_KEY,
    PROCESSED_SIGNALS_KEY,
    REPORTED_KEY,
    RUN_KEY,
    SIGNAL_OFFSET_KEY,
    SIGNAL_PREFIX,
    SNAPSHOT_KEY,
    UNCHECKED_PREFIX,
    UNREAD_PREFIX,
    VIEW_KEY,
)
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import ProcessedSignals
from airflow_provider_mysql_cdc.cdc.commit.plan import SIGNAL_CHANNELS
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RunTally
from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members


def check_record(key: str, record: Members) -> None:
    """Check the members that are read of a record whose JSON is kept as it is.

    Args:
        key: Its key; one that is not known here is not checked.
        record: Its members.

    Raises:
        DamagedRecordError: A member is missing or of another type.
    """
    if (check := _CHECKS.get(key)) is not None:
        check(record)
    elif key.startswith(CHUNK_PREFIX):
        _check_chunk(record)
    elif key.startswith(SIGNAL_PREFIX):
        check_signal_record(key, record)
    elif key.startswith(UNCHECKED_PREFIX):
        for name in ("db", "table", "where"):
            record.text(name)
        record.flag("rows")
    elif key.startswith(UNREAD_PREFIX):
        for name in ("db", "table", "where", "why"):
            record.text(name)


def check_signal_record(key: str, record: Members) -> None:
    """Check the record of a pending signal (``signals.signal.Signal``).

    Args:
        key: Its key.
        record: Its members.

    Raises:
        DamagedRecordError: A member is missing or of another type, or the channel is not that of the key.
    """
    for name in ("id", "type", "data"):
        record.text(name)
    record.text("refused", "")
    record.integer("epoch", 0)
    record.integer("sent_ms", 0)
    record.flag("applied", False)
    if record.value("place", None) is not None:
        BinlogOffset.from_json(record.object("place"))
    if not key.startswith(f"{SIGNAL_PREFIX}{record.one_of('channel', SIGNAL_CHANNELS)}/"):
        raise record.member_error("channel", f"that of the key {key}")


def check_snapshot(record: Members) -> None:
    """Check the record of a snapshot, which the ledger and the stored state both hold.

    Args:
        record: Its members.

    Raises:
        DamagedRecordError: A member is missing or of another type.
    """
    record.integer("epoch")
    record.one_of("status", ("planned", "done"))
    if record.value("list", None) is not None:
        record.text("list")
        record.integer("count")
    if record.value("offset", None) is not None:
        BinlogOffset.from_json(record.object("offset"))


def _check_chunk(record: Members) -> None:
    record.integer("epoch")
    record.text("list")
    record.integer("order")
    record.object("chunk")
    if record.value("offset", None) is not None or record.value("rows", None) is not None:
        record.integer("rows")
        record.integer("left_out")
        record.integer("ts_ms")
        NativeCounts.from_members(record)
        BinlogOffset.from_json(record.object("offset"))


def _check_outcome(record: Members) -> None:
    record.integer("epoch")
    record.each_member("counts", Members.integer)


def _check_view(record: Members) -> None:
    record.integer("epoch")
    record.integer("commit_ts", 0)
    BinlogOffset.from_json(record.object("offset"))


def _check_signal_offset(record: Members) -> None:
    _check_history(record)
    for partition in record.each_member("offsets", Members.integer):
        if not (partition.isascii() and partition.isdecimal()):
            raise record.member_error("offsets", "offsets by partition number")


def _check_history(record: Members) -> None:
    record.text("topic")
    record.text_or_none("id")


def _check_reported(record: Members) -> None:
    record.integer("epoch")
    record.text("run"), record.text("by")


_CHECKS: dict[str, Callable[[Members], object]] = {
    CAPTURED_LISTS_KEY: lambda record: record.text("lists"),
    SNAPSHOT_KEY: check_snapshot,
    OUTCOME_KEY: _check_outcome,
    VIEW_KEY: _check_view,
    SIGNAL_OFFSET_KEY: _check_signal_offset,
    HISTORY_KEY: _check_history,
    PROCESSED_SIGNALS_KEY: ProcessedSignals.from_json,
    RUN_KEY: RunTally.from_json,
    REPORTED_KEY: _check_reported,
}
