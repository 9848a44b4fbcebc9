"""``ExtractChangedRecordState`` of Debezium 3.6.1: headers that list the columns that a change touched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.transforms.chain_record import ChainHeader, ChainRecord
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import OPTIONAL_STRING, RecordSchema, is_envelope
from airflow_provider_mysql_cdc.cdc.transforms.transform import Option, Transform


class ExtractChangedRecordState(Transform):
    """Add headers with the names of the columns that an update changed, and of those that it did not."""

    DOC = "adds headers with the columns that a change touched and did not touch"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "header.changed.name": Option(str.strip, "header of the changed columns; without it there is none", ""),
        "header.unchanged.name": Option(str.strip, "header of the other columns", ""),
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._headers = [
            (name, RecordSchema("array", True, name=name, items=OPTIONAL_STRING), changed)
            for option, changed in (("header.changed.name", True), ("header.unchanged.name", False))
            if (name := options[option])
        ]

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        schema, event = record.value_schema, record.value
        if event is None or schema is None or not is_envelope(schema):
            return record
        before, after = event.get("before"), event.get("after")
        names: dict[bool, list[str]] = {True: [], False: []}
        if before is not None and after is not None:
            for member in schema.by_name["after"].schema.fields:
                old, new = before.get(member.name), after.get(member.name)
                # Debezium has the bits of BIT(n) as byte[], of which no two are equal for Java.
                changed = old != new or (new is not None and member.schema.name == "io.debezium.data.Bits")
                names[changed].append(member.name)
        record.headers += [ChainHeader(name, header, names[changed]) for name, header, changed in self._headers]
        return record
