"""Write a value of an earlier structure in the form that the table's records have now."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from airflow_provider_mysql_cdc.cdc.verify.read.event_record import DECIMAL, NUMBER_TEXT, Forms, Row, ValueForm
from airflow_provider_mysql_cdc.cdc.verify.structures.value_meaning import Kind, equal_meanings, meaning

Write = Callable[[Any, ValueForm], Any]


def value_in_form(value: Any, form: ValueForm, wanted: ValueForm) -> Any:
    """Return a value in another form; as it is where that is not possible without loss."""
    meant = None if value is None else meaning(value, form)
    write = None if meant is None else _WRITERS.get((meant.kind, wanted.name or wanted.type))
    if meant is None or write is None:
        return value
    try:
        written = write(meant.value, wanted)
    except (ValueError, ArithmeticError):
        return value
    again = meaning(written, wanted)
    return written if again is not None and equal_meanings(again, meant) else value


class FormChanges:
    """Write the values of earlier structures in the forms of now."""

    def __init__(self, forms: Forms) -> None:
        self._forms = forms
        self._last: Forms | None = None
        self._changed: Mapping[str, tuple[ValueForm, ValueForm]] = {}

    def in_forms(self, row: Row, forms: Forms | None) -> Row:
        """Return a row in the forms of now."""
        if forms is None:
            return row
        if forms is not self._last:
            self._last, self._changed = forms, changed_forms(self._forms, forms)
        if not self._changed:
            return row
        written = {name: value_in_form(row[name], *forms) for name, forms in self._changed.items() if name in row}
        return {**row, **written}


def changed_forms(now: Forms, forms: Forms) -> dict[str, tuple[ValueForm, ValueForm]]:
    """Return the fields whose forms differ from those of now, with both forms."""
    return {name: (form, now[name]) for name, form in forms.items() if now.get(name, form) != form}


def _unscaled(value: Decimal, form: ValueForm) -> str:
    number = int(value.scaleb(form.scale))
    return b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


def _units(nanoseconds: int) -> Write:
    return lambda value, form: value // nanoseconds


_INTEGERS = ("int8", "int16", "int32", "int64", "io.debezium.time.Year")
_TEXTS = ("string", "io.debezium.data.Enum", "io.debezium.data.EnumSet")
_DEBEZIUM_TIME, _CONNECT = "io.debezium.time", "org.apache.kafka.connect.data"
_WRITERS: Mapping[tuple[Kind, str], Write] = {
    **{(Kind.EXACT, name): lambda value, form: int(value) for name in _INTEGERS},
    (Kind.EXACT, DECIMAL): _unscaled,
    (Kind.EXACT, NUMBER_TEXT): lambda value, form: f"{value:f}",
    **{(Kind.TEXT, name): lambda value, form: value for name in _TEXTS},
    (Kind.DATETIME, f"{_DEBEZIUM_TIME}.Date"): _units(86_400 * 10**9),
    (Kind.DATETIME, f"{_CONNECT}.Date"): _units(86_400 * 10**9),
    (Kind.DATETIME, f"{_DEBEZIUM_TIME}.Timestamp"): _units(10**6),
    (Kind.DATETIME, f"{_DEBEZIUM_TIME}.MicroTimestamp"): _units(1000),
    (Kind.DATETIME, f"{_DEBEZIUM_TIME}.NanoTimestamp"): _units(1),
    (Kind.DATETIME, f"{_CONNECT}.Timestamp"): _units(10**6),
    (Kind.TIME, f"{_DEBEZIUM_TIME}.Time"): _units(10**6),
    (Kind.TIME, f"{_DEBEZIUM_TIME}.MicroTime"): _units(1000),
    (Kind.TIME, f"{_DEBEZIUM_TIME}.NanoTime"): _units(1),
    (Kind.TIME, f"{_CONNECT}.Time"): _units(10**6),
}
