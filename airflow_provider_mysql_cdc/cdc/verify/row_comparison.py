"""Compare a row of a table with its last event, column by column."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from airflow_provider_mysql_cdc.cdc.decode.codegen.unavailable import placeholder_bytes
from airflow_provider_mysql_cdc.cdc.verify.event_record import Row
from airflow_provider_mysql_cdc.cdc.verify.row_text import same_value
from airflow_provider_mysql_cdc.cdc.verify.value_form import Forms, ValueForm
from airflow_provider_mysql_cdc.cdc.verify.value_meaning import Kind, equal_meanings, meaning

_DAY = 86_400 * 10**9
# First and last nanosecond of the forms in which other values are written as null (``nulled_values``).
_HELD: Mapping[str, tuple[Kind, int, int]] = {
    "org.apache.kafka.connect.data.Time": (Kind.TIME, 0, _DAY),
    "io.debezium.time.IsoTime": (Kind.TIME, 0, _DAY - 1),
    "io.debezium.time.NanoTimestamp": (Kind.DATETIME, -(1 << 63), (1 << 63) - 1),
}


@dataclass(frozen=True, slots=True)
class ComparedColumns:
    """Say how the values of a table's columns are compared (``compared_columns``).

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
        """Return whether a value may stand for one that the row image has left out.

        Args:
            name: The column's field.
            value: The value in an event.
        """
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
    """Compare the values of one column.

    Args:
        columns: The table's columns.
        name: The column's field.
        form: Form of the table's value.
        event_form: Form of the event's value.
    """

    columns: ComparedColumns
    name: str
    form: ValueForm | None
    event_form: ValueForm | None

    def compare(self, value: Any, event_value: Any) -> _Outcome:
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
    """Return how ``unavailable.value.placeholder`` is written in text and in binary columns.

    Args:
        placeholder: The property.
    """
    data = placeholder_bytes(placeholder)
    texts = (data.decode("utf-8", "replace"), b64encode(data).decode(), urlsafe_b64encode(data).decode(), data.hex())
    return frozenset(texts)


def is_placeholder(value: Any, placeholders: frozenset[str]) -> bool:
    """Return whether a value stands for an unknown one, as such or as every item of an array, map or struct.

    Args:
        value: The value.
        placeholders: Texts that stand for an unknown value.
    """
    if isinstance(value, str):
        return value in placeholders
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return bool(items) and all(is_placeholder(item, placeholders) for item in items)
