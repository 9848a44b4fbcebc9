"""What a verification's report must not show: values of masked and hashed columns, or any values at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.model.column_rule import RuleKind
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import Example, TableVerdict, VerifyResult

HIDDEN_VALUE = "***"
_HIDING_RULES = frozenset({RuleKind.MASK, RuleKind.HASH, RuleKind.HASH_V2})

IsHidden = Callable[[str], bool]
"""Says of a column of one table whether its values are hidden."""


def hide_values(cfg: ConnectorConfig, result: VerifyResult) -> VerifyResult:
    """Return a result without the values that its report must not show.

    Keys of records are never masked in the topic (``ColumnTreatment``), so a masked column is hidden in them here.

    Args:
        cfg: The connector's configuration, with the columns' rules.
        result: The result.
    """
    return replace(result, tables=hide_in_verdicts(cfg, result.tables, show_values=result.request.show_values))


def hide_in_verdicts(
    cfg: ConnectorConfig, verdicts: Iterable[TableVerdict], *, show_values: bool = True
) -> tuple[TableVerdict, ...]:
    """Return verdicts without the values of masked and hashed columns.

    Args:
        cfg: The connector's configuration, with the columns' rules.
        verdicts: The verdicts.
        show_values: Whether values of other columns are shown; those of keys always are.
    """
    return tuple(_hide_in_table(each, _column_test(cfg, _table_of(each)), show_values) for each in verdicts)


def hide_in_row(cfg: ConnectorConfig, table: TableId, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without the values of masked and hashed columns.

    Args:
        cfg: The connector's configuration, with the columns' rules.
        table: The row's table.
        row: Values by column.
    """
    return _hide_in_row(row, _column_test(cfg, table))


def _column_test(cfg: ConnectorConfig, table: TableId) -> IsHidden:
    rules_by_column: dict[str, bool] = {}

    def is_hidden(column: str) -> bool:
        if column not in rules_by_column:
            # The type of a column decides only about parameters of its schema.
            rules = cfg.column_rules(table, column, "")
            rules_by_column[column] = any(rule.kind in _HIDING_RULES for rule in rules)
        return rules_by_column[column]

    return is_hidden if cfg.families.columns.rules else lambda _: False


def _table_of(verdict: TableVerdict) -> TableId:
    db, _, table = verdict.table.partition(".")
    return TableId(db, table)


def _hide_in_table(verdict: TableVerdict, is_hidden: IsHidden, show_values: bool) -> TableVerdict:
    return replace(verdict, examples=tuple(_hide_in_example(e, is_hidden, show_values) for e in verdict.examples))


def _hide_in_example(example: Example, is_hidden: IsHidden, show_values: bool) -> Example:
    def visible(row: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return None if row is None or not show_values else _hide_in_row(row, is_hidden)

    return replace(
        example,
        key=_hide_in_row(example.key, is_hidden),
        table_row=visible(example.table_row),
        topic_row=visible(example.topic_row),
    )


def _hide_in_row(row: Mapping[str, Any], is_hidden: IsHidden) -> dict[str, Any]:
    return {column: HIDDEN_VALUE if is_hidden(column) else value for column, value in row.items()}
