"""Say under which of its table's structures an event was written, by its place in the binlog."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.table import Table
from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import require_members
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    UNKNOWN_STRUCTURE,
    UNWRITTEN,
    EventRecord,
    Forms,
    Row,
    UnreadableRecord,
    place_order,
    source_order,
)
from airflow_provider_mysql_cdc.cdc.verify.structures.added_columns import BEFORE_HISTORY, AddedColumns, DeclaredColumns
from airflow_provider_mysql_cdc.cdc.verify.structures.row_comparison import column_field, compared_columns, record_forms
from airflow_provider_mysql_cdc.cdc.verify.structures.structure_versions import NOWHERE, TableVersions
from airflow_provider_mysql_cdc.cdc.verify.structures.written_schemas import WrittenSchemas


class WrittenStructures:
    """Complete the events of one table by what their records do not say.

    Args:
        table: The structure of now.
        versions: All structures that the table has had.
    """

    def __init__(self, cfg: ConnectorConfig, table: Table, versions: TableVersions) -> None:
        self._cfg, self._now = cfg, compared_columns(cfg, table)
        self._declared = DeclaredColumns(cfg)
        self._added = AddedColumns(cfg, table, self._now, versions.versions or versions.unplaced, self._declared)
        self._key_now = record_forms(cfg, table, table_options.table_options(cfg, table))[0]
        self._versions, self.one_binlog = versions.versions, versions.one_binlog
        self.view_ts, self.moved_back, self.views = versions.view_ts, versions.moved_back, versions.views
        self._began_ms, self.read_again = versions.began_ms or 0, versions.read_again
        self._key_marks = frozenset(b"\0" + number.to_bytes(4, "big") for number in versions.key_ids)
        self._read_once = versions.described_once
        self._begins = [place_order(version.position) for version in versions.versions]
        self._forms: dict[int, tuple[Forms, Forms]] = {}
        self._same: dict[int, frozenset[str]] = {}
        self._unplaced = tuple(version.table for version in versions.unplaced)
        structures = [table, *(version.table for version in versions.versions), *self._unplaced]
        of_each = [frozenset(column_field(cfg, c) for c in each.columns) for each in structures]
        # Whatever columns are configured now, an event may have been written when others were.
        self._fields, self._all_fields = of_each[1:], frozenset[str]().union(*of_each)
        self._written = [fields & self._now.declared.keys() for fields in of_each[1:]]
        orders = [_key_fields(cfg, each) for each in structures]
        keys = [frozenset(order) for order in orders]
        self._key_orders, self._key_sets = frozenset(orders), frozenset(keys)
        self._schemas = WrittenSchemas(cfg, structures)
        self._former_keys = self._key_sets - {keys[0]}
        changed = [number for number, fields in enumerate(keys[1:]) if fields != keys[0]]
        self._key_number = changed[-1] + 1 if changed else 0
        self.always_keyed = all(each.key_columns() for each in structures)

    def require_own(self, event: EventRecord, *, has_key: bool) -> None:
        """Check that an event is one that the stream may have written under a structure of the table.

        Raises:
            UnreadableRecord: It has no key although the table had one, or it has other columns or another schema.
        """
        if event.op in ("", "t") or not self._written:
            return
        if self.is_before_history(event):
            self._schemas.require("value", event.forms, with_columns=False)
            return
        if event.key is None and has_key and self.was_keyed(event):
            raise UnreadableRecord("the event has no key, although its table has one")
        number = self._structure_of(event.source) if self._versions else UNKNOWN_STRUCTURE
        fields = self._all_fields if number == UNKNOWN_STRUCTURE else self._fields[number]
        for name, row in (("before", event.before), ("after", event.after)):
            if row is not None:
                require_members(row, fields, name)
        self._schemas.require("value", event.forms)

    def wrote_key(self, event: EventRecord) -> bool:
        """Return whether a record's key is in the bytes that the stream writes for a structure of the table.

        Compaction, and consumers that tell records by their keys, keep a record under other bytes beside the row's.
        """
        if event.key is None or not self._written:
            return True
        order = tuple(event.key)
        if not event.key_exact or (order not in self._key_orders and frozenset(order) in self._key_sets):
            return False
        if self.is_before_history(event):
            return True
        if event.after is not None and not any(fields <= event.key.keys() for fields in self._key_sets):
            return False
        if self._key_marks and event.key_bytes is not None and event.key_bytes[:5] not in self._key_marks:
            return False
        try:
            self._schemas.require("key", event.key_forms)
        except UnreadableRecord:
            return False
        return True

    def has_former_key(self, event: EventRecord) -> bool:
        """Return whether an event has a key that the table's records had before the present one."""
        return (frozenset() if event.key is None else frozenset(event.key)) in self._former_keys

    def names_other_row(self, event: EventRecord, fields: Set[str]) -> bool:
        """Return whether what an event calls by the names of a key may be in other columns than those of now."""
        number = self._structure_of(event.source) if self._versions else UNKNOWN_STRUCTURE
        return self._added.has_other_origin(fields, number)

    @property
    def key_begin(self) -> int:
        """Return from where on records have the present key, as ``source_order`` orders places."""
        known = self.one_binlog and self._key_number < len(self._begins)
        return self._begins[self._key_number] if known else NOWHERE

    def changes_by_key(self, event: EventRecord) -> bool:
        """Return whether an event says by the key that its table had then which row it changes, and not by the row."""
        return bool(self._unplaced) and event.key is not None and any(self._key_sets)

    def reads_again(self, event: EventRecord) -> bool:
        """Return whether an event may be a row that the topic had already, read once more by a snapshot."""
        if event.op != "r" or not (self._begins and self.one_binlog and self._read_once):
            return event.op == "r"
        is_ad_hoc = self.views is not None and self.views.is_ad_hoc(event.source)
        return is_ad_hoc or source_order(event.source) != self._begins[0]

    def is_before_history(self, event: EventRecord) -> bool:
        """Return whether the history does not say what the table was like then, because it was recorded anew."""
        if event.written_ms:
            return event.written_ms < self._began_ms
        return bool(self._versions) and self.one_binlog and 0 < source_order(event.source) < self._begins[0]

    def was_keyed(self, event: EventRecord) -> bool:
        """Return whether the table had a key at an event's place, or always; False where that is not known."""
        number = self._structure_of(event.source) if self._versions else UNKNOWN_STRUCTURE
        known = number != UNKNOWN_STRUCTURE
        return self.always_keyed or (known and bool(self._versions[number].table.key_columns()))

    def has_other_columns(self, event: EventRecord) -> bool:
        """Return whether columns were added or dropped since an event, or may have been."""
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
        """Return whether an event at a place of the binlog may have another structure than that of now."""
        return self.has_changed and (not self.one_binlog or order < self._begins[-1])

    def complete(self, event: EventRecord) -> EventRecord:
        """Return an event with its structure, and with what its record does not say of how its values are written.

        A value is excused only where the history shows that its column was declared otherwise at the event's place, or
        was not there: a column that the record lacks although its table had it is marked as ``UNWRITTEN``.
        """
        if not event.op or (self._unplaced and self.is_before_history(event)):
            return event
        number = self._structure_of(event.source) if self.has_changed else 0
        forms, key_forms = self._forms_in(event, number)
        if event.after is not None and (lacking := self._lacking(event.after, number)):
            forms = {**(self._now.forms if forms is None else forms), **dict.fromkeys(lacking, UNWRITTEN)}
        if (number, forms, key_forms) == (event.structure, event.forms, event.key_forms):
            return event
        return replace(event, structure=number, forms=forms, key_forms=key_forms)

    def _forms_in(self, event: EventRecord, number: int) -> tuple[Forms | None, Forms | None]:
        if not self._now.has_schemas and self.has_changed:
            written = self._forms.get(number)
            if written is None:
                written = self._forms[number] = self._forms_of(number)
            values, keys = written
            return values if event.forms is None else event.forms, keys if event.key_forms is None else event.key_forms
        if event.forms is None:
            return None, event.key_forms
        same, now = self._declared_as_now(number), self._now.forms
        other = {n: f._replace(altered=False) for n, f in event.forms.items() if n in same and f != now.get(n)}
        return {**event.forms, **other} if other else event.forms, event.key_forms

    def _lacking(self, row: Row, number: int) -> frozenset[str]:
        """Return the columns that a row lacks although its table had them."""
        several = number == UNKNOWN_STRUCTURE or self._unplaced
        possible = self._written if several else self._written[number : number + 1]
        lacking = [fields - row.keys() for fields in possible]
        return lacking[-1] if lacking and all(lacking) else frozenset()

    def _declared_as_now(self, number: int) -> frozenset[str]:
        """Return the columns that a structure declares as that of now; if it is not known which, those of all."""
        found = self._same.get(number)
        if found is None:
            placed = () if number == UNKNOWN_STRUCTURE else self._versions[number : number + 1]
            same, now = set(self._now.declared), self._now.declared
            for table in [version.table for version in placed or self._versions] or self._unplaced:
                if (columns := self._declared.of(table)) is not None:
                    same &= {name for name, form in columns.declared.items() if now.get(name) == form}
            found = self._same[number] = frozenset(same)
        return found

    def with_added_columns(self, event: EventRecord) -> EventRecord:
        """Return an event that was completed with the columns that the table got later, as far as they are known."""
        if not self._versions:
            structure = BEFORE_HISTORY if self.is_before_history(event) else UNKNOWN_STRUCTURE
            return self._added.complete(event, structure) if self._cfg.is_ticdc else event
        before = self.is_before_history(event)
        return self._added.complete(event, BEFORE_HISTORY if before else self._structure_of(event.source))

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
        table, now = self._versions[number].table, self._now
        columns = self._declared.of(table)
        if columns is None:
            return self._common(), self._key_now
        key_forms = record_forms(self._cfg, table, table_options.table_options(self._cfg, table))[0]
        declared = columns.declared.items()
        return {n: now.forms[n] if now.declared.get(n) == form else form for n, form in declared}, key_forms

    def _common(self) -> Forms:
        """Return the forms of now, with all others that structures declare."""
        forms = dict(self._now.forms)
        for version in self._versions:
            columns = self._declared.of(version.table)
            for name, declared in () if columns is None else columns.declared.items():
                form = forms.get(name)
                if form is not None and declared not in (self._now.declared[name], *form.others):
                    forms[name] = form._replace(others=(*form.others, declared))
        return forms


def _key_fields(cfg: ConnectorConfig, table: Table) -> tuple[str, ...]:
    """Return the fields of a record's key in their order, which in TiCDC's protocol is that of the columns."""
    try:
        columns = key_columns(table, table_options.table_options(cfg, table))
    except SchemaError:  # of such a structure there is no record
        return ()
    ordered = sorted(columns, key=lambda column: column.position) if cfg.is_ticdc else columns
    return tuple(column_field(cfg, column) for column in ordered)
