"""Compare a row of a table with its last event, column by column."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import Enum
from typing import Any

from airflow_provider_mysql_cdc.cdc.decode.codegen.unavailable import placeholder_bytes
from airflow_provider_mysql_cdc.cdc.verify.event_record import Row
from airflow_provider_mysql_cdc.cdc.verify.row_text import same_value
from airflow_provider_mysql_cdc.cdc.verify.value_form import DECIMAL, Forms, ValueForm
from airflow_provider_mysql_cdc.cdc.verify.value_meaning import equal_meanings, meaning

# Forms in which a value that they cannot represent is written as null (``nulled_values``).
_NULLING_NAMES = frozenset(
    {"org.apache.kafka.connect.data.Time", "io.debezium.time.IsoTime", "io.debezium.time.NanoTimestamp"}
)
# Digits of a quotient of decimals, which have 65 at most; with fewer, one could be rounded to a power of ten.
_WIDE = Context(prec=140)
# The unit of values of these forms depends on the column's declaration at the time.
_DECLARED_NAMES = frozenset(
    {DECIMAL, *(f"io.debezium.time.{name}" for name in ("Timestamp", "MicroTimestamp", "Time", "MicroTime"))}
)


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

    def unit_fields(self) -> frozenset[str]:
        """Return the fields whose values do not say in which unit they are: without schemas, that may have changed."""
        names = (name for name, form in self.declared.items() if form.name in _DECLARED_NAMES)
        return frozenset() if self.has_schemas else frozenset(names)

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
        columns: Columns with other values.
        lacking: Columns that the event does not have, because the table got them later.
        unknown: Columns whose value the event does not say.
        incomparable: Columns of which it is not known whether a value of an earlier structure is the same.
    """

    columns: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    incomparable: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        """Return whether columns were left out of the comparison."""
        return bool(self.lacking or self.unknown or self.incomparable)


class _Outcome(Enum):
    """Name what the comparison of one column came to."""

    EQUAL = "equal"
    DIFFERENT = "different"
    LACKING = "lacking"
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
    longer has are not compared.

    Args:
        table_row: The row, from a record as the product's encoders write it now.
        event_row: The row after the event.
        columns: The table's columns.
        table_forms: Forms of the row's values; None for ``columns.forms``.
        event_forms: Forms of the event's values; None if they are not known, which are then taken for
            ``columns.forms``.
    """
    # Without schemas, other columns are the only sign of an earlier structure.
    changed = event_forms is None and event_row.keys() != table_row.keys()
    found: dict[_Outcome, list[str]] = {outcome: [] for outcome in _Outcome}
    for name, value in table_row.items():
        if name not in event_row:
            found[_Outcome.LACKING].append(name)
            continue
        form = (columns.forms if table_forms is None else table_forms).get(name)
        event_form = (columns.forms if event_forms is None else event_forms).get(name)
        comparison = _ColumnComparison(columns, name, form, event_form, changed)
        found[comparison.compare(value, event_row[name])].append(name)
    return RowDifference(
        *(tuple(found[o]) for o in (_Outcome.DIFFERENT, _Outcome.LACKING, _Outcome.UNKNOWN, _Outcome.INCOMPARABLE))
    )


@dataclass(frozen=True, slots=True)
class _ColumnComparison:
    """Compare the values of one column.

    Args:
        columns: The table's columns.
        name: The column's field.
        form: Form of the table's value.
        event_form: Form of the event's value.
        changed: Whether the event may have been written under an earlier structure, and does not say its forms.
    """

    columns: ComparedColumns
    name: str
    form: ValueForm | None
    event_form: ValueForm | None
    changed: bool

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
        if meant is None or event_meant is None:
            return _Outcome.DIFFERENT if same_form else _Outcome.INCOMPARABLE
        equal = equal_meanings(meant, event_meant)
        if equal is None or (not equal and self._may_have_other_unit(form, meant.value, event_meant.value)):
            return _Outcome.INCOMPARABLE
        return _Outcome.EQUAL if equal else _Outcome.DIFFERENT

    def _compare_null(self, value: Any, event_value: Any) -> _Outcome:
        if value is None and event_value is None:
            return _Outcome.EQUAL
        if event_value is None and self.name in self.columns.null_if_unknown:
            return _Outcome.UNKNOWN
        if value is None and is_placeholder(event_value, self.columns.placeholders):
            return _Outcome.UNKNOWN
        null_form = self._declared(self.form if value is None else self.event_form)
        if self.form != self.event_form and null_form is not None and null_form.name in _NULLING_NAMES:
            return _Outcome.UNKNOWN
        return _Outcome.DIFFERENT

    def _may_have_other_unit(self, form: ValueForm | None, value: Any, event_value: Any) -> bool:
        """Return whether two values may be equal, and only written in the units of two declarations."""
        if form is None or form.name not in _DECLARED_NAMES:
            return False
        if self.changed:
            return _differ_in_unit(value, event_value)
        # MODIFY leaves the names of columns as they are. A point in time is not a thousand times another one by chance.
        return not self.columns.has_schemas and form.name != DECIMAL and _is_in_thousands(value, event_value)

    def _declared(self, form: ValueForm | None) -> ValueForm | None:
        return self.columns.declared.get(self.name, form) if form == self.columns.forms.get(self.name) else form


def _differ_in_unit(value: Any, event_value: Any) -> bool:
    """Return whether two numbers would be equal in other units, which differ by a power of ten."""
    if not value or not event_value:
        return False
    _, digits, _ = _WIDE.divide(Decimal(value), Decimal(event_value)).normalize(_WIDE).as_tuple()
    return digits == (1,) and (value > 0) == (event_value > 0)


def _is_in_thousands(value: Any, event_value: Any) -> bool:
    """Return whether a number is a thousand or a million times the other, as milli- and microseconds are."""
    low, high = sorted((value, event_value), key=abs)
    return bool(low) and high in (low * 10**3, low * 10**6)


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
