"""Small transforms of Debezium 3.6.1 that look at whole events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_mysql_cdc.cdc.transforms.chain_record import ChainRecord
from airflow_provider_mysql_cdc.cdc.transforms.option_values import required_names
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import is_envelope
from airflow_provider_mysql_cdc.cdc.transforms.transform import Option, Transform

_CHANGE_TYPES = ("CREATE", "ALTER", "DROP", "TRUNCATE", "DATABASE")


class ReadToInsertEvent(Transform):
    """Give the rows of a snapshot op ``c`` in place of ``r``."""

    DOC = "snapshot rows have `op` `c` in place of `r`"

    def __init__(self, options: Mapping[str, Any]) -> None:
        pass

    def apply(self, record: ChainRecord) -> ChainRecord:
        """Apply the transform; see ``Transform``."""
        if record.value is not None and is_envelope(record.value_schema) and record.value.get("op") == "r":
            record.value["op"] = "c"
        return record


def _change_types(text: str) -> frozenset[str]:
    types = required_names(text)
    if unknown := [name for name in types if name not in _CHANGE_TYPES]:
        raise ValueError(f"has {', '.join(unknown)}; there is {', '.join(_CHANGE_TYPES)}")
    return frozenset(types)


class SchemaChangeEventFilter(Transform):
    """Drop schema changes of some types."""

    DOC = "drops schema changes of some types"
    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "schema.change.event.exclude.list": Option(
            _change_types, f"types of those to drop: {', '.join(_CHANGE_TYPES)}", required=True
        )
    }

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._excluded: frozenset[str] = options["schema.change.event.exclude.list"]

    def apply(self, record: ChainRecord) -> ChainRecord | None:
        """Apply the transform; see ``Transform``."""
        schema, value = record.value_schema, record.value
        if value is None or schema is None or not (schema.name or "").endswith(".SchemaChangeValue"):
            return record
        changes = value.get("tableChanges")
        if changes is None:
            return None
        kind = changes[0]["type"] if changes else "DATABASE"
        return None if kind in self._excluded else record
