"""Say under which of its table's structures an event was written, by its place in the binlog."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.records import Headers
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.verify.compared_columns import column_field, compared_columns, record_forms
from airflow_provider_mysql_cdc.cdc.verify.envelope_events import require_members
from airflow_provider_mysql_cdc.cdc.verify.event_record import UNKNOWN_STRUCTURE, EventRecord, Row, UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.repair_marks import is_repair
from airflow_provider_mysql_cdc.cdc.verify.source_place import place_order, source_order
from airflow_provider_mysql_cdc.cdc.verify.structure_versions import TableVersions
from airflow_provider_mysql_cdc.cdc.verify.value_form import Forms, ValueForm

UNKNOWN_FORM = ValueForm("unknown")
"""Stands for a form that is not known, because the event may be of several structures."""


_END = (1 << 64) - 1


class WrittenStructures:
    """Complete the events of one table by what their records do not say.

    Args:
        cfg: The connector's configuration.
        table: The structure of now.
        versions: All structures that the table has had.
    """

    def __init__(self, cfg: ConnectorConfig, table: Table, versions: TableVersions) -> None:
        self._cfg, self._now = cfg, compared_columns(cfg, table)
        self._key_now = record_forms(cfg, table, table_options.table_options(cfg, table))[0]
        self._versions, self.one_binlog = versions.versions, versions.one_binlog
        self.view_ts, self.repeated = versions.view_ts, versions.repeated
        self._begins = [place_order(version.position) for version in versions.versions]
        self._forms: dict[int, tuple[Forms, Forms]] = {}
        structures = [table, *(version.table for version in versions.versions)]
        # Whatever columns are configured now, an event may have been written when others were.
        self._fields = frozenset(column_field(cfg, column) for each in structures for column in each.columns)
        keys = [_key_fields(cfg, each) for each in structures]
        self._former_keys = frozenset(keys) - {keys[0]}
        changed = [number for number, fields in enumerate(keys[1:]) if fields != keys[0]]
        self._key_number = changed[-1] + 1 if changed else 0
        self._always_keyed = all(each.key_columns() for each in structures)

    def require_own(self, event: EventRecord, *, has_key: bool) -> None:
        """Check that an event is one that the stream may have written under a structure of the table.

        Args:
            event: The event.
            has_key: Whether the records of the present structure have keys.

        Raises:
            UnreadableRecord: It has no key although the table had one, or it has other columns.
        """
        if not self._versions or event.op in ("", "t") or self._is_before_history(event.source):
            return
        if event.key is None and has_key and self._was_keyed(event.source):
            raise UnreadableRecord("the event has no key, although its table has one")
        for name, row in (("before", event.before), ("after", event.after)):
            if row is not None:
                require_members(row, self._fields, name)

    @property
    def has_former_keys(self) -> bool:
        """Return whether the records of the table have had other keys."""
        return bool(self._former_keys)

    def has_former_key(self, event: EventRecord) -> bool:
        """Return whether an event has a key that the table's records had before the present one.

        Args:
            event: The event.
        """
        return (frozenset() if event.key is None else frozenset(event.key)) in self._former_keys

    @property
    def key_begin(self) -> int:
        """Return from where on records have the present key, as ``source_order`` orders places."""
        known = self.one_binlog and self._key_number < len(self._begins)
        return self._begins[self._key_number] if known else _END

    def shows_view(self, event: EventRecord, headers: Headers) -> bool:
        """Return whether an event says that the last snapshot has read rows of the table, whose past was read again.

        Args:
            event: The event.
            headers: Its headers.
        """
        return self.repeated is not None and self.repeated.is_view(event) and not is_repair(headers)

    def _is_before_history(self, source: Row) -> bool:
        """Return whether the history does not say what the table was like then, because it was recorded anew."""
        return self.one_binlog and 0 < source_order(source) < self._begins[0]

    def _was_keyed(self, source: Row) -> bool:
        number = self._structure_of(source)
        known = number != UNKNOWN_STRUCTURE
        return self._always_keyed or (known and bool(self._versions[number].table.key_columns()))

    def has_other_columns(self, event: EventRecord) -> bool:
        """Return whether columns were added or dropped since an event, or may have been.

        Args:
            event: The event.
        """
        if not self._versions:
            return False
        first, last = self._versions[0].generation, self._versions[-1].generation
        number = self._structure_of(event.source)
        return (first if number == UNKNOWN_STRUCTURE else self._versions[number].generation) != last

    @property
    def has_changed(self) -> bool:
        """Return whether the table has had another structure."""
        return len(self._versions) > 1

    def is_older(self, order: int) -> bool:
        """Return whether an event at a place of the binlog may have another structure than that of now.

        Args:
            order: The place, from ``source_order``.
        """
        return self.has_changed and (not self.one_binlog or order < self._begins[-1])

    def complete(self, event: EventRecord) -> EventRecord:
        """Return an event with its structure, and with the forms of its values where its record does not say them.

        Args:
            event: The event.
        """
        if not self.has_changed or not event.op:
            return event
        number = self._structure_of(event.source)
        if self._now.has_schemas:
            return replace(event, structure=number)
        written = self._forms.get(number)
        if written is None:
            written = self._forms[number] = self._forms_of(number)
        forms, key_forms = written
        forms = forms if event.forms is None else event.forms
        key_forms = key_forms if event.key_forms is None else event.key_forms
        return replace(event, structure=number, forms=forms, key_forms=key_forms)

    def _structure_of(self, source: Row) -> int:
        """Return the number of the structure at an event's place."""
        if not self.one_binlog:
            return UNKNOWN_STRUCTURE
        order = source_order(source)
        return max(0, sum(1 for begin in self._begins if begin <= order) - 1)

    def _forms_of(self, number: int) -> tuple[Forms, Forms]:
        """Return the forms of values and keys under a structure; a column that is declared as now has that of now."""
        if number == UNKNOWN_STRUCTURE:
            return self._common(), self._key_now
        table = self._versions[number].table
        try:
            key_forms = record_forms(self._cfg, table, table_options.table_options(self._cfg, table))[0]
            declared = compared_columns(self._cfg, table).declared
        except SchemaError:  # one of its columns could not be represented, so there is no event of it
            return self._common(), self._key_now
        now = self._now
        forms = {name: now.forms[name] if now.declared.get(name) == form else form for name, form in declared.items()}
        return forms, key_forms

    def _common(self) -> Forms:
        """Return the forms of columns that all structures declare alike; those of others are not known."""
        forms = dict(self._now.forms)
        for version in self._versions:
            with suppress(SchemaError):
                for name, declared in compared_columns(self._cfg, version.table).declared.items():
                    if name in forms and declared != self._now.declared[name]:
                        forms[name] = UNKNOWN_FORM
        return forms


def _key_fields(cfg: ConnectorConfig, table: Table) -> frozenset[str]:
    columns = key_columns(table, table_options.table_options(cfg, table))
    return frozenset(column_field(cfg, column) for column in columns)
