"""The tables of a pipeline: one row each, whatever notation the ledger, the history and the metrics use."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.plugins.pipeline_tables import named_tables, with_structures

pytestmark = pytest.mark.quick


def test_a_name_that_needs_encoding_has_one_row_with_counts_verdict_and_structure() -> None:
    tables = [TableId("shop", "bestellung-ä"), TableId("a.b", "c d"), TableId("shop", "orders")]
    metrics = {
        "snapshot": {"RowsScanned": {str(table): 4 for table in tables}},
        "streaming": {"CapturedTables": [*map(str, tables), "shop.100%"]},
    }
    counted = [
        *({"table": table.path(), "records": 3, "verdict": None} for table in tables),
        *({"table": str(table), "records": 0, "verdict": "equal"} for table in tables),
    ]
    structures = {table.path(): SimpleNamespace(offset=7, ts_ms=1) for table in tables}
    found = {"tables": counted, "structures": structures}
    rows = with_structures(named_tables({"status": {"metrics": metrics}}, found), found)
    shown = {row["name"]: (row["table"], row["records"], row["rows_read"], row["verdict"]) for row in rows}
    assert len(rows) == 4
    assert shown == {str(t): (t.path(), 3, 4, "equal") for t in tables} | {"shop.100%": ("shop.100%25", 0, None, None)}
    assert [row["name"] for row in rows if row["structure"] is None] == ["shop.100%"]
