"""Values that a type of the contract cannot hold are null, and each of them is noted once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.cases import for_each
from kit.decode_builder import column, one_text, one_value, table

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import (
    NULLED,
    DecoderOptions,
    NulledValue,
    nulled_warning,
)
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnTreatment, ValueChange, ValueChangeKind
from airflow_provider_mysql_cdc.cdc.model.table import Column

LONG_TIME = (0x800000 + (100 << 12 | 30 << 6 | 5)).to_bytes(3, "big")
"""100:30:05 as a TIME2."""
LAST_MOMENT = (1 << 39 | (9999 * 13 + 12) << 22 | 31 << 17 | 23 << 12 | 59 << 6 | 59).to_bytes(5, "big")
"""9999-12-31 23:59:59 as a DATETIME2."""
CASES: dict[str, tuple[Column, tuple[int, int], bytes, str, str]] = {
    "connect": (column("c", "TIME"), (wt.TIME2, 0), LONG_TIME, "100:30:05", "connect"),
    "isostring": (column("c", "TIME"), (wt.TIME2, 0), LONG_TIME, "100:30:05", "isostring"),
    "old format": (
        column("c", "TIME"), (wt.TIME, 0), (-1003005).to_bytes(3, "little", signed=True), "-100:30:05", "connect",
    ),
    "nanoseconds": (column("c", "DATETIME"), (wt.DATETIME2, 0), LAST_MOMENT, "9999-12-31 23:59:59", "nanoseconds"),
}  # fmt: skip


@pytest.mark.req("TYPE-46", "TYPE-47")
@for_each("case", CASES)
def test_each_value_that_becomes_null_is_noted(case: str) -> None:
    col, wire, data, shown, mode = CASES[case]
    options = DecoderOptions(time_mode=mode)
    NULLED.take()
    for _ in range(2):  # and not once for all times
        assert one_value(col, wire, data, options) == "null"
        assert {*NULLED.take()} == {NulledValue("c", shown, mode)}
        assert one_text(col, shown.encode(), options) == "null"
        assert {*NULLED.take()} == {NulledValue("c", shown, mode)}


@pytest.mark.req("TYPE-46", "TYPE-47")
@for_each("case", CASES)
def test_a_row_fails_where_a_default_stands_for_null(case: str) -> None:
    """It is another value, which no reader could tell from the row's."""
    col, wire, data, shown, mode = CASES[case]
    col, default = replace(col, has_default=True, default="2000-01-02"), '"x"' if mode == "isostring" else "7"
    options = DecoderOptions(time_mode=mode, replace_null_with_default=True)
    NULLED.take()
    with pytest.raises(ValueDecodeError, match=f"the default {default} would stand in its place"):
        one_value(col, wire, data, options, default)
    with pytest.raises(ValueDecodeError, match=f"the default {default} would stand in its place"):
        one_text(col, shown.encode(), options, default)
    assert NULLED.take() == []
    assert one_value(col, wire, None, options, default) == default
    assert one_value(col, wire, data, options) == "null"


def test_a_value_that_is_null_or_fits_is_not_noted() -> None:
    options = DecoderOptions(time_mode="isostring")
    NULLED.take()
    assert one_text(column("c", "TIME"), None, options) == "null"
    assert [one_text(column("c", "TIME"), text, options) for text in (b"00:00:00", b"23:59:59")] == [
        '"00:00:00Z"',
        '"23:59:59Z"',
    ]
    assert one_text(column("c", "TIME"), b"24:00:00", DecoderOptions(time_mode="connect")) == "86400000"
    assert NULLED.take() == []


def test_a_value_that_events_do_not_show_is_not_logged() -> None:
    hidden = (("c", ColumnTreatment(change=ValueChange(ValueChangeKind.HASH, algorithm="sha256"))),)
    NULLED.take()
    one_text(column("c", "TIME"), b"100:30:05", DecoderOptions(time_mode="connect", treatments=hidden))
    (value,) = {*NULLED.take()}
    assert value == NulledValue("c", "", "connect")
    line = nulled_warning(table(column("c", "TIME")).id, value, "binlog.000001:4")
    assert line.startswith("WARNING: the value of column c of table db.t is null in its event (binlog.000001:4)")
