"""The tables of a verification, by number; which of them a record is of, and which of its rows: canonical bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Set
from dataclasses import dataclass
from enum import Enum

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, value_columns
from airflow_provider_mysql_cdc.cdc.emit import topic_names
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.model.column_rule import ValueChangeKind
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId, folded_name
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    EventRecord,
    Row,
    UnreadableRecord,
    row_bytes,
    source_order,
    time_of,
    time_order,
)
from airflow_provider_mysql_cdc.cdc.verify.structures.row_comparison import (
    ComparedColumns,
    FormCarrier,
    column_field,
    compared_columns,
    is_placeholder,
    record_forms,
)
from airflow_provider_mysql_cdc.cdc.verify.structures.structure_versions import TableVersions
from airflow_provider_mysql_cdc.cdc.verify.structures.value_writing import FormChanges
from airflow_provider_mysql_cdc.cdc.verify.structures.written_structures import WrittenStructures

_NO_ROW = ("", "t")
_LOSSY_CHANGES = (ValueChangeKind.CONSTANT, ValueChangeKind.TRUNCATE_TEXT, ValueChangeKind.TRUNCATE_BYTES)


class IdentitySource(Enum):
    """Say where the identity of a row is in its records."""

    RECORD_KEY = "the record's key"
    OWN_KEY = "the table's own key, in before and after; message.key.columns has chosen another one for records"
    VALUES = "all values; rows may be equal"


@dataclass(frozen=True, slots=True)
class RowIdentity:
    """Tell the rows of one table apart (``compared_table``).

    Args:
        source: Where the identity is.
        fields: Fields of the table's own key.
        key_fields: Fields of the columns in the keys of its records.
        shown: Those of them that rows show as keys do, without masks, for example.
        placeholders: Texts that stand for an unknown value.
        key_changes: Writes keys of earlier structures in the forms of now.
        row_changes: The same for rows.
    """

    source: IdentitySource
    fields: tuple[str, ...]
    key_fields: frozenset[str]
    shown: frozenset[str]
    placeholders: frozenset[str]
    key_changes: FormChanges
    row_changes: FormChanges

    def before_and_after(self, record: EventRecord) -> tuple[bytes | None, bytes | None]:
        """Return the identities of the row before and after an event; None where there is no row.

        They differ where an UPDATE changes the table's own key, and its record's key stays. A tombstone deletes the row
        of its key.

        Raises:
            UnreadableRecord: The event does not say which row it is about.
        """
        if record.key is None and record.op in _NO_ROW:
            return None, None
        if self.source is IdentitySource.RECORD_KEY:
            if self.has_other_key(record) and (found := self._identities_of_images(record)) is not None:
                return found
            if record.key is None:
                return None, None
            key = self.record_key(record)
            return (None, key) if record.after is not None else (key, None)
        before, after = record.before, record.after
        if self.source is IdentitySource.OWN_KEY:
            after = None if after is None else self._key_values(self.fields, after, before or {})
            before = None if before is None else self._key_values(self.fields, before, {})
        found = self._row_bytes(before, record), self._row_bytes(after, record)
        if found == (None, None) and record.op:
            raise UnreadableRecord(f"the event of op {record.op} does not say which row it is about")
        return found

    def has_other_key(self, record: EventRecord) -> bool:
        """Return whether an event has another key than its table's, as before the primary key was changed.

        Args:
            record: The event; fields that transforms add to keys are in no row.
        """
        if record.key is None or not self.key_fields <= record.key.keys():
            return True
        row = record.after or record.before or {}
        return any(name in row for name in record.key.keys() - self.key_fields)

    def has_own_key(self, record: EventRecord) -> bool:
        """Return whether the record key of an event that ``message.key.columns`` chooses has the values of its row."""
        key, row = record.key or {}, record.after or record.before or {}
        pairs = ((key[name], row[name]) for name in self.shown & key.keys() & row.keys())
        return all(
            one == other or not {type(one), type(other)} <= {int, str} or is_placeholder(other, self.placeholders)
            for one, other in pairs
        )

    def is_named_by(self, record: EventRecord) -> bool:
        """Return whether an event with another key says the present one in its rows."""
        return self._identities_of_images(record) is not None

    def _identities_of_images(self, record: EventRecord) -> tuple[bytes | None, bytes | None] | None:
        """Return the identities of the rows before and after an event by the present key; None if it has no such."""
        found: list[bytes | None] = []
        before, after = record.before, record.after
        for row, other in ((before, {}), (after, before or {})):
            try:
                key = None if row is None else self._key_values(self.key_fields, row, other)
            except UnreadableRecord:
                return None
            forms = None if record.forms is None else {n: f for n, f in record.forms.items() if n in self.key_fields}
            added = {n: v for n, v in (record.key or {}).items() if row is not None and n not in row}
            found.append(None if key is None else row_bytes(self.key_changes.in_forms({**added, **key}, forms)))
        return None if found == [None, None] else (found[0], found[1])

    def record_key(self, record: EventRecord) -> bytes:
        """Return the identity of the row that a record's key names.

        Raises:
            UnreadableRecord: It has no key.
        """
        if record.key is None:
            raise UnreadableRecord("the record has no key")
        return row_bytes(self.key_changes.in_forms(record.key, record.key_forms))

    def _row_bytes(self, row: Row | None, record: EventRecord) -> bytes | None:
        return None if row is None else row_bytes(self.row_changes.in_forms(row, record.forms))

    def _key_values(self, fields: Iterable[str], row: Row, other: Row) -> Row:
        """Return the fields of a key; those that an image does not say are the same in the other one."""
        key = {}
        for name in fields:
            value = row.get(name)
            if value is None or is_placeholder(value, self.placeholders):
                value = other.get(name)
            if value is None or is_placeholder(value, self.placeholders):
                raise UnreadableRecord(f"the event does not say the value of key column {name}")
            key[name] = value
        return key


def row_identity(cfg: ConnectorConfig, table: Table) -> RowIdentity:
    """Return what tells the rows of a table apart.

    Raises:
        SchemaError: A column cannot be represented.
    """
    options = table_options.table_options(cfg, table)
    key_forms, row_forms = record_forms(cfg, table, options)
    own = {folded_name(name) for name in table.key_columns()}
    of_key, of_row = key_columns(table, options), value_columns(table, options)
    as_they_are = (c for c in of_row if options.treatment(c).change is None and options.custom(c) is None)
    return RowIdentity(
        identity_source(table, options),
        tuple(column_field(cfg, column) for column in table.columns if folded_name(column.name) in own),
        frozenset(column_field(cfg, column) for column in of_key),
        frozenset(column_field(cfg, column) for column in as_they_are if column in of_key),
        compared_columns(cfg, table).placeholders,
        FormChanges(key_forms),
        FormChanges(row_forms),
    )


def identity_source(table: Table, options: DecoderOptions) -> IdentitySource:
    """Return where the identity of a table's rows is in its records."""
    own = {folded_name(name) for name in table.key_columns()}
    if not own:
        return IdentitySource.VALUES
    if own <= {folded_name(column.name) for column in key_columns(table, options)}:
        return IdentitySource.RECORD_KEY
    changes = {folded_name(c.name): options.treatment(c).change for c in value_columns(table, options)}
    shown = {name for name, change in changes.items() if change is None or change.kind not in _LOSSY_CHANGES}
    return IdentitySource.OWN_KEY if own <= shown else IdentitySource.VALUES


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """Describe a table that is compared with its topic.

    Args:
        number: Its number in the verification.
        table: Its structure at the position of the verification.
        own_key: Whether the key of its records names one row; otherwise message.key.columns chooses it.
        keyless: Whether no part of its records names one row.
        key_columns: Columns of the table's own key.
        identity: Tells its rows apart.
        columns: Says how its rows are compared.
        carrier: Adds the forms of values to its rows.
        alone: Whether no other table's records can be in its topic.
        name_in_key: Names and values of the fields that a router adds to its keys, which name it.
        written: Completes events by the structure that they were written under; None where that is not wanted.
    """

    number: int
    table: Table
    topic: str
    own_key: bool
    keyless: bool
    key_columns: tuple[str, ...]
    identity: RowIdentity
    columns: ComparedColumns
    carrier: FormCarrier
    alone: bool
    name_in_key: tuple[tuple[str, str], ...] = ()
    written: WrittenStructures | None = None

    def is_named_by(self, key: Row | None) -> bool:
        """Return whether a key of a topic that tables may share says that its record is of this one."""
        return bool(self.name_in_key) and (key or {}).items() >= dict(self.name_in_key).items()

    def completed(self, event: EventRecord) -> EventRecord:
        """Return an event with what its record does not say, as far as it is known and wanted."""
        return event if self.written is None else self.written.complete(event)

    def with_added_columns(self, event: EventRecord) -> EventRecord:
        """Return an event that was completed with the columns that the table got later, as far as they are known."""
        return event if self.written is None else self.written.with_added_columns(event)

    def writes_key(self, record: EventRecord) -> bool:
        """Return whether a record's key is in the bytes that the stream writes, as far as it is known."""
        return self.written is None or self.written.wrote_key(record)

    def names_no_row(self, event: EventRecord) -> bool:
        """Return whether an event has a former key of the table, and does not say the present one."""
        written = self.written if self.own_key else None
        if written is None or not written.has_former_key(event):
            return False
        return not self.identity.is_named_by(event) or written.names_other_row(event, self.identity.key_fields)

    def order_of(self, source: Row) -> int:
        """Return a number by which events in several partitions are ordered; 0 where there is none."""
        return source_order(source) if self.has_one_binlog else time_order(source)

    def step_order(self, source: Row) -> int:
        """Return a number that does not fall from one event of a key to the next; 0 where there is none.

        Positions fall where another server goes on, within a second perhaps, which ``order_of`` cannot tell.
        """
        return source_order(source) if self.has_one_binlog else time_of(source)

    @property
    def has_one_binlog(self) -> bool:
        """Whether all positions are of one binlog, as far as is known."""
        return self.written is None or self.written.one_binlog


def compared_table(
    cfg: ConnectorConfig,
    number: int,
    table: Table,
    versions: TableVersions | None = None,
    shared: Container[str] = (),
) -> ComparedTable:
    """Return the description of a table.

    Args:
        cfg: The connector's configuration.
        number: Its number in the verification.
        table: Its structure.
        versions: The structures that it has had; None where events are not told apart by them.
        shared: Topics to which transforms lead several tables (``shared_topics``).
    """
    columns = compared_columns(cfg, table)
    identity = row_identity(cfg, table)
    topic = record_topics.table_topic_name(cfg, table.id)
    return ComparedTable(
        number,
        table,
        topic,
        identity.source is IdentitySource.RECORD_KEY,
        identity.source is IdentitySource.VALUES,
        tuple(table.key_columns()),
        identity,
        columns,
        FormCarrier(columns),
        topic == topic_names.topic_name(cfg[F.TOPIC_PREFIX], table.id) and topic not in shared,
        table_options.table_options(cfg, table).key_fields,
        None if versions is None else WrittenStructures(cfg, table, versions),
    )


@dataclass(frozen=True, slots=True)
class TopicTables:
    """Find the table of a topic's record.

    Args:
        tables: Numbers of the topic's tables, by their names.
        compared: The tables.
    """

    tables: Mapping[TableId, int]
    topic: str
    compared: tuple[ComparedTable, ...] = ()

    def number_of(self, record: EventRecord) -> int | None:
        """Return the number of a record's table; None for one that is not compared."""
        source: Row = record.source
        if "db" in source and "table" in source:
            return self.tables.get(TableId(str(source["db"]), str(source["table"])))
        if len(self.tables) == 1:
            return next(iter(self.tables.values()))
        named = named_table(self.compared, record.key)
        return None if named is None else named.number

    def require_key(self, record: EventRecord, number: int | None) -> None:
        """Check that a record does not have the key of a row that it is not about: consumers by key lose that row.

        Args:
            record: An event, or a message that is none.
            number: The number of the event's table.

        Raises:
            UnreadableRecord: It has.
        """
        key = record.key or {}
        if not record.op and any(t.identity.key_fields and t.identity.key_fields <= key.keys() for t in self.compared):
            raise UnreadableRecord("it is no change event, and has the key of a row")
        named = named_table(self.compared, key)
        if record.op and named is not None and named.number != number:
            raise UnreadableRecord(f"its key says that it is of table {named.table.id}")

    def require_own(self, record: EventRecord, topic_of: Callable[[TableId], str]) -> None:
        """Check that an event of a table that is not compared may be in the topic.

        Raises:
            UnreadableRecord: Events of its table are in another topic.
        """
        db, table = record.source.get("db"), record.source.get("table")
        if record.op and topic_of(TableId(str(db), str(table))) != self.topic:
            raise UnreadableRecord(f"it is an event of table {db}.{table}, which has another topic")


def shared_topics(cfg: ConnectorConfig, tables: Iterable[TableId]) -> Set[str]:
    """Return the topics to which transforms lead several of all tables."""
    if not cfg[F.TRANSFORMS]:  # otherwise two tables have two topics, or are refused
        return frozenset()
    topics = Counter(record_topics.table_topic_name(cfg, table) for table in tables if cfg.captures(table))
    return {topic for topic, number in topics.items() if number > 1}


def named_table(tables: Iterable[ComparedTable], key: Row | None) -> ComparedTable | None:
    """Return the table of a topic that a key names; None where it names none, or several."""
    named = [table for table in tables if table.is_named_by(key)]
    return named[0] if len(named) == 1 else None


def tables_by_topic(tables: Iterable[ComparedTable]) -> dict[str, TopicTables]:
    """Return the tables of each topic."""
    found: dict[str, list[ComparedTable]] = {}
    for compared in tables:
        found.setdefault(compared.topic, []).append(compared)
    return {
        topic: TopicTables({each.table.id: each.number for each in of_topic}, topic, tuple(of_topic))
        for topic, of_topic in found.items()
    }
