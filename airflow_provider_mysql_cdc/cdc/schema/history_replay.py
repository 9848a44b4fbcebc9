"""Replay the records of the schema history to get the structures at an offset, and keep those read for the next
batch.

Cache the schema history that a job has read for its next batch.

A batch needs the structures at its start. A history of 10,000 tables has 30,000 records, and a job that runs for an
hour plans a batch every few seconds: from its second batch on it reads only the new records.

The cache holds the structures up to the first record after the offset, and the later records as they are, because a
later batch may need them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from airflow_provider_mysql_cdc.cdc.ddl.classify import CapturePredicate
from airflow_provider_mysql_cdc.cdc.ddl.state import SERVER_DEFAULTS, SchemaState, UnparsedTable
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, ResumePosition, comparable, compare_offsets
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history_record import REBUILD_REMEDY, HistoryRecord

_SET_SERVER_DEFAULTS = (
    f"SET character_set_server={SERVER_DEFAULTS.charset}, collation_server={SERVER_DEFAULTS.collation}"
)


class Selected(Enum):
    """Say what a record of the history is to the structures at an offset."""

    OTHER = "no part of them"
    FIRST = "the first one of the last full description"
    NEXT = "a part of them"
    REPEATED = "one that both an abandoned attempt and its successor recorded"


@dataclass(slots=True)
class RecordSelection:
    """Select the records that make up the structures at an offset, in the order of the history's topic.

    Args:
        until: The offset.
        epoch: The epoch that starts at the offset.
        base: First record of the last full description at or before the offset; None so far.
    """

    until: BinlogOffset
    epoch: int
    base: HistoryRecord | None = None
    _identities: set[tuple[str | None, str, int, str, str, str]] = field(default_factory=set)

    def select(self, record: HistoryRecord) -> Selected:
        """Return what the next record is.

        Args:
            record: The record.
        """
        is_first = record.is_base_for(self.until)
        if is_first:
            self.base, self._identities = record, set()
        identity = record.identity()
        if identity in self._identities:
            return Selected.REPEATED
        if not record.applies(self.until, self.epoch, self.base):
            return Selected.OTHER
        self._identities.add(identity)
        return Selected.FIRST if is_first else Selected.NEXT

    def continue_to(self, target: RecordSelection) -> RecordSelection:
        """Return a selection that continues from this one to a later offset; this one does not change.

        Args:
            target: A selection for the later offset, without records yet.
        """
        return replace(target, base=self.base, _identities=set(self._identities))


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
    _selection: RecordSelection = field(init=False)
    _unread: dict[TableId, UnparsedTable] = field(default_factory=dict)
    _statements: int = 0

    def __post_init__(self) -> None:
        self._state, self._selection = self.empty, RecordSelection(self.until, self.epoch)

    def add(self, record: HistoryRecord) -> bool:
        """Apply the next record.

        Args:
            record: The record.

        Returns:
            Whether the record is part of the structures at the offset.

        Raises:
            DdlParseError: The statement cannot be parsed; the error has its position.
        """
        selected = self._selection.select(record)
        if selected is Selected.FIRST:
            self._state, self._unread, self._statements = self.empty, {}, 0
        elif selected is not Selected.NEXT:
            return selected is Selected.REPEATED
        self._statements += not record.snapshot
        if (table_id := record.uncaptured_table(self.captures)) is not None:
            self._unread[table_id] = UnparsedTable(record.ddl, record.context)
            return True
        self._take_in_unread()
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

    @property
    def statements(self) -> int:
        """How many statements were applied that are not part of the full description."""
        return self._statements

    def structures(self) -> SchemaState:
        """Return the structures at the offset, from the records that were added.

        As long as no record changes them they are the same object, also of a replay that continues from this one:
        writers live from batch to batch as long as it is (``drain.batch_writers``).
        """
        self._take_in_unread()
        return self._state

    def _take_in_unread(self) -> None:
        self._state, self._unread = self._state.with_unparsed(self._unread), {}

    def continue_to(self, target: Replay) -> Replay:
        """Return a replay that continues from this one to a later offset; this one does not change.

        Args:
            target: A replay for the later offset, without records yet.
        """
        self._take_in_unread()
        continued = replace(target, empty=self.empty, _unread={}, _statements=self._statements)
        continued._state, continued._selection = self._state, self._selection.continue_to(target._selection)
        return continued


def carried_records(
    records: Iterable[HistoryRecord], prefix: str, until: BinlogOffset, to: BinlogOffset, epoch: int
) -> list[HistoryRecord]:
    """Return copies of the records that make up the structures at an offset, as a full description at another place.

    Args:
        records: The history in the order of its topic.
        prefix: ``topic.prefix``.
        until: The offset; statements after it are left out.
        to: The same place in the binlog of another server.
        epoch: The epoch that starts there.
    """
    selection, selected_records = RecordSelection(until, epoch), list[HistoryRecord]()
    for record in records:
        selected = selection.select(record)
        if selected is Selected.FIRST:
            selected_records = []
        if selected in (Selected.FIRST, Selected.NEXT):
            selected_records.append(record)
    if selection.base is None:
        # The history of a stream without snapshot has only statements.
        first = HistoryRecord(prefix, until, epoch, 0, "", _SET_SERVER_DEFAULTS, snapshot=True)
        selected_records.insert(0, first)
    return [record.carried_to(to, epoch) for record in selected_records]


def carried_batch_records(
    records: Iterable[HistoryRecord],
    start: BinlogOffset,
    new_start: BinlogOffset,
    reached: ResumePosition,
    new_reached: ResumePosition,
    epoch: int,
) -> list[HistoryRecord]:
    """Return copies of the records that an unfinished batch has committed, as records behind its start elsewhere.

    Where exactly they stand does not matter: no later offset lies between them, because the writer is behind them.

    Args:
        records: The history in the order of its topic.
        start: The batch's start.
        new_start: The same place in the binlog of another server.
        reached: How far the writer of the records has committed the batch.
        new_reached: The same place in the binlog of the other server.
        epoch: The batch's epoch.
    """
    copies: list[HistoryRecord] = []
    boundary = new_reached.offset
    inside = boundary.with_position(boundary.file, boundary.pos + 1)
    for record in records:
        position = record.position
        if record.epoch != epoch or record.snapshot or record.carried_from or not comparable(position, start):
            continue
        if compare_offsets(position, start) > 0:
            is_inside = compare_offsets(position, reached.offset) > 0 or compare_offsets(boundary, new_start) <= 0
            copies.append(record.carried_to(inside if is_inside else boundary, epoch))
    return copies


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


HistoryReader = Callable[[int], Iterable["HistoryRecord"]]
"""Returns the committed records from a topic offset on."""


@dataclass(frozen=True, slots=True)
class TopicEnd:
    """Hold where a topic ends.

    Args:
        id: Kafka's id of the topic; None from brokers without topic ids, and for a topic that does not exist.
        offset: The high watermark of its partition.
    """

    id: str | None
    offset: int


@dataclass(slots=True)
class HistoryCache:
    """Rebuild structures for the batches of one job in sequence."""

    end: TopicEnd = TopicEnd(None, 0)
    """Where the topic ended when it was last read; without an id before the first read."""
    _replayed: Replay | None = None
    _later_records: list[HistoryRecord] = field(default_factory=list)
    statements: int = 0
    """Statements after the full description that the last call has applied."""

    def structures(self, end: TopicEnd, read: HistoryReader, target: Replay) -> SchemaState:
        """Return the structures at an offset.

        Args:
            end: Where the history ends now.
            read: Reads the history from a topic offset on.
            target: A replay for the offset, without records yet.

        Raises:
            DdlParseError: A statement cannot be parsed.
            SchemaError: The history cannot be read.
        """
        cached, later_records = self._replayed, self._later_records
        # If this fails, the next batch reads the whole history again.
        self._replayed, self._later_records = None, []
        if cached is None or not self._can_continue(cached, end, target):
            replayed, first, later_records = target, 0, []
        else:
            replayed, first = cached.continue_to(target), self.end.offset
        pending: list[HistoryRecord] = []
        for records in (later_records, read(first) if first < end.offset else ()):
            for record in records:
                if pending or not replayed.add(record):
                    pending.append(record)
        result = replayed
        if pending:
            result = replayed.continue_to(replayed)
            for record in pending:
                result.add(record)
        if end.id is not None:  # without an id, a recreated topic could not be distinguished from the earlier one
            self.end, self._replayed, self._later_records = end, replayed, pending
        self.statements = result.statements
        return result.structures()

    def _can_continue(self, cached: Replay, end: TopicEnd, target: Replay) -> bool:
        """Return whether the cache is of the same topic, and can be continued to the target offset."""
        if self.end.id != end.id or end.offset < self.end.offset or target.epoch < cached.epoch:
            return False
        return comparable(cached.until, target.until) and compare_offsets(target.until, cached.until) >= 0
