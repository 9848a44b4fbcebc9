"""A DDL parser that is wrong about a table, in the stream and when the schema history is replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.ddl.apply import DdlResult, apply_ddl
from airflow_provider_mysql_cdc.cdc.drain import ddl_events
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.schema import history_record

Damage = Callable[[Table], Table]


def break_parser(monkeypatch: pytest.MonkeyPatch, word: str, damages: Mapping[TableId, Damage]) -> None:
    """Let statements with a word leave wrong structures of some tables."""

    def apply_wrongly(state: Any, sql: str, *args: Any) -> DdlResult:
        result = apply_ddl(state, sql, *args)
        wrong = {
            change.id: damages[change.id](change.table)
            for change in result.changes
            if word in sql and change.id in damages and change.table is not None
        }
        changes = tuple(replace(c, table=wrong[c.id]) if c.id in wrong else c for c in result.changes)
        damaged_state = result.state
        for table in wrong.values():
            damaged_state = damaged_state.with_table(table)
        return replace(result, state=damaged_state, changes=changes)

    for module in (ddl_events, history_record):
        monkeypatch.setattr(module, "apply_ddl", apply_wrongly)


def placed(table: Table, *columns: Column) -> Table:
    """Return a table with these columns in this order."""
    return replace(table, columns=tuple(replace(column, position=i) for i, column in enumerate(columns, 1)))
