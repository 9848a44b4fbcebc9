"""Complete the rows of events by columns that the table got later, where a statement tells their values.

========================================  ============================================================================
the column was                            its value in an event that lacks it
========================================  ============================================================================
added, nullable without default           null
added with a literal as default           that literal; not known where it is a time in a session's zone, where the
                                          column's values are changed (masks, hashes), and in TiCDC's protocol
added before the history, which was       not known, whatever the row has: the record may have lost it
recorded anew
added otherwise: AUTO_INCREMENT,          none: the server computed a value for each row that no event tells, so the
CURRENT_TIMESTAMP, an expression,         column stays out of the row, which differs from that of the table
generated, NOT NULL without default
renamed                                   that of the former name
there when the event was written          none
========================================  ============================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.unavailable import unavailable
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    UNKNOWN_STRUCTURE,
    UNTOLD,
    UNWRITTEN,
    EventRecord,
    Forms,
    ValueForm,
)
from airflow_provider_mysql_cdc.cdc.verify.structures.row_comparison import (
    ComparedColumns,
    column_field,
    compared_columns,
)
from airflow_provider_mysql_cdc.cdc.verify.structures.structure_versions import StructureVersion

UNKNOWN_FORM = ValueForm("unknown")
"""Stands for a form that is not known, because the event may be of several structures."""
_NOT_KNOWN = "", UNKNOWN_FORM
"""A value that is not null, and that nothing can be compared with."""
BEFORE_HISTORY = -2
"""Number of the structure of an event from before the schema history, which was recorded anew."""
_Origin = tuple[int, str]
"""Number of the structure that has first had a column, and the name that it had there."""
_AddedValue = tuple[Any, ValueForm]


class DeclaredColumns:
    """Say how the structures of one table declare its columns; each structure is looked at once."""

    def __init__(self, cfg: ConnectorConfig) -> None:
        self._cfg, self._known = cfg, dict[int, tuple[Table, ComparedColumns | None]]()

    def of(self, table: Table) -> ComparedColumns | None:
        """Return the columns of a structure; None where one could not be represented, so there is no event of it."""
        if id(table) not in self._known:
            columns = None
            with suppress(SchemaError):
                columns = compared_columns(self._cfg, table)
            self._known[id(table)] = table, columns
        return self._known[id(table)][1]


class AddedColumns:
    """Complete the events of one table.

    Args:
        table: The structure of now.
        now: Its columns.
        versions: All structures that the table has had; empty where they are not known.
        declared: Says how they declare their columns.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        table: Table,
        now: ComparedColumns,
        versions: Sequence[StructureVersion],
        declared: DeclaredColumns,
    ) -> None:
        self._cfg, self._now, self._placed = cfg, now, bool(versions) and not cfg.is_ticdc
        self._tables = [version.table for version in versions] or [table]
        self._renamed = [dict(version.renamed) for version in versions] or [{}]
        self._columns = {f: c for c in table.columns if (f := column_field(cfg, c)) in self._now.declared}
        self._declared = declared
        self._origins: dict[int, Mapping[str, _Origin]] = {}
        self._values: dict[_Origin, _AddedValue | None] = {}
        self._forms: dict[tuple[int, tuple[str, ...]], tuple[Forms | None, Forms]] = {}

    def complete(self, event: EventRecord, structure: int) -> EventRecord:
        """Return an event whose row after it has the columns that are known.

        Args:
            event: The event.
            structure: Number of the structure that the table had then, ``UNKNOWN_STRUCTURE``, or ``BEFORE_HISTORY``.
        """
        row = event.after
        if row is None or self._columns.keys() <= row.keys():
            return event
        is_guess = structure == BEFORE_HISTORY
        if structure == UNKNOWN_STRUCTURE and (structure := self._newest_with(row.keys())) == UNKNOWN_STRUCTURE:
            if not self._cfg.is_ticdc:
                return event
            structure = BEFORE_HISTORY
        found: dict[str, _AddedValue] = {}
        # What the table had before its history, the mark cannot know.
        is_marked = event.forms is not None and not (self._placed and structure == BEFORE_HISTORY)
        had = {name for name, form in (event.forms or {}).items() if is_marked and form == UNWRITTEN}
        for name in sorted(self._columns.keys() - row.keys() - had):
            value = self._value_in(event, name, structure, is_guess=is_guess)
            if value is not None:
                found[name] = value
        if not found:
            return event
        values = {name: value for name, (value, _) in found.items()}
        return replace(event, after={**row, **values}, forms=self._forms_with(event.forms, found))

    def _value_in(self, event: EventRecord, name: str, structure: int, *, is_guess: bool) -> _AddedValue | None:
        """Return the value of a column that an event lacks, and its form; None where it is not told."""
        row = event.after or {}
        version, then = self._origins_since(structure).get(self._columns[name].name, (structure, ""))
        if version != structure:
            told = self._told(version, then)
            # The first structure may have had the column already, or have got it with another default.
            return (None, UNTOLD) if told is not None and is_guess and version <= 0 else told
        if not then:
            return None
        column = self._column(version, then)
        field = column_field(self._cfg, column)
        if field not in row:
            return None
        forms = self._now.forms if event.forms is None else event.forms
        declared = self._declared.of(self._tables[version])
        return row[field], forms.get(field) or (UNKNOWN_FORM if declared is None else self._form(declared, column))

    def has_other_origin(self, fields: Iterable[str], structure: int) -> bool:
        """Return whether columns of now had other names at a structure, or are others than had these names then.

        Args:
            fields: The columns of now.
            structure: Number of a structure, or ``UNKNOWN_STRUCTURE`` for any.
        """
        numbers = range(len(self._tables)) if structure == UNKNOWN_STRUCTURE else [max(0, structure)]
        names = [self._columns[field].name for field in fields if field in self._columns]
        return any(self._origins_since(number).get(name) != (number, name) for number in numbers for name in names)

    def _newest_with(self, fields: Set[str]) -> int:
        """Return the number of the newest structure that has these fields alone."""
        declared = [None if (found := self._declared.of(table)) is None else found.declared for table in self._tables]
        numbers = (n for n, each in enumerate(declared) if each is not None and each.keys() == fields)
        return max(numbers, default=UNKNOWN_STRUCTURE)

    def _origins_since(self, structure: int) -> Mapping[str, _Origin]:
        """Return where the columns of now come from, seen from a structure."""
        known = self._origins.get(structure)
        if known is None:
            first = max(structure, -1)
            known = {c.name: (structure, c.name) for c in self._tables[first].columns} if first >= 0 else {}
            for number in range(first + 1, len(self._tables)):
                renamed = self._renamed[number]
                stayed = {name: origin for name, origin in known.items() if name not in renamed.values()}
                known = {
                    c.name: known.get(renamed[c.name], (number, c.name))
                    if c.name in renamed
                    else stayed.get(c.name, (number, c.name))
                    for c in self._tables[number].columns
                }
            self._origins[structure] = known
        return known

    def _column(self, version: int, name: str) -> Column:
        return next(column for column in self._tables[version].columns if column.name == name)

    def _told(self, version: int, name: str) -> _AddedValue | None:
        """Return the value that rows got when a column was added, and its form; None where no statement tells it."""
        origin = version, name
        if origin not in self._values:
            self._values[origin] = self._find_told(self._tables[version], self._column(version, name))
        return self._values[origin]

    def _find_told(self, table: Table, column: Column) -> _AddedValue | None:
        if not column.has_known_default:
            return None
        if (then := self._declared.of(table)) is None:
            return _NOT_KNOWN
        options = table_options.table_options(self._cfg, table)
        change = options.treatment(column).change
        if change is not None and (column.default is not None or change.text):
            return _NOT_KNOWN
        if column_field(self._cfg, column) not in then.declared:
            return _NOT_KNOWN
        form = self._form(then, column)
        if column.default is None:
            return None, form
        # What the server fills rows with is what an INSERT without the column stores.
        text = None if self._cfg.is_ticdc else unavailable(column, options, "null").stored
        return (json.loads(text.encode("latin-1")), form) if text else _NOT_KNOWN

    def _form(self, then: ComparedColumns, column: Column) -> ValueForm:
        """Return the form of a column's values under a structure; that of now where it is declared as now."""
        field, now = column_field(self._cfg, column), self._now
        if not now.has_schemas and then.declared[field] != now.declared.get(field):
            return then.declared[field]
        return then.forms[field]

    def _forms_with(self, forms: Forms | None, found: Mapping[str, _AddedValue]) -> Forms:
        """Return forms with those of values that were found."""
        key = id(forms), tuple(found)
        known = self._forms.get(key)
        if known is None or known[0] is not forms:
            base = self._now.forms if forms is None else forms
            known = self._forms[key] = forms, {**base, **{name: form for name, (_, form) in found.items()}}
        return known[1]
