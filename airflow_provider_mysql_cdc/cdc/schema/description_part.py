"""What a full description in the schema history holds that no statement can express."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.ddl.state import DefaultCharset, NonUniqueIndex
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members


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
