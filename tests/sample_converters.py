"""Converters that tests name in ``converters``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from airflow_provider_mysql_cdc.cdc.convert.custom_converters import ColumnInfo, Conversion


class IsbnConverter:
    """ISBN texts as numbers, in the columns that ``selector`` matches."""

    def configure(self, properties: Mapping[str, str]) -> None:
        self._columns = re.compile(properties.get("selector", ".*isbn"))
        self._schema = {"type": "int64", "name": properties.get("schema.name", "isbn"), "version": 2}

    def converter_for(self, column: ColumnInfo) -> Conversion | None:
        if column.column.type_name not in ("CHAR", "VARCHAR") or not self._columns.fullmatch(str(column)):
            return None
        return Conversion(self._schema, self._number)

    @staticmethod
    def _number(value: str | None) -> int | None:
        return None if value is None else int(value.replace("-", ""))


class ReprConverter:
    """Every column but those in ``skip`` as Python's text of the plain value it was given."""

    def configure(self, properties: Mapping[str, str]) -> None:
        self._skip = properties.get("skip", "").split(",")

    def converter_for(self, column: ColumnInfo) -> Conversion | None:
        return None if column.column.name in self._skip else Conversion({"type": "string"}, repr)


class Programmed:
    """Do what the properties say: ``answer``, ``schema`` and ``convert`` (of ``v``) are Python expressions."""

    def configure(self, properties: Mapping[str, str]) -> None:
        if "refuse" in properties:
            raise KeyError(properties["refuse"])
        self._properties = dict(properties)

    def converter_for(self, column: ColumnInfo) -> Any:
        if column.column.name not in self._properties.get("columns", "a").split(","):
            return None
        names = {"column": column.column, "Decimal": Decimal, "Conversion": Conversion}
        if "answer" in self._properties:
            return eval(self._properties["answer"], names)
        schema = eval(self._properties.get("schema", "{'type': 'string'}"), names)
        return Conversion(schema, eval("lambda v: " + self._properties["convert"], names))


class NotAConverter:
    """Lacks what a converter must have."""

    def configure(self, properties: Mapping[str, str]) -> None:
        """Take anything."""
