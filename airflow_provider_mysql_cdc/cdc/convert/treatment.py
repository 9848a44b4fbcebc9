"""What column rules mean for one column: schema parameters, and how its values change.

Source: ``ColumnMappers``, ``MaskStrings``, ``TruncateColumn`` and ``PropagateSourceMetadataToSchemaParameter`` of
Debezium 3.6.1. Only row images are treated; keys show columns as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from airflow_provider_mysql_cdc.cdc.convert.connect_types import (
    TypeModes,
    connect_type,
    declared_length,
    declared_scale,
    jdbc_type,
    type_expression,
)
from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.column_rule import (
    ColumnRule,
    ColumnTreatment,
    RuleKind,
    ValueChange,
    ValueChangeKind,
)
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table

log = logging.getLogger(__name__)

_HIDING_RULES = frozenset({RuleKind.MASK, RuleKind.HASH, RuleKind.HASH_V2})
_PROPERTIES = {
    RuleKind.TRUNCATE: "column.truncate.to",
    RuleKind.MASK: "column.mask.with",
    RuleKind.SOURCE_TYPE: "column.propagate.source.type (or datatype.propagate.source.type)",
    RuleKind.HASH: "column.mask.hash",
    RuleKind.HASH_V2: "column.mask.hash.v2",
}

# java.sql.Types CHAR, VARCHAR, NCHAR and NVARCHAR: the ones MySQL columns have among those that are masked.
_CHARACTER_JDBC_TYPES = frozenset({1, 12, -15, -9})


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


def column_treatment(
    table: Table, column: Column, rule: ColumnRule, modes: TypeModes, *, comments: bool
) -> ColumnTreatment:
    """Return the treatment of a column that a rule demands.

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


def column_treatments(
    table: Table, rules_of: Callable[[Column], Sequence[ColumnRule]], modes: TypeModes, *, comments: bool
) -> tuple[tuple[str, ColumnTreatment], ...]:
    """Return the treatments of a table's columns by column name.

    Args:
        table: The table.
        rules_of: Returns the rules for a column, of which the first applies.
        modes: The type settings.
        comments: Whether comments are kept.
    """
    ruled = [(column, rules) for column in table.columns if (rules := rules_of(column))]
    for column, rules in ruled:
        _warn_not_hidden(f"{table.id}.{column.name}", rules)
    return tuple(
        (column.name, column_treatment(table, column, rules[0], modes, comments=comments)) for column, rules in ruled
    )


def _warn_not_hidden(where: str, rules: Sequence[ColumnRule]) -> None:
    """Warn that a rule which hides a column does not apply, because another rule comes before it."""
    hiding = next((rule for rule in rules if rule.kind in _HIDING_RULES), None)
    if hiding is not None and rules[0].kind not in _HIDING_RULES:
        log.warning(
            "%s has %s and %s: as in Debezium, only the first applies, so the column is not hidden; to hide it, remove "
            "it from %s, or use column.exclude.list",
            where,
            _PROPERTIES[rules[0].kind],
            _PROPERTIES[hiding.kind],
            _PROPERTIES[rules[0].kind],
        )


def _truncation(column: Column, rule: ColumnRule, modes: TypeModes) -> ColumnTreatment:
    length = declared_length(column)
    if length is not None and length <= rule.length:
        return ColumnTreatment()
    kind = connect_type(column, modes)
    change = {"string": ValueChangeKind.TRUNCATE_TEXT, "bytes": ValueChangeKind.TRUNCATE_BYTES}.get(kind.type)
    if change is ValueChangeKind.TRUNCATE_BYTES and kind.name is not None:
        # Numbers and bit strings are bytes in JSON only.
        change = None
    parameters = (("truncateLength", str(rule.length)),)
    return ColumnTreatment(parameters, ValueChange(change, rule.length) if change else None)


def _mask(table: Table, column: Column, rule: ColumnRule, modes: TypeModes) -> ValueChange | None:
    where = f"{table.id}.{column.name}"
    if jdbc_type(column) not in _CHARACTER_JDBC_TYPES:
        log.warning(
            "%s is %s, which is not a character type: its mask has no effect and its values are visible; "
            "to hide them, use column.exclude.list",
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
        return ValueChange(ValueChangeKind.CONSTANT, text="*" * rule.length)
    kind = ValueChangeKind.HASH if rule.kind is RuleKind.HASH else ValueChangeKind.HASH_V2
    return ValueChange(kind, declared_length(column) or None, algorithm=rule.algorithm, salt=rule.salt)
