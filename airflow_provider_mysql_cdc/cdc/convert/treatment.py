"""What column rules mean for one column: schema parameters, and how its values change.

Source: ``ColumnMappers``, ``MaskStrings``, ``TruncateColumn`` and ``PropagateSourceMetadataToSchemaParameter`` of
Debezium 3.6.1. Only row images are treated; keys show columns as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.convert.connect_types import TypeModes, connect_type
from airflow_provider_mysql_cdc.cdc.convert.type_names import (
    declared_length,
    declared_scale,
    jdbc_type,
    type_expression,
)
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.column_rule import Change, ColumnRule, ColumnTreatment, RuleKind, ValueChange
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

log = logging.getLogger(__name__)

# java.sql.Types CHAR, VARCHAR, NCHAR and NVARCHAR: the ones MySQL columns have among those that are masked.
_CHARACTER = frozenset({1, 12, -15, -9})


def source_type_parameters(column: Column, *, comments: bool) -> tuple[tuple[str, str], ...]:
    """Return the parameters that describe a column's type at the source (COL-11, COL-12).

    Args:
        column: The column.
        comments: Whether comments are kept (``include.schema.comments``).
    """
    described = (
        ("type", type_expression(column)),
        ("length", declared_length(column)),
        ("scale", declared_scale(column)),
        ("comment", (column.comment or None) if comments else None),
        ("name", column.name),
    )
    return tuple((f"__debezium.source.column.{name}", str(value)) for name, value in described if value is not None)


def treatment(table: Table, column: Column, rule: ColumnRule, modes: TypeModes, *, comments: bool) -> ColumnTreatment:
    """Return what a rule means for a column.

    Args:
        table: The column's table, for messages.
        column: The column.
        rule: The rule.
        modes: The type settings.
        comments: Whether comments are kept.

    Raises:
        SchemaError: The column cannot be masked.
    """
    if rule.kind is RuleKind.SOURCE_TYPE:
        return ColumnTreatment(source_type_parameters(column, comments=comments))
    if rule.kind is RuleKind.TRUNCATE:
        return _truncation(column, rule, modes)
    return ColumnTreatment((("masked", "true"),), _mask(table, column, rule, modes))


def treatments(
    table: Table, rule_of: Callable[[Column], ColumnRule | None], modes: TypeModes, *, comments: bool
) -> tuple[tuple[str, ColumnTreatment], ...]:
    """Return the treatments of a table's columns by column name.

    Args:
        table: The table.
        rule_of: Gives the rule for a column.
        modes: The type settings.
        comments: Whether comments are kept.
    """
    found = ((column, rule_of(column)) for column in table.columns)
    return tuple(
        (column.name, treatment(table, column, rule, modes, comments=comments)) for column, rule in found if rule
    )


def _truncation(column: Column, rule: ColumnRule, modes: TypeModes) -> ColumnTreatment:
    length = declared_length(column)
    if length is not None and length <= rule.length:
        return ColumnTreatment()
    kind = connect_type(column, modes)
    change = {"string": Change.CUT_TEXT, "bytes": Change.CUT_BYTES}.get(kind.type)
    if change is Change.CUT_BYTES and kind.name is not None:
        # Numbers and bit strings are bytes in JSON only.
        change = None
    parameters = (("truncateLength", str(rule.length)),)
    return ColumnTreatment(parameters, ValueChange(change, rule.length) if change else None)


def _mask(table: Table, column: Column, rule: ColumnRule, modes: TypeModes) -> ValueChange | None:
    where = f"{table.id}.{column.name}"
    if jdbc_type(column) not in _CHARACTER:
        log.warning(
            "%s is %s, which is not a character type: a mask for it has no effect and its values are visible; "
            "to hide them use column.exclude.list",
            where,
            type_expression(column),
        )
        return None
    custom = modes.custom(column)
    if connect_type(column, modes).type != "string":
        raise SchemaError(
            f"column {where} holds {custom.type if custom else 'bytes'}, which cannot be masked as text",
            where=where,
            why=f"{custom.label} represents it as {custom.type}"
            if custom
            else "its character set is binary and binary.handling.mode is bytes",
            remedy="leave the column out with column.exclude.list, or choose another "
            + ("type in the converter" if custom else "binary.handling.mode"),
        )
    if rule.kind is RuleKind.MASK:
        return ValueChange(Change.CONSTANT, text="*" * rule.length)
    kind = Change.HASH if rule.kind is RuleKind.HASH else Change.HASH_V2
    return ValueChange(kind, declared_length(column) or None, algorithm=rule.algorithm, salt=rule.salt)
