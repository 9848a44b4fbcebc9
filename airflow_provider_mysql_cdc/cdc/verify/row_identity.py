"""Tell which row of a table a record is about: canonical bytes of the row's identity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, value_columns
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.column_rule import ValueChangeKind
from airflow_provider_mysql_cdc.cdc.model.table import Table, folded_name
from airflow_provider_mysql_cdc.cdc.verify.compared_columns import column_field, compared_columns, record_forms
from airflow_provider_mysql_cdc.cdc.verify.event_record import EventRecord, Row, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.row_comparison import is_placeholder
from airflow_provider_mysql_cdc.cdc.verify.row_text import row_bytes
from airflow_provider_mysql_cdc.cdc.verify.value_writing import FormChanges

_NO_ROW = ("", "t")
_LOSSY_CHANGES = (ValueChangeKind.CONSTANT, ValueChangeKind.TRUNCATE_TEXT, ValueChangeKind.TRUNCATE_BYTES)


class IdentitySource(Enum):
    """Say where the identity of a row is in its records."""

    RECORD_KEY = "the record's key"
    OWN_KEY = "the table's own key, in before and after; message.key.columns has chosen another one for records"
    VALUES = "all values; rows may be equal"


@dataclass(frozen=True, slots=True)
class RowIdentity:
    """Tell the rows of one table apart (``row_identity``).

    Args:
        source: Where the identity is.
        fields: Fields of the table's own key.
        key_fields: Fields of the columns in the keys of its records.
        placeholders: Texts that stand for an unknown value.
        key_changes: Writes keys of earlier structures in the forms of now.
        row_changes: The same for rows.
    """

    source: IdentitySource
    fields: tuple[str, ...]
    key_fields: frozenset[str]
    placeholders: frozenset[str]
    key_changes: FormChanges
    row_changes: FormChanges

    def before_and_after(self, record: EventRecord) -> tuple[bytes | None, bytes | None]:
        """Return the identities of the row before and after an event; None where there is no row.

        They differ where an UPDATE changes the table's own key, and its record's key stays. A tombstone deletes the row
        of its key.

        Args:
            record: The event.

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

    def is_named_by(self, record: EventRecord) -> bool:
        """Return whether an event with another key says the present one in its rows.

        Args:
            record: The event.
        """
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

        Args:
            record: The record.

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

    Args:
        cfg: The connector's configuration.
        table: The table.

    Raises:
        SchemaError: A column cannot be represented.
    """
    options = table_options.table_options(cfg, table)
    key_forms, row_forms = record_forms(cfg, table, options)
    own = {folded_name(name) for name in table.key_columns()}
    return RowIdentity(
        identity_source(table, options),
        tuple(column_field(cfg, column) for column in table.columns if folded_name(column.name) in own),
        frozenset(column_field(cfg, column) for column in key_columns(table, options)),
        compared_columns(cfg, table).placeholders,
        FormChanges(key_forms),
        FormChanges(row_forms),
    )


def identity_source(table: Table, options: DecoderOptions) -> IdentitySource:
    """Return where the identity of a table's rows is in its records.

    Args:
        table: The table.
        options: From ``table_options.table_options``.
    """
    own = {folded_name(name) for name in table.key_columns()}
    if not own:
        return IdentitySource.VALUES
    if own <= {folded_name(column.name) for column in key_columns(table, options)}:
        return IdentitySource.RECORD_KEY
    changes = {folded_name(c.name): options.treatment(c).change for c in value_columns(table, options)}
    shown = {name for name, change in changes.items() if change is None or change.kind not in _LOSSY_CHANGES}
    return IdentitySource.OWN_KEY if own <= shown else IdentitySource.VALUES
