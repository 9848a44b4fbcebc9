"""How schema-change events name column types: type expression, JDBC type number, length, character set."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.model.table import Column

# Numbers of java.sql.Types as Debezium's MySQL parser assigns them; words that DDL may use come before base types.
_JDBC_TYPES: dict[str, int] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT1", "INT2"), 5),
    **dict.fromkeys(("MEDIUMINT", "MIDDLEINT", "INT", "INTEGER", "INT3", "INT4", "YEAR"), 4),
    **dict.fromkeys(("BIGINT", "INT8"), -5),
    **dict.fromkeys(("BOOL", "BOOLEAN"), 16),
    **dict.fromkeys(("DECIMAL", "DEC", "FIXED"), 3),
    "NUMERIC": 2,
    "REAL": 7,
    **dict.fromkeys(("FLOAT", "FLOAT4"), 6),
    **dict.fromkeys(("DOUBLE", "DOUBLE PRECISION", "FLOAT8"), 8),
    "BIT": -7,
    **dict.fromkeys(("CHAR", "CHARACTER", "ENUM", "SET"), 1),
    **dict.fromkeys(
        ("VARCHAR", "CHARACTER VARYING", "CHAR VARYING", "VARCHARACTER", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"),
        12,
    ),
    **dict.fromkeys(("LONG", "LONG VARCHAR", "LONG CHARACTER VARYING", "LONG CHAR VARYING"), 12),
    **dict.fromkeys(("NATIONAL CHAR", "NATIONAL CHARACTER", "NCHAR"), -15),
    **dict.fromkeys(("NATIONAL VARCHAR", "NVARCHAR", "NCHAR VARCHAR", "NCHAR VARYING", "NATIONAL VARCHARACTER"), -9),
    **dict.fromkeys(("NATIONAL CHAR VARYING", "NATIONAL CHARACTER VARYING"), -9),
    "BINARY": -2,
    "VARBINARY": -3,
    **dict.fromkeys(("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "LONG VARBINARY"), 2004),
    "DATE": 91,
    "TIME": 92,
    "DATETIME": 93,
    "TIMESTAMP": 2014,
}
_OTHER_JDBC_TYPE = 1111
_NATIONAL_TYPES = frozenset(word for word, number in _JDBC_TYPES.items() if number in (-9, -15))
_DEFAULT_LENGTHS = {"DECIMAL": 10, "BIT": 1, "ENUM": 1}
_WITHOUT_LENGTH = frozenset(("BOOL", "BOOLEAN"))


def type_word(column: Column) -> str:
    """Return the type word as the DDL wrote it."""
    return column.declared_type or column.type_name


def type_expression(column: Column) -> str:
    """Return the type word followed by UNSIGNED and ZEROFILL where set."""
    unsigned = " UNSIGNED" if column.unsigned else ""
    zerofill = " ZEROFILL" if column.zerofill else ""
    return f"{type_word(column)}{unsigned}{zerofill}"


def jdbc_type(column: Column) -> int:
    """Return the number of java.sql.Types."""
    number = _JDBC_TYPES.get(type_word(column).removesuffix(" SIGNED"))
    return _JDBC_TYPES.get(column.type_name, _OTHER_JDBC_TYPE) if number is None else number


def declared_length(column: Column) -> int | None:
    """Return the length that schema changes show; a SET shows the width of all its members' commas and names as 1."""
    if column.type_name == "SET":
        return max(0, 2 * len(column.enum_values) - 1)
    if column.length is None or type_word(column) in _WITHOUT_LENGTH:
        return _DEFAULT_LENGTHS.get(column.type_name)
    return column.length


def declared_scale(column: Column) -> int | None:
    """Return the scale that schema changes show."""
    return 0 if column.type_name == "DECIMAL" and column.scale is None else column.scale


def charset_name(column: Column) -> str | None:
    """Return the character set that schema changes show; NATIONAL types have MySQL's historic ``utf8``."""
    if column.charset == "binary":
        return None
    return "utf8" if column.charset and type_word(column) in _NATIONAL_TYPES else column.charset
