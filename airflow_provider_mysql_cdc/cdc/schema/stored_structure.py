"""A table's structure as JSON, and what a full description holds that no statement can express."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from airflow_provider_mysql_cdc.cdc.ddl.state import DefaultCharset, NonUniqueIndex
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members, is_integer
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId, UniqueIndex

_DEFAULTS: dict[type[Any], list[tuple[str, Any]]] = {
    cls: [(each.name, each.default) for each in fields(cls)] for cls in (Table, Column, UniqueIndex)
}
"""Names of fields and their defaults; ``MISSING`` equals no value."""


def structure_json(table: Table) -> dict[str, Any]:
    """Return a structure as plain JSON, without what has its default.

    Args:
        table: The structure.
    """
    lists: dict[str, tuple[Column | UniqueIndex, ...]] = {"columns": table.columns, "unique_keys": table.unique_keys}
    data = {name: value for name, value in _set_fields(table).items() if name not in lists}
    parts = {name: [_set_fields(part) for part in listed] for name, listed in lists.items()}
    return data | {"id": asdict(table.id)} | parts


def _set_fields(value: Table | Column | UniqueIndex) -> dict[str, Any]:
    return {name: each for name, default in _DEFAULTS[type(value)] if (each := getattr(value, name)) != default}


def read_structure(members: Members) -> Table:
    """Read what ``structure_json`` wrote.

    Args:
        members: The structure's members.

    Raises:
        DamagedRecordError: It is something else.
    """
    indexes = members.objects("unique_keys", ())
    values = _read_fields(Table, members, skip=("id", "columns", "unique_keys"))
    return Table(
        id=TableId(**_read_fields(TableId, members.object("id"))),
        columns=tuple(Column(**_read_fields(Column, each)) for each in members.objects("columns")),
        unique_keys=tuple(UniqueIndex(**_read_fields(UniqueIndex, each)) for each in indexes),
        **values,
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str)  # a name that the server wrote may have a lone surrogate


def _is_texts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_text, value))


def _is_integers(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(is_integer, value))


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "str": (_is_text, "a text"),
    "str | None": (lambda value: value is None or _is_text(value), "a text or null"),
    "int": (is_integer, "a whole number"),
    "int | None": (lambda value: value is None or is_integer(value), "a whole number or null"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "tuple[str, ...]": (_is_texts, "a list of texts"),
    "tuple[int, ...]": (_is_integers, "a list of whole numbers"),
}
"""Checks of values and what they should be, by the annotation of their fields."""


def _read_fields(cls: type[Any], members: Members, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the values of a dataclass's fields; those that are missing keep their defaults."""
    values: dict[str, Any] = {}
    for each in fields(cls):
        has_default = each.default is not MISSING
        if each.name in skip or (has_default and each.name not in members):
            continue
        value, (is_valid, expected) = members.value(each.name), _CHECKS[str(each.type)]
        if not is_valid(value):
            raise members.member_error(each.name, expected)
        values[each.name] = tuple(value) if isinstance(value, list) else value
    return values


@dataclass(frozen=True, slots=True)
class DescriptionPart:
    """Mark a record of a full description that a drain wrote, in one Kafka transaction.

    Args:
        records: Number of records of the description, in its first record; 0 in the others.
        defaults: Default character set of the server (first record) or of a database.
        indexes: Indexes of a table that are not unique.
    """

    records: int = 0
    defaults: DefaultCharset | None = None
    indexes: tuple[NonUniqueIndex, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, without members that are empty."""
        data: dict[str, Any] = {"records": self.records} if self.records else {}
        if self.defaults is not None:
            data["defaults"] = asdict(self.defaults)
        return data | ({"indexes": [asdict(index) for index in self.indexes]} if self.indexes else {})

    @classmethod
    def from_members(cls, members: Members) -> DescriptionPart:
        """Read what ``to_json`` wrote.

        Args:
            members: The members.

        Raises:
            DamagedRecordError: It is something else.
        """
        defaults = None if "defaults" not in members else _read_defaults(members.object("defaults"))
        indexes = tuple(map(_read_index, members.objects("indexes", ())))
        return cls(members.integer("records", 0), defaults, indexes)


def _read_defaults(members: Members) -> DefaultCharset:
    charset, collation, declared = (members.text(name) for name in ("charset", "collation", "declared"))
    return DefaultCharset(charset, collation, declared, members.flag("assumed"))


def _read_index(members: Members) -> NonUniqueIndex:
    name, columns = members.value("name"), tuple(members.values("columns"))
    if not isinstance(name, str):  # a name that the server wrote may have a lone surrogate
        raise members.member_error("name", "a text")
    if not all(column is None or isinstance(column, str) for column in columns):
        raise members.member_error("columns", "a list of texts and nulls")
    return NonUniqueIndex(name, columns, members.flag("generated"))
