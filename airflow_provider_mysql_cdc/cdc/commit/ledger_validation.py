"""The forms of the ledger's records whose JSON is kept as it is: what this version reads of them is checked first."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import SignalsTaken
from airflow_provider_mysql_cdc.cdc.commit.plan import (
    CHUNK_PREFIX,
    HISTORY_KEY,
    MAX_WRITERS,
    OUTCOME_KEY,
    SIGNAL_CHANNELS,
    SIGNAL_OFFSET_KEY,
    SIGNAL_PREFIX,
    SIGNALS_TAKEN_KEY,
    SNAPSHOT_KEY,
    VIEW_KEY,
)
from airflow_provider_mysql_cdc.cdc.commit.run_tally import RUN_KEY, TOLD_KEY, RunTally
from airflow_provider_mysql_cdc.cdc.model.native_counts import NativeCounts
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members


def check_form(key: str, given: Members) -> None:
    """Check the members that this version reads of a record whose JSON is kept as it is.

    Args:
        key: Its key; one that this version does not know is not checked.
        given: Its members.

    Raises:
        DamagedRecordError: One is not of its form.
    """
    if (form := _FORMS.get(key)) is not None:
        form(given)
    elif key.startswith(CHUNK_PREFIX):
        _check_chunk(given)
    elif key.startswith(SIGNAL_PREFIX):
        check_signal(key, given)


def check_signal(key: str, given: Members) -> None:
    """Check the record of a signal that waits (``signals.signal.Signal``).

    Args:
        key: Its key.
        given: Its members.

    Raises:
        DamagedRecordError: One is not of its form, or belongs to another channel than the key.
    """
    for name in ("id", "type", "data"):
        given.text(name)
    given.text("refused", "")
    given.whole("epoch", 0)
    given.flag("applied", False)
    if given.value("place", None) is not None:
        BinlogOffset.from_json(given.object("place"))
    if not key.startswith(f"{SIGNAL_PREFIX}{given.one_of('channel', SIGNAL_CHANNELS)}/"):
        raise given.refuse("channel", f"that of the key {key}")


def check_snapshot(given: Members) -> None:
    """Check the record of a snapshot, which the ledger and the stored state both hold.

    Args:
        given: Its members.

    Raises:
        DamagedRecordError: One is not of its form.
    """
    given.whole("epoch")
    given.one_of("status", ("planned", "done"))
    given.whole("tasks", 0, high=MAX_WRITERS)
    if given.value("list", None) is not None:
        given.text("list")
        given.whole("count")
    if given.value("offset", None) is not None:
        BinlogOffset.from_json(given.object("offset"))


def _check_chunk(given: Members) -> None:
    given.whole("epoch")
    given.text("list", "")
    given.whole("order", 0)
    given.object("chunk")
    if given.value("offset", None) is not None or given.value("rows", None) is not None:
        given.whole("rows")
        given.whole("left_out", 0)
        given.whole("ts_ms", 0)
        given.whole("writer", 0, high=MAX_WRITERS)
        NativeCounts.of_members(given)
        for named in given.objects("names", ()):
            named.text("db"), named.text("table"), named.whole("rows"), named.whole("left_out")
        BinlogOffset.from_json(given.object("offset"))


def _check_outcome(given: Members) -> None:
    given.whole("epoch")
    given.each("counts", Members.whole)


def _check_view(given: Members) -> None:
    given.whole("epoch")
    BinlogOffset.from_json(given.object("offset"))


def _check_signal_offset(given: Members) -> None:
    _check_history(given)
    given.whole("offset")


def _check_history(given: Members) -> None:
    given.text("topic")
    given.text_or_none("id")


def _check_told(given: Members) -> None:
    given.whole("epoch")
    given.text("run"), given.text("by")


_FORMS: dict[str, Callable[[Members], object]] = {
    SNAPSHOT_KEY: check_snapshot,
    OUTCOME_KEY: _check_outcome,
    VIEW_KEY: _check_view,
    SIGNAL_OFFSET_KEY: _check_signal_offset,
    HISTORY_KEY: _check_history,
    SIGNALS_TAKEN_KEY: SignalsTaken.from_json,
    RUN_KEY: RunTally.from_json,
    TOLD_KEY: _check_told,
}
