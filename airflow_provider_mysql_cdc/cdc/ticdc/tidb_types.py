"""The type table of the protocol: a column's type name in TiDB, and its Avro type.

Source: AVRO-16 to AVRO-53; where the seed is silent (VECTOR, the escape in ``allowed``), TiCDC 8.5's
``pkg/sink/codec/avro``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.table import BINARY_TYPES, CHARACTER_TYPES, Column

_NO_MEMBERS: Mapping[str, Any] = MappingProxyType({})
# Precision and scale of a DECIMAL without any.
_DEFAULT_DECIMAL = 10, 0


@dataclass(frozen=True, slots=True)
class TicdcModes:
    """Hold how values are written.

    Args:
        decimal: ``avro-decimal-handling-mode``: precise or string (AVRO-50).
        bigint_unsigned: ``avro-bigint-unsigned-handling-mode``: long or string (AVRO-51).
        extension: ``enable-tidb-extension``: values end in operation and commit time (AVRO-09).
        namespace: First part of Avro namespaces; in TiCDC the changefeed's namespace.
    """

    decimal: str = "precise"
    bigint_unsigned: str = "long"
    extension: bool = False
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class TidbType:
    """Describe a column's type.

    Args:
        name: ``tidb_type``.
        avro_type: Avro type.
        parameters: Members of ``connect.parameters`` besides ``tidb_type``.
        members: Further members of the type (the logical type of a decimal).
    """

    name: str
    avro_type: str
    parameters: Mapping[str, str] = field(default_factory=lambda: _NO_MEMBERS)
    members: Mapping[str, Any] = field(default_factory=lambda: _NO_MEMBERS)


_TypeBuilder = Callable[[Column, TicdcModes], TidbType]


def _fixed_type(name: str, avro: str) -> _TypeBuilder:
    return lambda column, modes: TidbType(name, avro)


def _integer(column: Column, modes: TicdcModes) -> TidbType:
    wide = column.unsigned and column.type_name == "INT"
    return TidbType("INT UNSIGNED" if column.unsigned else "INT", "long" if wide else "int")


def _bigint(column: Column, modes: TicdcModes) -> TidbType:
    if not column.unsigned:
        return TidbType("BIGINT", "long")
    return TidbType("BIGINT UNSIGNED", "string" if modes.bigint_unsigned == "string" else "long")


def _decimal(column: Column, modes: TicdcModes) -> TidbType:
    if modes.decimal == "string":
        return TidbType("DECIMAL", "string")
    precision = _DEFAULT_DECIMAL[0] if column.length is None else column.length
    scale = _DEFAULT_DECIMAL[1] if column.scale is None else column.scale
    members = {"logicalType": "decimal", "precision": precision, "scale": scale}
    return TidbType("DECIMAL", "bytes", members=members)


def _character(column: Column, modes: TicdcModes) -> TidbType:
    return TidbType("BLOB", "bytes") if column.charset == "binary" else TidbType("TEXT", "string")


def _bit(column: Column, modes: TicdcModes) -> TidbType:
    return TidbType("BIT", "bytes", {"length": str(column.length or 1)})


def _enum_or_set(column: Column, modes: TicdcModes) -> TidbType:
    allowed = ",".join(member.replace(",", "\\,") for member in column.enum_values)
    return TidbType(column.type_name, "string", {"allowed": allowed})


_TYPES: dict[str, _TypeBuilder] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "MEDIUMINT", "INT"), _integer),
    "BIGINT": _bigint,
    "DECIMAL": _decimal,
    "FLOAT": _fixed_type("FLOAT", "double"),
    "DOUBLE": _fixed_type("DOUBLE", "double"),
    "BIT": _bit,
    **dict.fromkeys(CHARACTER_TYPES, _character),
    **dict.fromkeys(BINARY_TYPES, _fixed_type("BLOB", "bytes")),
    **{name: _fixed_type(name, "string") for name in ("DATE", "DATETIME", "TIMESTAMP", "TIME", "JSON")},
    "YEAR": _fixed_type("YEAR", "int"),
    **dict.fromkeys(("ENUM", "SET"), _enum_or_set),
    "VECTOR": _fixed_type("TiDBVECTORFloat32", "string"),
}


def tidb_type(column: Column, modes: TicdcModes) -> TidbType:
    """Return the type of a column.

    Args:
        column: The column.
        modes: How values are written.

    Raises:
        SchemaError: TiDB has no such type (spatial ones).
    """
    build = _TYPES.get(column.type_name)
    if build is None:
        raise SchemaError(
            f"column {column.name} has type {column.type_name}, which TiCDC's Avro protocol does not know",
            remedy="exclude the column (column.exclude.list), or write Debezium events (value.format=debezium)",
        )
    return build(column, modes)
