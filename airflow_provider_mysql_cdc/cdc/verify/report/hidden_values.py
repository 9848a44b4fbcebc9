"""What a verification's report must not show: values of masked and hashed columns, or any values at all.

Keys of records are never masked in the topic (``ColumnTreatment``), so a masked column is hidden in them here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.column_rule import RuleKind
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import Example, TableVerdict, VerifyResult

HIDDEN_VALUE = "***"
_HIDING_RULES = frozenset({RuleKind.MASK, RuleKind.HASH, RuleKind.HASH_V2})


def hide_values(cfg: ConnectorConfig, result: VerifyResult) -> VerifyResult:
    """Return a result without the values that its report must not show."""
    show = result.request.show_values
    return replace(result, tables=tuple(hide_in_verdict(cfg, each, show_values=show) for each in result.tables))


def hide_in_verdict(cfg: ConnectorConfig, verdict: TableVerdict, *, show_values: bool = True) -> TableVerdict:
    """Return a verdict without the values of masked and hashed columns, and of others if they are not shown.

    Those of keys always are.
    """
    db, _, table = verdict.table.partition(".")

    def visible(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return None if row is None else hide_in_row(cfg, TableId(db, table), row)

    def hide_in(example: Example) -> Example:
        rows = (example.table_row, example.topic_row) if show_values else (None, None)
        table_row, topic_row = map(visible, rows)
        return replace(
            example, key=hide_in_row(cfg, TableId(db, table), example.key), table_row=table_row, topic_row=topic_row
        )

    return replace(verdict, examples=tuple(map(hide_in, verdict.examples)))


def hide_in_row(cfg: ConnectorConfig, table: TableId, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without the values of masked and hashed columns."""
    return {column: HIDDEN_VALUE if _is_hidden(cfg, table, column) else value for column, value in row.items()}


def _is_hidden(cfg: ConnectorConfig, table: TableId, column: str) -> bool:
    # The type of a column decides only about parameters of its schema.
    return any(rule.kind in _HIDING_RULES for rule in cfg.column_rules(table, column, ""))
