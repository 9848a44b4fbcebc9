"""The list of keys that a repair writes again, made of the suspects of a comparison.

What a suspect was found to be does not matter any more: the window finds the row of each listed key, or finds none, and
writes that. The comparison's records are read again for their keys, which are the keys of deletes and tombstones.
Equal rows of a table without a key are counted once more, as another run may have written some.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.charset_decoders import shared_characters, within_charset
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, quote_name
from airflow_provider_mysql_cdc.cdc.sink.clients import make_admin
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.topic_settings import committed_ends
from airflow_provider_mysql_cdc.cdc.snapshot.key_kinds import text_literal
from airflow_provider_mysql_cdc.cdc.verify.compare.event_entries import event_entries, is_raw, named_row
from airflow_provider_mysql_cdc.cdc.verify.compare.judged_kinds import chooses_partition_by_key
from airflow_provider_mysql_cdc.cdc.verify.compare.key_state import (
    EqualRowEvent,
    StreamPasses,
    count_rows,
    events_since_last_view,
)
from airflow_provider_mysql_cdc.cdc.verify.compare.suspects import Bounds, Suspect
from airflow_provider_mysql_cdc.cdc.verify.read.entries import EntryKind
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    DIGEST_MARK,
    EventReader,
    UnreadableRecord,
    row_values,
    same_value,
    stored_row,
)
from airflow_provider_mysql_cdc.cdc.verify.read.row_records import read_records
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import STATE_DIFFERENCES, DifferenceKind
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import ComparedTable, TopicTables

Kinds = Mapping[DifferenceKind, int]
"""Number of differences, by kind."""
MAX_GAP_RECORDS = 10_000
"""Offsets between two records that are read rather than skipped: a skip costs a request."""


@dataclass(frozen=True, slots=True)
class EqualRows:
    """Hold what the events of equal rows lead to.

    Args:
        count: Number of rows.
        records: The events that have added a row, since the last view of all rows.
    """

    count: int
    records: Sequence[TopicRecord]


@dataclass(frozen=True, slots=True)
class ListedKey:
    """Hold a key whose row, or whose delete, is written.

    Args:
        kinds: The differences that are repaired by it.
        row: Canonical bytes of the row's identity; None for a key of records that names no row.
        event_row: Canonical bytes of the values that the comparison has seen as the last ones; None for no row.
        last: The topic's last event of the row, which a delete is made of; None where there is none.
        records: Records whose keys consumers have to forget in their partitions.
        equal: The events of equal rows, in a table without a key; None for others.
        foreign: Whether the records have the key in bytes that no row has: they are not of the row that it names.
    """

    kinds: Kinds
    row: bytes | None
    event_row: bytes | None = None
    last: TopicRecord | None = None
    records: Sequence[TopicRecord] = ()
    equal: EqualRows | None = None
    foreign: bool = False

    @property
    def settled(self) -> list[tuple[int, int]]:
        """Return partitions and offsets of the records without a key, behind which none can be written."""
        return [(record.partition, record.offset) for record in self.records if record.key is None]

    def kinds_left(self, row: bytes | None) -> Kinds:
        """Return the differences that there are if a view shows a row; of its state, none if the topic says just that.

        Args:
            row: Canonical bytes of the row; None where the view has none.
        """
        if self.foreign or not _same_values(row, self.event_row):
            return self.kinds
        return {kind: number for kind, number in self.kinds.items() if kind not in STATE_DIFFERENCES}

    def others(self, partition: int | None = None, key: bytes | None = None) -> list[TopicRecord]:
        """Return a record of each key and partition to forget, but for the key that is written anyway."""
        by_key = {(record.partition, record.key): record for record in self.records if record.key is not None}
        return [record for place, record in by_key.items() if place != (partition, key)]


@dataclass(slots=True)
class KeyLister:
    """List the keys of one table.

    Args:
        compared: The table.
        tables: The tables of its topic.
        reader: Reads the topic's records.
        partitions: Partitions of the topic.
        reasons: What cannot be repaired, and why, one sentence each.
    """

    cfg: ConnectorConfig
    compared: ComparedTable
    tables: TopicTables
    reader: EventReader
    partitions: int
    reasons: list[str] = field(default_factory=list)

    def list_keys(self, suspects: Sequence[Suspect]) -> list[ListedKey]:
        """Return the keys of suspects.

        Raises:
            CdcError: Kafka cannot be read.
        """
        keyless = self.compared.keyless
        records = self._records(place for suspect in suspects for place in _places(suspect))
        keys = []
        for suspect in suspects:
            of_key = [records[place] for place in suspect.places if place in records]
            last = None if suspect.record is None else records.get(suspect.record)
            if is_raw(suspect.key):
                of_key += [last] if last is not None else []
                row = None if keyless else self._named_by(of_key)
                keys.append(ListedKey(suspect.kinds, row, records=of_key, foreign=True))
            elif not keyless:
                keys.append(ListedKey(suspect.kinds, suspect.key, suspect.event_row, last, of_key))
        if equal := [suspect for suspect in suspects if keyless and not is_raw(suspect.key)]:
            keys += self._equal_rows(equal)
        return keys

    def _named_by(self, records: Iterable[TopicRecord]) -> bytes | None:
        """Return the identity of the row that the key of records names, in whatever bytes; None if it names none.

        Consumers that read the key take its tombstone for a delete of that row, so it is written again behind that.
        """
        named = (named_row(self.compared, self.reader, record) for record in records)
        return next((identity for identity in named if identity is not None), None)

    def _records(self, places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], TopicRecord]:
        """Return records by partition and offset, as far as they are still there."""
        wanted = set(places)
        found: dict[tuple[int, int], TopicRecord] = {}
        for bounds in _rounds(wanted):
            for record in read_records(self.cfg, self.compared.topic, bounds):
                if (record.partition, record.offset) in wanted:
                    found[record.partition, record.offset] = record
        return found

    def _equal_rows(self, suspects: Sequence[Suspect]) -> Iterator[ListedKey]:
        """Yield the keys of equal rows; no key says which records are about one, so the whole topic is read."""
        topic = self.compared.topic
        ends = committed_ends(make_admin(self.cfg.kafka_settings()), {topic: range(self.partitions)})
        if reason := ends.hidden.get(topic):
            self.reasons.append(reason)
            return
        events: dict[bytes, list[EqualRowEvent]] = {suspect.key: [] for suspect in suspects}
        records, passes = dict[tuple[int, int], TopicRecord](), StreamPasses()
        for record in read_records(self.cfg, topic, ends.bounds[topic]):
            place = record.partition, record.offset
            try:
                event = self.reader.read(record.key, record.value, record.headers)
                if self.tables.number_of(event) != self.compared.number:
                    continue
                entries = list(event_entries(self.compared, event, place, record.headers, passes))
            except UnreadableRecord:
                continue
            for entry in entries:
                if entry.kind is EntryKind.UNDECIDABLE:
                    self.reasons.append(entry.value.decode())
                    return
                if (of_row := events.get(entry.key)) is not None:
                    of_row.append(EqualRowEvent.of_entry(entry))
                    records[place] = record
        moving = not chooses_partition_by_key(self.cfg, self.compared)
        for key, of_row in events.items():
            added = [e for e in events_since_last_view(of_row, moving=moving) if e.added]
            count = count_rows(of_row, moving=moving)
            yield ListedKey({}, key, equal=EqualRows(count, [records[e.partition, e.offset] for e in added]))


def _same_values(row: bytes | None, event_row: bytes | None) -> bool:
    """Return whether a row has the values that the last event says, in the same forms."""
    if row is None or event_row is None:
        return row is event_row
    values, event_values = stored_row(row), stored_row(event_row)
    return values.keys() == event_values.keys() and all(same_value(v, event_values[name]) for name, v in values.items())


def _places(suspect: Suspect) -> Iterator[tuple[int, int]]:
    yield from suspect.places
    if suspect.record is not None:
        yield suspect.record


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


# -- the rows of listed keys -------------------------------------------------------------------------------------------


def rows_condition(table: Table, options: DecoderOptions, identity: bytes) -> str:
    """Return an SQL condition of the row of a key, and perhaps of others; TRUE where no column bounds it.

    Whole numbers, texts and bytes bound it. Rows of keys of other types are found by reading what is left, which may be
    the whole table.

    Args:
        table: The table.
        options: From ``table_options.table_options``.
        identity: Canonical bytes of the row's identity.
    """
    fields, in_key = row_values(identity), {column.name for column in key_columns(table, options)}
    parts = []
    for column in table.columns:
        literal_of = _LITERALS.get(column.family)
        changed = column.name not in in_key and options.treatment(column).change is not None
        if literal_of is None or column.nullable or changed or options.custom(column) is not None:
            continue
        literal = literal_of(column, options, fields.get(field_name(column.name, options.field_names)))
        if literal is not None:
            parts.append(f"{quote_name(column.name)} = {literal}")
    return " AND ".join(parts) or "TRUE"


def _integer(column: Column, options: DecoderOptions, value: object) -> str | None:
    if type(value) is not int:  # booleans, and the texts of bigint.unsigned.handling.mode
        return None
    return str(value + (1 << 64) if column.unsigned and value < 0 else value)


def _text(column: Column, options: DecoderOptions, value: object) -> str | None:
    charset = column.charset or "utf8mb4"
    if charset == "binary":
        return _bytes(column, options, value)
    # Of other texts the server would look for another one, or for one of the characters that are shown as this one.
    if not isinstance(value, str) or value.startswith(DIGEST_MARK) or (charset == "ucs2" and "?" in value):
        return None
    try:
        known = within_charset(value, charset) == value and shared_characters(charset).isdisjoint(value)
        return text_literal(value) if known else None
    except UnicodeEncodeError:  # half of a character
        return None


def _bytes(column: Column, options: DecoderOptions, value: object) -> str | None:
    if not isinstance(value, str) or value.startswith(DIGEST_MARK):
        return None
    try:
        return f"x'{_BINARY_DECODERS[options.binary_mode](value).hex()}'"
    except ValueError:
        return None


_LITERALS: dict[Family, Callable[[Column, DecoderOptions, object], str | None]] = {
    Family.INTEGER: _integer,
    Family.TEXT: _text,
    Family.BYTES: _bytes,
}
_BINARY_DECODERS: dict[str, Callable[[str], bytes]] = {
    "bytes": lambda text: b64decode(text, validate=True),
    "base64": lambda text: b64decode(text, validate=True),
    "base64-url-safe": urlsafe_b64decode,
    "hex": binascii.unhexlify,
}
