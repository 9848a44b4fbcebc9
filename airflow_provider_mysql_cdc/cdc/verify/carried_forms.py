"""Carry the forms of values from where records are read to where rows are compared.

A row carries the forms of those columns alone that differ from the forms of the table's structure, so most rows carry
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.verify.event_record import Row
from airflow_provider_mysql_cdc.cdc.verify.row_comparison import ComparedColumns, RowDifference, compare_rows
from airflow_provider_mysql_cdc.cdc.verify.row_text import FORMS_MEMBER
from airflow_provider_mysql_cdc.cdc.verify.value_form import Forms, ValueForm
from airflow_provider_mysql_cdc.cdc.verify.value_writing import changed_forms


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
        """Return a row with the forms that it has to carry.

        Args:
            row: The row.
            forms: Forms of its values; None if they are not known.
        """
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
        """Return how a row and its last event differ.

        Args:
            table: The table's number.
            row: The row.
            event_row: The row after the event.
        """
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
