"""The type table of the protocol: a column's type name in TiDB, and its Avro type.

Source: AVRO-16 to AVRO-53; where the seed is silent (VECTOR, the escape in ``allowed``), TiCDC 8.5's
``pkg/sink/codec/avro``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from airflow_provider_mysql_cdc.cdc.errors import SchemaError
from airflow_provider_mysql_cdc.cdc.model.mysql_types import Family, mysql_type
from airflow_provider_mysql_cdc.cdc.model.table import Column

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


def _plain(column: Column, modes: TicdcModes) -> TidbType:
    return TidbType(column.mysql_type.tidb_type, column.mysql_type.tidb_avro_type)


def _integer(column: Column, modes: TicdcModes) -> TidbType:
    row = column.mysql_type
    if not column.unsigned:
        return _plain(column, modes)
    as_text = row.width == 8 and modes.bigint_unsigned == "string"
    avro_type = "string" if as_text else row.unsigned_tidb_avro_type or row.tidb_avro_type
    return TidbType(f"{row.tidb_type} UNSIGNED", avro_type)


def _decimal(column: Column, modes: TicdcModes) -> TidbType:
    row = column.mysql_type
    if modes.decimal == "string":
        return TidbType(row.tidb_type, "string")
    precision = _DEFAULT_DECIMAL[0] if column.length is None else column.length
    scale = _DEFAULT_DECIMAL[1] if column.scale is None else column.scale
    members = {"logicalType": "decimal", "precision": precision, "scale": scale}
    return TidbType(row.tidb_type, row.tidb_avro_type, members=members)


def _character(column: Column, modes: TicdcModes) -> TidbType:
    row = column.mysql_type
    row = mysql_type(row.binary_type) if column.charset == "binary" else row
    return TidbType(row.tidb_type, row.tidb_avro_type)


def _bit(column: Column, modes: TicdcModes) -> TidbType:
    return replace(_plain(column, modes), parameters={"length": str(column.length or 1)})


def _enum_or_set(column: Column, modes: TicdcModes) -> TidbType:
    allowed = ",".join(member.replace(",", "\\,") for member in column.enum_values)
    return replace(_plain(column, modes), parameters={"allowed": allowed})


_BUILDERS: dict[Family, _TypeBuilder] = {
    Family.INTEGER: _integer,
    Family.DECIMAL: _decimal,
    Family.BIT: _bit,
    Family.TEXT: _character,
    Family.ENUM: _enum_or_set,
    Family.SET: _enum_or_set,
}
"""Families whose types depend on modes and on other properties of the column."""


def tidb_type(column: Column, modes: TicdcModes) -> TidbType:
    """Return the type of a column.

    Args:
        column: The column.
        modes: How values are written.

    Raises:
        SchemaError: TiDB has no such type (spatial ones).
    """
    if not column.mysql_type.tidb_type:
        raise SchemaError(
            f"column {column.name} has type {column.type_name}, which TiCDC's Avro protocol does not know",
            remedy="exclude the column (column.exclude.list), or write Debezium events (value.format=debezium)",
        )
    return _BUILDERS.get(column.family, _plain)(column, modes)
