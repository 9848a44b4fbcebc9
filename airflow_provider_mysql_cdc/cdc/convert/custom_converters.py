"""Custom converters for columns whose default mapping does not suit (TYPE-65); docs/custom-converters.md.

``CustomConverter`` lists the methods that such a class must have; it need not inherit from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_provider_mysql_cdc.cdc.config.column_rules import IMPORTABLE_HINT, LoadedConverter
from airflow_provider_mysql_cdc.cdc.decode.codegen.custom_values import JSON_WRITERS
from airflow_provider_mysql_cdc.cdc.errors import ConfigError
from airflow_provider_mysql_cdc.cdc.model.column_rule import CustomColumn
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """Describe a column to a converter.

    Args:
        database: Database name.
        table: Table name.
        column: The column: name, type, length, nullability and more.
    """

    database: str
    table: str
    column: Column

    def __str__(self) -> str:
        return f"{self.database}.{self.table}.{self.column.name}"


@dataclass(frozen=True, slots=True)
class Conversion:
    """Say how a column is represented.

    Args:
        schema: Kafka Connect schema: ``type`` (boolean, int8, int16, int32, int64, float, double, string or bytes) and,
            where wanted, ``name``, ``version``, ``parameters``, ``doc`` and ``optional``. A column that may be NULL is
            optional anyway.
        convert: From the plain value (``decode.custom`` lists them by column type), or None for NULL, to a value of the
            declared type or None. It must return equal results for equal values: rows are read again after a failure,
            and by snapshot and stream.
    """

    schema: Mapping[str, Any]
    convert: Callable[[Any], object]


class CustomConverter(Protocol):
    """Choose columns and say how they are represented. One object serves all tables of a process."""

    def configure(self, properties: Mapping[str, str]) -> None:
        """Receive the converter's own properties, by name without ``<converter>.``; called once, before all else."""

    def converter_for(self, column: ColumnInfo) -> Conversion | None:
        """Return how a column is represented, or None to leave it to the next converter or the default mapping.

        It is called for every column of every captured table, again when a table's structure changes.
        """


def custom_column(converter: LoadedConverter, table: Table, column: Column) -> CustomColumn | None:
    """Return a converter's checked description of a column, or None when it does not convert the column.

    Args:
        converter: The converter.
        table: The table.
        column: The column.

    Raises:
        ConfigError: It raised, or its answer cannot be used.
    """
    info = ColumnInfo(table.id.db, table.id.table, column)
    try:
        conversion = converter.instance.converter_for(info)
    except Exception as error:
        raise _converter_error(converter, info, f"converter_for raised {type(error).__name__}: {error}") from error
    if conversion is None:
        return None
    try:
        return _to_custom_column(converter, column, conversion)
    except (TypeError, ValueError, AttributeError) as error:
        raise _converter_error(converter, info, str(error)) from error


_MEMBERS = {
    "name": str,
    "version": int,
    "doc": str,
    "optional": bool,
    "parameters": Mapping,
}


def _to_custom_column(converter: LoadedConverter, column: Column, conversion: Conversion) -> CustomColumn:
    if not isinstance(conversion, Conversion):
        raise TypeError(f"converter_for returned {type(conversion).__name__} in place of a Conversion or None")
    if not callable(conversion.convert):
        raise TypeError("the Conversion's convert cannot be called")
    if not isinstance(conversion.schema, Mapping):
        raise TypeError("the Conversion's schema is not a mapping")
    schema = dict(conversion.schema)
    literal = schema.pop("type", None)
    if literal not in JSON_WRITERS:
        raise ValueError(f"the schema's type is {literal!r}; there are {', '.join(JSON_WRITERS)}")
    for member, value in schema.items():
        expected = _MEMBERS.get(member)
        if expected is None:
            raise ValueError(f"the schema has {member!r}; there are type, {', '.join(_MEMBERS)}")
        if value is not None and (not isinstance(value, expected) or (expected is int and isinstance(value, bool))):
            raise TypeError(f"the schema's {member} is {type(value).__name__}, not {expected.__name__}")
    parameters = tuple((str(k), str(v)) for k, v in (schema.get("parameters") or {}).items())
    return CustomColumn(
        column=column.name,
        label=f"converter {converter.name} ({converter.path})",
        convert=conversion.convert,
        type=literal,
        name=schema.get("name"),
        version=schema.get("version"),
        parameters=parameters,
        doc=schema.get("doc"),
        optional=column.nullable or bool(schema.get("optional")),
    )


def _converter_error(converter: LoadedConverter, info: ColumnInfo, why: str) -> ConfigError:
    return ConfigError(
        f"{converter.name}.type (value {converter.path!r}): the converter cannot be used for column {info}",
        where=f"{converter.name}.type",
        why=why,
        remedy=f"Correct the converter (docs/custom-converters.md); {IMPORTABLE_HINT}",
    )
