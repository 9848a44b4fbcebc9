"""The structures that a table has had, from the schema history: an event has the one of its place in the binlog.

Records without schemas do not say how their values were declared, and a column that was dropped and added again has the
name of another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import DdlParseError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset, comparable, moves_back
from airflow_provider_mysql_cdc.cdc.model.stored_record import Record
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId, matching_name
from airflow_provider_mysql_cdc.cdc.schema.history import read_history
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord
from airflow_provider_mysql_cdc.cdc.schema.history_replay import Replay
from airflow_provider_mysql_cdc.cdc.snapshot.table_lineage import column_renames
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import Row, place_order

NOWHERE = (1 << 64) - 1
"""A place behind all others."""
_MAY_RENAME = re.compile(r"\b(?:RENAME|CHANGE)\b", re.IGNORECASE)
_DROPS_AND_ADDS = re.compile(r"\bDROP\b.*\bADD\b|\bADD\b.*\bDROP\b", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class StructureVersion:
    """Hold a structure, and where it begins.

    Args:
        position: The boundary right after the statement that made it; events from there on have it.
        table: The structure.
        generation: Number of the times that columns were added or dropped before; a column may have the name of one
            that was dropped.
        renamed: New and former names of the columns that the statement renamed.
    """

    position: BinlogOffset
    table: Table
    generation: int = 0
    renamed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class KnownViews:
    """Tell rows of the views in which the stream has read a table from those that other hands have written.

    The ledger knows the last snapshot, and the ad-hoc ones.

    Args:
        file: The binlog file of the last snapshot's view, as its rows say it.
        pos: Its position.
        ts_ms: Its time.
        since_ms: From when on the ledger knows all views.
        ad_hoc: First and last time of the views of each ad-hoc snapshot of the table.
    """

    file: str
    pos: int
    ts_ms: int
    since_ms: int
    ad_hoc: tuple[tuple[int, int], ...] = ()

    @property
    def place(self) -> tuple[str, int, int]:
        """File, position and time of the last snapshot's view."""
        return self.file, self.pos, self.ts_ms

    def has(self, source: Row) -> bool:
        """Return whether a row says that it is of one of them, given the source block of its event."""
        is_last = (source.get("file"), source.get("pos"), source.get("ts_ms")) == self.place
        return is_last or self.is_ad_hoc(source)

    def is_ad_hoc(self, source: Row) -> bool:
        """Return whether a row says that it is of an ad-hoc snapshot."""
        ts_ms = source.get("ts_ms") or 0
        return any(begin <= ts_ms <= end for begin, end in self.ad_hoc)

    def is_later(self, source: Row, order_of: Callable[[Row], int]) -> bool:
        """Return whether a row says a view that the ledger would know.

        Args:
            source: The source block of its event.
            order_of: Returns a number that orders such blocks.
        """
        ts_ms = source.get("ts_ms")
        if not ts_ms:  # before Debezium 0.10 rows of a snapshot had no time
            return False
        last = order_of({"file": self.file, "pos": self.pos, "ts_ms": self.ts_ms})
        return bool(order_of(source) >= last and ts_ms >= self.since_ms)


@dataclass(frozen=True, slots=True)
class TableVersions(Record):
    """Hold the structures that a table has had.

    Args:
        versions: The structures, in the order of the binlog; the first one also stands for what was before.
        one_binlog: Whether all positions are of one binlog; those of several servers cannot be compared.
        view_ts: The timestamp of the rows of the last snapshot in TiCDC's protocol; None if it is not known.
        moved_back: Whether the stream was moved back to before a snapshot, and has read changes again that its view
            contains. The schema history tells it: it was described there again.
        views: The views that the ledger knows; None if it has none.
        unplaced: In place of ``versions`` the structures, where events do not say their place, as in TiCDC's
            protocol.
        began_ms: When the history was begun, which may have been recorded anew; None if it is empty.
        described_once: Whether one snapshot alone has its view where the first structure begins.
        key_ids: Ids of the schemas that keys in Avro begin with; empty where they do not.
        read_again: Whether events may have come again, because a person has moved the offset, or Debezium wrote first.
    """

    versions: tuple[StructureVersion, ...]
    one_binlog: bool = True
    view_ts: int | None = None
    moved_back: bool = False
    views: KnownViews | None = None
    unplaced: tuple[StructureVersion, ...] = ()
    began_ms: int | None = None
    described_once: bool = True
    key_ids: frozenset[int] = frozenset()
    read_again: bool = True

    def without_places(self, view_ts: int | None) -> TableVersions:
        """Return the structures alone."""
        return TableVersions(
            (),
            view_ts=view_ts,
            unplaced=self.versions,
            began_ms=self.began_ms,
            key_ids=self.key_ids,
            read_again=self.read_again,
        )


def read_versions(
    cfg: ConnectorConfig, tables: Collection[TableId], until: BinlogOffset, epoch: int, view: BinlogOffset | None
) -> dict[TableId, TableVersions]:
    """Return the structures of each table up to an offset, given the view of the last snapshot.

    Raises:
        SchemaError: The history cannot be read.
        SinkError: Kafka cannot be read.
    """
    replayed = Replay(until, epoch, cfg[F.SKIP_UNPARSEABLE_DDL], cfg.needs_schema)
    return find_versions(read_history(cfg), tables, replayed, view)


def find_versions(
    records: Iterable[HistoryRecord], tables: Collection[TableId], replayed: Replay, view: BinlogOffset | None = None
) -> dict[TableId, TableVersions]:
    """Return the structures of each table that a history has.

    Args:
        records: The history in the order of its topic.
        tables: The tables.
        replayed: A replay for the offset to read up to, without records yet.
        view: Where the view of the last snapshot is.
    """
    found = _FoundVersions(tables)
    described: BinlogOffset | None = None
    for record in records:
        found.note_record(record)
        if described is not None and not record.snapshot:
            found.note(described, replayed.structures().tables)
            described = None
        if not replayed.add(record):
            continue
        if record.snapshot:  # one description of all tables in many records
            found.note_epoch(record)
            if record.position != described:
                found.note_description(record.position)
            described = record.position
        else:
            found.note(record.position, replayed.structures().tables, record)
    if described is not None:
        found.note(described, replayed.structures().tables)
    return found.by_table(replayed.until, view)


class _FoundVersions:
    """Collect the structures of tables."""

    def __init__(self, tables: Collection[TableId]) -> None:
        self._tables = tables
        self._first: BinlogOffset | None = None
        self._epochs: set[int] = set()
        self._versions: dict[TableId, list[StructureVersion]] = {}
        self._last: dict[TableId, Table | None] = {}
        self._changes: list[BinlogOffset] = []
        self._servers: set[str] = set()
        self._described: BinlogOffset | None = None
        self._moved_back = NOWHERE
        self._began_ms: int | None = None

    def note_description(self, position: BinlogOffset) -> None:
        """Add a description of all structures."""
        last, self._described = self._described, position
        if last is not None and comparable(last, position) and moves_back(last, position):
            self._moved_back = min(place_order(position), self._moved_back)

    def note_epoch(self, record: HistoryRecord) -> None:
        """Add the snapshot of a description, if it is at the place of the first one."""
        self._first = self._first or record.position
        if record.position == self._first:
            self._epochs.add(record.epoch)

    def note_record(self, record: HistoryRecord) -> None:
        """Add a record's server, which the stream may have left: its events are still in the topics; and its time."""
        self._servers.add((record.position.server_uuid or "").lower())
        self._began_ms = record.ts_ms if self._began_ms is None else self._began_ms

    def note(
        self, position: BinlogOffset, structures: Mapping[TableId, Table], statement: HistoryRecord | None = None
    ) -> None:
        """Add the structures that have changed.

        Args:
            position: The boundary behind the change.
            structures: All structures from there on.
            statement: The record of the statement that changed them; None for a description of all.
        """
        # Columns may have been dropped and others of the same names added.
        columns_again = statement is not None and _DROPS_AND_ADDS.search(statement.ddl) is not None
        for name in self._tables:
            last, now = self._last.get(name), structures.get(name)
            if now is last:
                continue
            versions = self._versions.setdefault(name, [])
            if now is not None and (not versions or columns_again or _differ(now, versions[-1].table)):
                generation = _generation(versions, now, columns_again)
                renamed = (
                    () if statement is None or not versions else renamed_columns(statement, name, versions[-1].table)
                )
                versions.append(StructureVersion(position, now, generation, renamed))
                self._changes.append(position)
            self._last[name] = now

    def by_table(self, until: BinlogOffset, view: BinlogOffset | None) -> dict[TableId, TableVersions]:
        """Return the structures of each table, up to an offset."""
        servers = (self._servers | {(until.server_uuid or "").lower()}) - {""}
        places = (*self._changes, until)
        in_order = all(comparable(a, b) and not moves_back(a, b) for a, b in pairwise(places))
        one_binlog = len(servers) <= 1 and in_order
        versions = {name: tuple(self._versions.get(name, ())) for name in self._tables}
        place = 0 if view is None or not one_binlog else place_order(view)
        read_again = place if self._moved_back < place else -1
        once = len(self._epochs) <= 1
        return {
            name: TableVersions(
                each,
                one_binlog,
                moved_back=bool(each) and place_order(each[0].position) <= read_again,
                began_ms=self._began_ms,
                described_once=once,
            )
            for name, each in versions.items()
        }


def renamed_columns(statement: HistoryRecord, table: TableId, before: Table) -> tuple[tuple[str, str], ...]:
    """Return new and former names of the columns that a statement renames."""
    if not _MAY_RENAME.search(statement.ddl):
        return ()
    try:
        renames = column_renames(statement.ddl, statement.context, table)
    except DdlParseError:
        return ()
    names = [column.name for column in before.columns]
    return tuple((new, former) for new, old in renames if (former := matching_name(names, old)) is not None)


def _differ(one: Table, other: Table) -> bool:
    return one.columns != other.columns or one.key_columns() != other.key_columns()


def _generation(versions: Sequence[StructureVersion], now: Table, columns_again: bool) -> int:
    if not versions:
        return 0
    last = versions[-1]
    other = columns_again or {c.name for c in last.table.columns} != {c.name for c in now.columns}
    return last.generation + other
