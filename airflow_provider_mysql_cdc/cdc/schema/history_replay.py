"""Replay the records of the schema history to get the structures at an offset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_provider_mysql_cdc.cdc.ddl.classify import CapturePredicate
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState, UnparsedTable
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import TableId

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord

REBUILD_REMEDY = "rebuild the history with snapshot.mode=recovery"


@dataclass(slots=True)
class Replay:
    """Apply records of the history in the order of its topic.

    The last full description at or before the offset counts, and the later statements in the same binlog. A statement
    that both an abandoned attempt and its successor recorded is applied once.

    Args:
        until: The offset; statements after it are ignored.
        epoch: The epoch that starts at the offset.
        skip_unparseable: ``schema.history.internal.skip.unparseable.ddl``.
        captures: Selects the relevant tables, None for all; only for them an unparseable statement is an error.
        empty: The structures to start from.
    """

    until: BinlogOffset
    epoch: int
    skip_unparseable: bool = False
    captures: CapturePredicate | None = None
    empty: SchemaState = field(default_factory=SchemaState)
    _state: SchemaState = field(init=False)
    _base: HistoryRecord | None = None
    _applied: set[tuple[str | None, str, int, str, str]] = field(default_factory=set)
    _unread: dict[TableId, UnparsedTable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._state = self.empty

    def add(self, record: HistoryRecord) -> bool:
        """Apply the next record.

        Args:
            record: The record.

        Returns:
            Whether the record is part of the structures at the offset.

        Raises:
            DdlParseError: The statement cannot be parsed; the error has its position.
        """
        if record.is_base_for(self.until):
            self._state, self._base, self._applied, self._unread = self.empty, record, set(), {}
        identity = record.identity()
        if identity in self._applied:
            return True
        if not record.applies(self.until, self.epoch, self._base):
            return False
        self._applied.add(identity)
        if (table_id := record.uncaptured_table(self.captures)) is not None:
            self._unread[table_id] = UnparsedTable(record.ddl, record.context)
            return True
        self._state, self._unread = self._state.with_unparsed(self._unread), {}
        try:
            self._state = record.apply_to(self._state, self.captures)
        except DdlParseError as error:
            if not self.skip_unparseable:
                raise DdlParseError(
                    error.what,
                    where=f"schema history, {record.position.file}:{record.position.pos}",
                    why=error.why,
                    remedy=error.remedy or REBUILD_REMEDY,
                ) from error
        return True

    def structures(self) -> SchemaState:
        """Return the structures at the offset, from the records that were added."""
        return self._state.with_unparsed(self._unread)

    def continue_to(self, target: Replay) -> Replay:
        """Return a replay that continues from this one to a later offset; this one does not change.

        Args:
            target: A replay for the later offset, without records yet.
        """
        continued = replace(
            target, empty=self.empty, _base=self._base, _applied=set(self._applied), _unread=dict(self._unread)
        )
        continued._state = self._state
        return continued


def replay(
    records: Iterable[HistoryRecord],
    *,
    until: BinlogOffset,
    epoch: int,
    skip_unparseable: bool = False,
    state: SchemaState | None = None,
    captures: CapturePredicate | None = None,
) -> SchemaState:
    """Rebuild the structures as of an offset; see ``Replay``.

    Args:
        records: The history in the order of its topic.
        until: The offset; statements after it are ignored.
        epoch: The epoch that starts at the offset.
        skip_unparseable: ``schema.history.internal.skip.unparseable.ddl``.
        state: The structures to start from; None for none.
        captures: Selects the relevant tables, None for all; only for them an unparseable statement is an error.

    Raises:
        DdlParseError: A statement cannot be parsed; the error has its position.
    """
    result = Replay(until, epoch, skip_unparseable, captures, SchemaState() if state is None else state)
    for record in records:
        result.add(record)
    return result.structures()
