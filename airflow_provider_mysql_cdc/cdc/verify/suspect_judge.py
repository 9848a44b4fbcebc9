"""Read suspects once more, in a view at whose position the stream is, and keep those that are to be repaired.

An event behind the records that the comparison has read has mended its row already: it says what the row is since then.
Such suspects are dropped, and so are those that the view shows otherwise than the comparison has. The next verification
judges them again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.committed_ends import committed_ends
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import stored_dates_allowed
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import SnapshotRoute, make_snapshot_route
from airflow_provider_mysql_cdc.cdc.snapshot.rows import RowBlock, stream_rows
from airflow_provider_mysql_cdc.cdc.verify.compared_table import ComparedTable, TopicTables
from airflow_provider_mysql_cdc.cdc.verify.entries import EntryKind, FoldEntry
from airflow_provider_mysql_cdc.cdc.verify.event_entries import event_entries, is_raw, named_row, row_entry
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventReader, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.hidden_values import hide_in_row
from airflow_provider_mysql_cdc.cdc.verify.key_state import (
    EqualRowEvent,
    StreamPasses,
    count_rows,
    events_since_last_view,
    view_order,
)
from airflow_provider_mysql_cdc.cdc.verify.record_range import read_records
from airflow_provider_mysql_cdc.cdc.verify.repair_writer import DeleteRepair, Kinds, RowRepair, TableRepair
from airflow_provider_mysql_cdc.cdc.verify.row_records import RowRecords, read_columns
from airflow_provider_mysql_cdc.cdc.verify.row_text import row_values, same_value, stored_row
from airflow_provider_mysql_cdc.cdc.verify.suspect_rows import SuspectRows
from airflow_provider_mysql_cdc.cdc.verify.suspects import Bounds, Suspect, TableSuspects
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind

MAX_GAP_RECORDS = 10_000
"""Offsets between two records that are read rather than skipped: a skip costs a request."""


@dataclass(frozen=True, slots=True)
class JudgedTable:
    """Hold what is to be repaired in a table.

    Args:
        repair: The repairs.
        dropped: Number of suspects that are no longer to be repaired.
        reasons: Why suspects cannot be repaired, one sentence each.
    """

    repair: TableRepair
    dropped: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _ViewRow:
    """Hold a row of the view, and where its record is to be."""

    packet: bytes
    value: bytes
    key: bytes | None
    partition: int


@dataclass(slots=True)
class LaterEvents:
    """Hold what is behind the records that a comparison has read.

    Args:
        keys: Identities of rows with events.
        last: The last event of suspects.
        truncated: Whether there is an event that deletes all rows.
    """

    keys: set[bytes] = field(default_factory=set)
    last: dict[bytes, TopicRecord] = field(default_factory=dict)
    truncated: bool = False

    def is_about(self, key: bytes) -> bool:
        """Return whether an event says what a row is since then."""
        return self.truncated or key in self.keys


@dataclass(slots=True)
class SuspectJudge:
    """Judge the suspects of tables.

    Args:
        cfg: The connector's configuration.
        plan: The batch at whose end the view and the stream are.
        conn: The connection that holds the view.
        formats: The formats of records; None when all of them are JSON.
        reader_of: Returns the reader of a topic.
    """

    cfg: ConnectorConfig
    plan: BatchPlan
    conn: Any
    formats: RecordFormats | None
    reader_of: Callable[[str], EventReader]
    _bounds: dict[str, Bounds] = field(default_factory=dict)
    _hidden: dict[str, str] = field(default_factory=dict)

    def judge(self, compared: ComparedTable, suspects: TableSuspects, tables: TopicTables) -> JudgedTable:
        """Return what is to be repaired in a table.

        Args:
            compared: The table at the position of the view.
            suspects: Its suspects.
            tables: The tables of its topic.

        Raises:
            CdcError: The source or Kafka cannot be read.
        """
        judge = _judge_keyless if compared.keyless else _judge_keyed
        return judge(_TableReader(self, compared, tables), suspects)

    def bounds(self, topic: str) -> Bounds:
        """Return first offset and end of a topic's partitions; the same at each call."""
        known = self._bounds.get(topic)
        if known is None:
            partitions = range(self.plan.partitions.get(topic, 1))
            ends = committed_ends(make_admin(self.cfg.kafka_settings()), {topic: partitions})
            known = self._bounds[topic] = ends.bounds[topic]
            self._hidden[topic] = ends.hidden.get(topic, "")
        return known

    def hidden_reason(self, topic: str) -> str:
        """Return why records of a topic cannot be seen, which say whether its suspects are to be repaired; or none."""
        self.bounds(topic)
        return self._hidden[topic]

    def read(self, topic: str, bounds: Bounds) -> Iterator[TopicRecord]:
        """Yield records of a topic."""
        return read_records(self.cfg, topic, bounds)


class _TableReader:
    """Read rows and events of one table."""

    def __init__(self, judge: SuspectJudge, compared: ComparedTable, tables: TopicTables) -> None:
        cfg, table = judge.cfg, compared.table
        self.compared, self._judge, self._tables = compared, judge, tables
        self._columns, self._options = read_columns(cfg, table), table_options.table_options(cfg, table)
        partitions = judge.plan.partitions.get(compared.topic, 1)
        self.route: SnapshotRoute = make_snapshot_route(cfg, judge.formats, table, partitions, self._columns)
        self._reader = judge.reader_of(compared.topic)
        self.reasons: list[str] = []
        self._rows: list[RowRepair] = []
        self._deletes: list[DeleteRepair] = []
        self._gone = 0

    def rows(self, identities: Iterable[bytes]) -> dict[bytes, list[_ViewRow]]:
        """Return rows of the view, by identity; equal rows of a table without a key are all there."""
        wanted = {identity for identity in identities if not is_raw(identity)}
        statements = SuspectRows(self.compared.table, self._options, self._columns)
        rows: dict[bytes, list[_ViewRow]] = {}
        if not wanted:
            return rows
        fields = ({},) if self.compared.keyless else [row_values(key) for key in wanted]
        for select in statements.selects(fields):
            where = f"verification of {self.compared.table.id}"
            with stored_dates_allowed(self._judge.conn, select.key_kinds):
                for key, row in self._identified(stream_rows(self._judge.conn, select.sql, where)):
                    found = rows.setdefault(key, []) if key in wanted else []
                    # Statements may have rows in common.
                    if self.compared.keyless or all(known.packet != row.packet for known in found):
                        found.append(row)
        return rows

    def _identified(self, packets: Iterator[bytes]) -> Iterator[tuple[bytes, _ViewRow]]:
        """Yield identity and rows; those that no record can be made of are left out."""
        records = RowRecords(
            self._judge.cfg, self.compared.table, self.route.partitions, self._judge.formats, self._judge.plan.end
        )
        for packet in packets:
            for key, value, partition, headers in records.of_block(RowBlock(1, packet, large=True)):
                entry = row_entry(self.compared, self._reader.read(key, value, headers), partition)
                yield entry.key, _ViewRow(packet, entry.value, key, partition)
        if records.errors:
            self.reasons.append(f"{len(records.errors):,} rows cannot be read: {records.errors[0].message()}")

    def events(self, bounds: Bounds) -> Iterator[tuple[FoldEntry, TopicRecord]]:
        """Yield entries and records of the table's events; records that are no events are left out."""
        passes = StreamPasses()
        for record in self._judge.read(self.compared.topic, bounds):
            try:
                event = self._reader.read(record.key, record.value, record.headers)
                if self._tables.number_of(event) != self.compared.number:
                    continue
                place = record.partition, record.offset
                for entry in event_entries(self.compared, event, place, record.headers, passes):
                    yield entry, record
            except UnreadableRecord:
                continue

    def is_of_last_view(self, entry: FoldEntry) -> bool:
        """Return whether an entry is of a row that the last snapshot has read, whose past was read again."""
        repeated = None if self.compared.written is None else self.compared.written.repeated
        return repeated is not None and view_order(entry.value) == repeated.view

    def named_by(self, records: Iterable[TopicRecord]) -> bytes | None:
        """Return the identity of the row that the key of records names, in whatever bytes; None if it names none."""
        named = (named_row(self.compared, self._reader, record) for record in records)
        return next((identity for identity in named if identity is not None), None)

    def key_text(self, key: bytes) -> str:
        """Return a key as text, without values that must not be shown."""
        return json.dumps(hide_in_row(self._judge.cfg, self.compared.table.id, row_values(key)), ensure_ascii=False)

    def new_bounds(self, read: Bounds) -> Bounds:
        """Return the records behind those that the comparison has read."""
        bounds = self._judge.bounds(self.compared.topic)
        return {p: (max(first, read.get(p, (0, first))[1]), end) for p, (first, end) in bounds.items()}

    def all_bounds(self) -> Bounds:
        """Return all records."""
        return self._judge.bounds(self.compared.topic)

    def records(self, places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], TopicRecord]:
        """Return records by partition and offset, as far as they are still there."""
        wanted = set(places)
        found: dict[tuple[int, int], TopicRecord] = {}
        for bounds in _rounds(wanted):
            for record in self._judge.read(self.compared.topic, bounds):
                if (record.partition, record.offset) in wanted:
                    found[record.partition, record.offset] = record
        return found

    def later_events(self, suspects: TableSuspects) -> LaterEvents:
        """Return what is behind the records that the comparison has read."""
        wanted, later = {suspect.key for suspect in suspects.suspects}, LaterEvents()
        for entry, record in self.events(self.new_bounds(suspects.compared)):
            later.truncated = later.truncated or entry.kind is EntryKind.TRUNCATE
            later.keys.add(entry.key)
            if entry.key in wanted and (record.value is not None or self._judge.cfg.is_ticdc):
                later.last[entry.key] = record
        return later

    def add_row(self, kinds: Kinds, row: _ViewRow, forgotten: Sequence[TopicRecord]) -> None:
        """Let a row be written, and its key forgotten where it must not be."""
        others = _others(forgotten, row.partition, row.key)
        if self._judge.cfg.is_ticdc and any(record.partition != row.partition for record in others):
            # There a record without a value is a delete, and readers of several partitions cannot tell it from others.
            self.reasons.append(f"a record in another partition than that of its row stays: {_place(others[0])}")
            return
        self._rows.append(RowRepair(kinds, row.packet, others, _keyless_places(forgotten)))

    def add_delete(self, kinds: Kinds, last: TopicRecord | None, forgotten: Sequence[TopicRecord]) -> None:
        """Let a row be deleted where its last event is, and its key be forgotten elsewhere."""
        keyless = [record for record in forgotten if record.key is None]
        if last is None and keyless:
            # The row of an event without a key is deleted behind it, without one.
            last = keyless[-1]
        others = _others(forgotten, last.partition, last.key) if last is not None else _others(forgotten)
        if last is None and not others:
            self._gone += sum(kinds.values())
            return
        self._deletes.append(DeleteRepair(kinds, last, others, _keyless_places(forgotten)))

    def judged(self, suspects: Sequence[Suspect]) -> JudgedTable:
        """Return the result."""
        if self._gone:
            self.reasons.append(f"{self._gone:,} have records with an earlier key of the table, or none any longer")
        table = self.compared.table
        repair = TableRepair(table, self.route, tuple(self._deletes), tuple(self._rows))
        return JudgedTable(repair, max(0, len(suspects) - repair.size), tuple(self.reasons))


def _others(
    records: Iterable[TopicRecord], partition: int | None = None, key: bytes | None = None
) -> tuple[TopicRecord, ...]:
    """Return one record of each key in each partition, without the key that is written anyway."""
    by_key = {(record.partition, record.key): record for record in records if record.key is not None}
    return tuple(record for place, record in by_key.items() if place != (partition, key))


def _keyless_places(records: Iterable[TopicRecord]) -> tuple[tuple[int, int], ...]:
    return tuple((record.partition, record.offset) for record in records if record.key is None)


def _place(record: TopicRecord) -> str:
    return f"[{record.partition}]@{record.offset}"


def _judge_keyed(reader: _TableReader, suspects: TableSuspects) -> JudgedTable:
    later = reader.later_events(suspects)
    _judge_foreign_keys(reader, [(s, _left_kinds(s, (), later)) for s in suspects.suspects if is_raw(s.key)])
    rows = reader.rows(suspect.key for suspect in suspects.suspects)
    judged = [(s, _left_kinds(s, rows.get(s.key, []), later)) for s in suspects.suspects if not is_raw(s.key)]
    records = reader.records(place for suspect, kinds in judged if kinds for place in _places(suspect))
    for suspect, kinds in judged:
        found = rows.get(suspect.key, [])
        if len(found) > 1:
            reader.reasons.append(f"{len(found)} rows have the same key in records: {reader.key_text(suspect.key)}")
        elif kinds:
            last = later.last.get(suspect.key) or records.get(suspect.record or (-1, -1))
            forgotten = [records[place] for place in suspect.places if place in records]
            if found:
                reader.add_row(kinds, found[0], forgotten)
            else:
                reader.add_delete(kinds, last, forgotten)
    return reader.judged(suspects.suspects)


def _judge_foreign_keys(reader: _TableReader, judged: Sequence[tuple[Suspect, Kinds]]) -> None:
    """Let keys be forgotten that no row has as bytes; a row that such a key names is written again behind that.

    Consumers that read the key take a tombstone for a delete of that row.
    """
    records = reader.records(place for suspect, kinds in judged if kinds for place in _places(suspect))
    forgotten = [[records[place] for place in _places(suspect) if place in records] for suspect, _ in judged]
    named = [reader.named_by(each) for each in forgotten]
    rows = reader.rows(identity for identity in named if identity is not None)
    for (_, kinds), of_key, identity in zip(judged, forgotten, named, strict=True):
        found = [] if identity is None else rows.get(identity, [])
        if kinds and len(found) == 1:
            reader.add_row(kinds, found[0], of_key)
        elif kinds:
            reader.add_delete(kinds, None, of_key)


def _places(suspect: Suspect) -> Iterator[tuple[int, int]]:
    yield from suspect.places
    if suspect.record is not None:
        yield suspect.record


def _left_kinds(suspect: Suspect, rows: Sequence[_ViewRow], later: LaterEvents) -> Kinds:
    """Return what is still to be repaired of a suspect.

    An event behind the comparison says what the row is since then; it does not mend what the records before it are.
    """
    state = suspect.state_kind
    if state is None or later.is_about(suspect.key):
        return suspect.past_kinds
    row = rows[0].value if rows else None
    if state is DifferenceKind.GHOST:
        left = row is None and suspect.record is not None
    else:
        left = row is not None and (state is DifferenceKind.MISSING or not _same_values(row, suspect.event_row))
    return dict(suspect.kinds) if left else suspect.past_kinds


def _judge_keyless(reader: _TableReader, suspects: TableSuspects) -> JudgedTable:
    """Count equal rows and events once more, in the whole topic; no key says which records are about a row."""
    _forget_keys(reader, [suspect for suspect in suspects.suspects if is_raw(suspect.key)])
    wanted = {suspect.key: suspect for suspect in suspects.suspects if suspect.state_kind is not None}
    if not wanted:
        return reader.judged(suspects.suspects)
    events, records = {key: list[EqualRowEvent]() for key in wanted}, dict[tuple[int, int], TopicRecord]()
    has_view = False
    for entry, record in reader.events(reader.all_bounds()):
        has_view = has_view or reader.is_of_last_view(entry)
        if entry.kind is EntryKind.TRUNCATE:
            reader.reasons.append("its topic has TRUNCATE events, and without a key it is not known what they delete")
            return reader.judged(suspects.suspects)
        if entry.key in wanted:
            added = entry.kind is EntryKind.ADDED
            place = record.partition, record.offset
            events[entry.key].append(EqualRowEvent.marked(place, added, entry.value))
            if added:
                records[record.partition, record.offset] = record
    found = reader.rows(suspect.key for suspect in suspects.suspects)
    for key, suspect in wanted.items():
        rows = found.get(key, [])
        surplus = count_rows(events[key], has_view=has_view) - len(rows)
        if suspect.state_kind is DifferenceKind.GHOST and surplus > 0:
            left = events_since_last_view(events[key], has_view=has_view)
            places = [(event.partition, event.offset) for event in left if event.added]
            for place in places[-surplus:]:
                reader.add_delete({DifferenceKind.GHOST: 1}, records[place], ())
        elif suspect.state_kind is DifferenceKind.MISSING and surplus < 0:
            for row in rows[:-surplus]:
                reader.add_row({DifferenceKind.MISSING: 1}, row, ())
    return reader.judged(suspects.suspects)


def _forget_keys(reader: _TableReader, suspects: Sequence[Suspect]) -> None:
    """Let consumers forget the keys of records that are no events, and whose keys name no row."""
    records = reader.records(place for suspect in suspects for place in suspect.places)
    for suspect in suspects:
        forgotten = [records[place] for place in suspect.places if place in records]
        reader.add_delete(suspect.past_kinds, None, forgotten)


def _rounds(places: Iterable[tuple[int, int]]) -> Iterator[Bounds]:
    """Yield bounds that together have all places: in each one range of a partition, without long gaps."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for partition, offset in sorted(places):
        of_partition = ranges.setdefault(partition, [])
        if of_partition and offset - of_partition[-1][1] <= MAX_GAP_RECORDS:
            of_partition[-1] = of_partition[-1][0], offset + 1
        else:
            of_partition.append((offset, offset + 1))
    for number in range(max(map(len, ranges.values()), default=0)):
        yield {partition: each[number] for partition, each in ranges.items() if number < len(each)}


def _same_values(row: bytes, event_row: bytes | None) -> bool:
    """Return whether a row has the values that the last event says, in the same forms."""
    if event_row is None:
        return False
    values, event_values = stored_row(row), stored_row(event_row)
    return values.keys() == event_values.keys() and all(
        same_value(value, event_values[name]) for name, value in values.items()
    )
