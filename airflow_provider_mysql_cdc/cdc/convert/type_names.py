"""How schema-change events name column types: type expression, JDBC type number, length, character set."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.model.mysql_types import type_words
from airflow_provider_mysql_cdc.cdc.model.table import Column

_WITHOUT_LENGTH = frozenset(("BOOL", "BOOLEAN"))


def type_word(column: Column) -> str:
    """Return the type word as the DDL wrote it."""
    return column.declared_type or column.type_name


def type_expression(column: Column) -> str:
    """Return the type word followed by UNSIGNED and ZEROFILL where set; INT SIGNED UNSIGNED is unsigned."""
    word = type_word(column).removesuffix(" SIGNED") + " UNSIGNED" if column.unsigned else type_word(column)
    zerofill = " ZEROFILL" if column.zerofill else ""
    return f"{word}{zerofill}"


def jdbc_type(column: Column) -> int:
    """Return the number of java.sql.Types."""
    words = type_words(type_word(column))
    return column.mysql_type.jdbc_type if words is None else words.jdbc_type


def declared_length(column: Column) -> int | None:
    """Return the length that schema changes show; a SET shows the width of all its members' commas and names as 1.

    Debezium writes 1 for NCHAR without a length, and none for CHAR.
    """
    if column.type_name == "SET":
        return max(0, 2 * len(column.enum_values) - 1)
    if column.length is not None and type_word(column) not in _WITHOUT_LENGTH:
        return column.length
    if column.type_name == "CHAR" and _is_national(column):
        return column.mysql_type.default_length
    return column.mysql_type.schema_change_length


def declared_scale(column: Column) -> int | None:
    """Return the scale that schema changes show."""
    return 0 if column.type_name == "DECIMAL" and column.scale is None else column.scale


def charset_name(column: Column) -> str | None:
    """Return the character set that schema changes show: as written, and ``utf8`` for NATIONAL types."""
    if column.charset == "binary":
        return None
    if column.charset == "utf8mb3" and _is_national(column):
        return "utf8"
    return column.declared_charset or column.charset


def _is_national(column: Column) -> bool:
    words = type_words(type_word(column))
    return words is not None and words.national
