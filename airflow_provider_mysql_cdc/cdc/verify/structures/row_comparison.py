"""Compare a row of a table with its last event, column by column, as configuration and structure tell.

Rows carry the forms of those columns alone that differ from the forms of the table's structure, so most carry none.
"""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro.connect_avro import avro_schema
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.convert.connect_types import connect_type
from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.record_columns import key_columns, value_columns
from airflow_provider_mysql_cdc.cdc.decode.codegen.unavailable import placeholder_bytes, placeholder_text
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.avro_names import field_name
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_schema import avro_name, key_schema, value_schema
from airflow_provider_mysql_cdc.cdc.verify.read.avro_events import readable_schema
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import (
    FORMS_MEMBER,
    NUMBER_TEXT,
    UNTOLD,
    Forms,
    Row,
    ValueForm,
    row_forms,
    same_value,
    struct_forms,
)
from airflow_provider_mysql_cdc.cdc.verify.structures.value_meaning import Kind, equal_meanings, meaning
from airflow_provider_mysql_cdc.cdc.verify.structures.value_writing import changed_forms

_DAY = 86_400 * 10**9
# First and last nanosecond of the forms in which other values are written as null (``decoder_options``).
_HELD: Mapping[str, tuple[Kind, int, int]] = {
    "org.apache.kafka.connect.data.Time": (Kind.TIME, 0, _DAY),
    "io.debezium.time.IsoTime": (Kind.TIME, 0, _DAY - 1),
    "io.debezium.time.NanoTimestamp": (Kind.DATETIME, -(1 << 63), (1 << 63) - 1),
}


@dataclass(frozen=True, slots=True)
class ComparedColumns:
    """Say how the values of a table's columns are compared (``row_comparison``).

    Args:
        forms: How records of the table's structure say that values are written.
        declared: The same with what only the structure says, such as that a text is a number.
        null_if_unknown: Columns in which null may stand for an unknown value.
        placeholders: Texts that stand for an unknown value.
        has_schemas: Whether records say the forms of their values.
    """

    forms: Forms
    declared: Forms
    null_if_unknown: frozenset[str] = frozenset()
    placeholders: frozenset[str] = frozenset()
    has_schemas: bool = True

    def is_unknown(self, name: str, value: Any) -> bool:
        """Return whether a value may stand for one that the row image has left out."""
        return (value is None and name in self.null_if_unknown) or is_placeholder(value, self.placeholders)


@dataclass(frozen=True, slots=True)
class RowDifference:
    """Say how a row and its last event differ.

    Args:
        columns: Columns with other values, or that the event does not have.
        unknown: Columns whose value the event does not say.
        incomparable: Columns of which it is not known whether a value of an earlier structure is the same.
    """

    columns: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    incomparable: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        """Return whether columns were left out of the comparison."""
        return bool(self.unknown or self.incomparable)


class _Outcome(Enum):
    """Name what the comparison of one column came to."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNKNOWN = "unknown"
    INCOMPARABLE = "incomparable"


def compare_rows(
    table_row: Row,
    event_row: Row,
    columns: ComparedColumns,
    table_forms: Forms | None = None,
    event_forms: Forms | None = None,
) -> RowDifference:
    """Return how a row of a table and its last event differ.

    A value that was written under an earlier structure is compared by what it stands for. Columns that the table no
    longer has are not compared. One that the event lacks differs: what a statement tells of it was added before
    (``added_columns``).

    Args:
        table_row: The row, from a record as the product's encoders write it now.
        event_row: The row after the event.
        columns: The table's columns.
        table_forms: Forms of the row's values; None for ``columns.forms``.
        event_forms: Forms of the event's values; None for ``columns.forms``.
    """
    found: dict[_Outcome, list[str]] = {outcome: [] for outcome in _Outcome}
    for name, value in table_row.items():
        if name not in event_row:
            found[_Outcome.DIFFERENT].append(name)
            continue
        form = (columns.forms if table_forms is None else table_forms).get(name)
        event_form = (columns.forms if event_forms is None else event_forms).get(name)
        forms = (event_form,) if event_form is None else (event_form._replace(others=()), *event_form.others)
        outcomes = {_ColumnComparison(columns, name, form, each).compare(value, event_row[name]) for each in forms}
        found[outcomes.pop() if len(outcomes) == 1 else _Outcome.INCOMPARABLE].append(name)
    return RowDifference(*(tuple(found[o]) for o in (_Outcome.DIFFERENT, _Outcome.UNKNOWN, _Outcome.INCOMPARABLE)))


@dataclass(frozen=True, slots=True)
class _ColumnComparison:
    """Compare the values of one column."""

    columns: ComparedColumns
    name: str
    form: ValueForm | None
    event_form: ValueForm | None

    def compare(self, value: Any, event_value: Any) -> _Outcome:
        if self.event_form == UNTOLD:
            return _Outcome.INCOMPARABLE
        same_form = self.form == self.event_form
        if same_form and same_value(value, event_value):
            return _Outcome.EQUAL
        if event_value is None or value is None:
            return self._compare_null(value, event_value)
        if is_placeholder(event_value, self.columns.placeholders):
            return _Outcome.UNKNOWN
        form, event_form = self._declared(self.form), self._declared(self.event_form)
        meant = None if form is None else meaning(value, form)
        event_meant = None if event_form is None else meaning(event_value, event_form)
        equal = None if meant is None or event_meant is None else equal_meanings(meant, event_meant)
        if equal is None:
            altered = event_form is None or event_form.altered
            return _Outcome.INCOMPARABLE if altered and not same_form else _Outcome.DIFFERENT
        return _Outcome.EQUAL if equal else _Outcome.DIFFERENT

    def _compare_null(self, value: Any, event_value: Any) -> _Outcome:
        if value is None and event_value is None:
            return _Outcome.EQUAL
        if event_value is None and self.name in self.columns.null_if_unknown:
            return _Outcome.UNKNOWN
        if value is None and is_placeholder(event_value, self.columns.placeholders):
            return _Outcome.UNKNOWN
        forms = self._declared(self.form), self._declared(self.event_form)
        null_form, form = forms if value is None else reversed(forms)
        held = None if null_form is None or self.form == self.event_form else _HELD.get(null_form.name)
        if held is None:
            return _Outcome.DIFFERENT
        meant = None if form is None else meaning(event_value if value is None else value, form)
        kind, first, last = held
        is_held = meant is not None and meant.kind is kind and first <= meant.value <= last
        return _Outcome.DIFFERENT if is_held else _Outcome.UNKNOWN

    def _declared(self, form: ValueForm | None) -> ValueForm | None:
        return self.columns.declared.get(self.name, form) if form == self.columns.forms.get(self.name) else form


def placeholder_texts(placeholder: str) -> frozenset[str]:
    """Return how ``unavailable.value.placeholder`` is written in text and in binary columns."""
    data = placeholder_bytes(placeholder)
    texts = (data.decode("utf-8", "replace"), b64encode(data).decode(), urlsafe_b64encode(data).decode(), data.hex())
    return frozenset(texts)


def is_placeholder(value: Any, placeholders: frozenset[str]) -> bool:
    """Return whether a value stands for an unknown one, as such or as every item of an array, map or struct."""
    if isinstance(value, str):
        return value in placeholders
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return bool(items) and all(is_placeholder(item, placeholders) for item in items)


class FormCarrier:
    """Add the forms to the rows of one table.

    Args:
        columns: The table's columns, as those have them who compare the rows.
    """

    def __init__(self, columns: ComparedColumns) -> None:
        self._forms = columns.forms
        self._last: Forms | None = None
        self._carried: dict[str, list[Any]] = {}

    def row_with_forms(self, row: Row, forms: Forms | None) -> Row:
        """Return a row with the forms that it has to carry."""
        if forms is None:
            return row
        if forms is not self._last:
            changed = changed_forms(self._forms, forms)
            self._last, self._carried = forms, {name: form.to_json() for name, (form, _) in changed.items()}
        return {**row, FORMS_MEMBER: self._carried} if self._carried else row


@dataclass(frozen=True, slots=True)
class CarriedRowComparison:
    """Compare rows that carry their forms.

    Args:
        columns: The columns of each table, by its number.
    """

    columns: Mapping[int, ComparedColumns]

    def __call__(self, table: int, row: Mapping[str, Any], event_row: Mapping[str, Any]) -> RowDifference:
        """Return how a row and its last event differ."""
        columns = self.columns[table]
        values, forms = _take_forms(row, columns)
        event_values, event_forms = _take_forms(event_row, columns)
        return compare_rows(values, event_values, columns, forms, event_forms)


def _take_forms(row: Mapping[str, Any], columns: ComparedColumns) -> tuple[Row, Forms]:
    """Return the values of a row and their forms: those of the table's structure where it carries no others."""
    carried = row.get(FORMS_MEMBER)
    if carried is None:
        return row, columns.forms
    values = {name: value for name, value in row.items() if name != FORMS_MEMBER}
    return values, {**columns.forms, **{name: ValueForm.from_json(form) for name, form in carried.items()}}


_NUMBER_FAMILIES = (Family.DECIMAL, Family.INTEGER)


def compared_columns(cfg: ConnectorConfig, table: Table) -> ComparedColumns:
    """Return how the values of a table's columns are compared.

    Raises:
        SchemaError: A column cannot be represented.
    """
    options = table_options.table_options(cfg, table)
    columns = {column_field(cfg, column): column for column in value_columns(table, options)}
    forms = record_forms(cfg, table, options)[1]
    as_null = cfg[F.UNAVAILABLE_VALUE_AS_NULL] and not cfg.is_ticdc
    nulls = {name for name, column in columns.items() if column.nullable and placeholder_text(column, options) is None}
    return ComparedColumns(
        forms,
        {name: _declared_form(cfg, column, options, forms[name]) for name, column in columns.items()},
        frozenset(nulls if as_null else ()),
        placeholder_texts(cfg[F.UNAVAILABLE_VALUE_PLACEHOLDER]),
        cfg.is_avro("value") or cfg[F.VALUE_SCHEMAS_ENABLE],
    )


def column_field(cfg: ConnectorConfig, column: Column) -> str:
    """Return the name of a column's field in keys and values."""
    return avro_name(column.name) if cfg.is_ticdc else field_name(column.name, str(cfg[F.FIELD_NAME_ADJUSTMENT_MODE]))


def record_forms(cfg: ConnectorConfig, table: Table, options: DecoderOptions) -> tuple[Forms, Forms]:
    """Return the forms of the fields of keys and of rows, as the schemas of records say them.

    Raises:
        SchemaError: A column cannot be represented.
    """
    if cfg.is_ticdc:
        modes = table_options.ticdc_modes(cfg)
        key = key_schema(table, key_columns(table, options), modes)
        value = value_schema(table, value_columns(table, options), modes)
        return {} if key is None else readable_schema(key).forms, readable_schema(value).forms
    text = envelope_text(table, options)
    key_document, value_document = (None if s is None else json.loads(s) for s in (text.key_schema, text.value_schema))
    return _part_forms(cfg, "key", key_document), _part_forms(cfg, "value", value_document)


def _part_forms(cfg: ConnectorConfig, part: F.ConverterPart, schema: Any) -> Forms:
    if schema is None:
        return {}
    if not cfg.is_avro(part):
        return struct_forms(schema) if part == "key" else row_forms(schema)
    part_fields = F.CONVERTER_FIELDS[part]
    meta = cfg[part_fields.meta_data] or cfg[part_fields.use_latest]
    return readable_schema(dumps(avro_schema(schema, meta=meta))).forms


def _declared_form(cfg: ConnectorConfig, column: Column, options: DecoderOptions, form: ValueForm) -> ValueForm:
    """Return a column's form with what its schema may not say: that a text is a number, or a semantic type."""
    custom = options.custom(column) is not None
    if form.type == "string" and not form.name and column.family in _NUMBER_FAMILIES and not custom:
        return ValueForm("string", NUMBER_TEXT)
    if form.name or cfg.is_ticdc:
        return form
    kind = connect_type(column, options)
    return ValueForm(kind.type, kind.name or "", form.scale)
