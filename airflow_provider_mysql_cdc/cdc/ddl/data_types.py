"""The words by which statements name data types, and the type that each stands for.

Source: MySQL 9.7 manual, chapter "Data Types" and "Using Data Types from Other Database Engines".
"""

from __future__ import annotations

# fmt: off
_BASE_TYPES = (
    "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "DECIMAL", "FLOAT", "DOUBLE", "BIT", "CHAR",
    "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "BINARY", "VARBINARY", "TINYBLOB", "BLOB",
    "MEDIUMBLOB", "LONGBLOB", "DATE", "TIME", "DATETIME", "TIMESTAMP", "YEAR", "ENUM", "SET", "JSON",
    "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON",
    "GEOMETRYCOLLECTION", "VECTOR",
)
# fmt: on
BASE_TYPE_BY_WORDS: dict[str, str] = {
    **{name: name for name in _BASE_TYPES},
    "INT1": "TINYINT",
    "INT2": "SMALLINT",
    "INT3": "MEDIUMINT",
    "MIDDLEINT": "MEDIUMINT",
    "INT4": "INT",
    "INTEGER": "INT",
    "INT8": "BIGINT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "FIXED": "DECIMAL",
    "FLOAT4": "FLOAT",
    "FLOAT8": "DOUBLE",
    "DOUBLE PRECISION": "DOUBLE",
    "REAL": "DOUBLE",
    "BOOL": "TINYINT",
    "BOOLEAN": "TINYINT",
    "SERIAL": "BIGINT",
    "CHARACTER": "CHAR",
    "CHAR VARYING": "VARCHAR",
    "CHARACTER VARYING": "VARCHAR",
    "VARCHARACTER": "VARCHAR",
    "NCHAR": "CHAR",
    "NATIONAL CHAR": "CHAR",
    "NATIONAL CHARACTER": "CHAR",
    "NCHAR VARYING": "VARCHAR",
    "NCHAR VARCHAR": "VARCHAR",
    "NVARCHAR": "VARCHAR",
    "NATIONAL VARCHAR": "VARCHAR",
    "NATIONAL VARCHARACTER": "VARCHAR",
    "NATIONAL CHAR VARYING": "VARCHAR",
    "NATIONAL CHARACTER VARYING": "VARCHAR",
    "LONG": "MEDIUMTEXT",
    "LONG VARCHAR": "MEDIUMTEXT",
    "LONG VARCHARACTER": "MEDIUMTEXT",
    "LONG CHAR VARYING": "MEDIUMTEXT",
    "LONG CHARACTER VARYING": "MEDIUMTEXT",
    "LONG VARBINARY": "MEDIUMBLOB",
    "GEOMCOLLECTION": "GEOMETRYCOLLECTION",
}
"""Base type by the words of a type."""
