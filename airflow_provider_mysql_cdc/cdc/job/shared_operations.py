"""Operations that the tasks of every job call on their driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.job.task_operation import EmptyMessage, TaskOperation
from airflow_provider_mysql_cdc.cdc.model.registry_settings import SchemaId


@dataclass(frozen=True, slots=True)
class PropertiesKey:
    """Hold the key that decrypts the properties in a task's arguments.

    Args:
        key: The key (``encrypted_properties``).
        server_uuid: The one server that may answer the task; None for any.
    """

    key: str
    server_uuid: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"key": self.key, "server": self.server_uuid}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> PropertiesKey:
        """Read what ``to_json`` wrote."""
        server = members["server"]
        return cls(str(members["key"]), None if server is None else str(server))


@dataclass(frozen=True, slots=True)
class SchemaIdRequest:
    """Ask for the id of a schema in its registry.

    Args:
        part: ``key`` or ``value``.
        subject: Subject of the schema.
        text: Text of the schema.
        about: Whose records it is for, in error messages.
    """

    part: F.ConverterPart
    subject: str
    text: str
    about: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"part": self.part, "subject": self.subject, "text": self.text, "about": self.about}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> SchemaIdRequest:
        """Read what ``to_json`` wrote."""
        return cls(
            "key" if members["part"] == "key" else "value",
            str(members["subject"]),
            str(members["text"]),
            str(members["about"]),
        )


@dataclass(frozen=True, slots=True)
class SchemaTextRequest:
    """Ask for the text of a schema that records name.

    Args:
        part: ``key`` or ``value``.
        schema_id: Its id, a number, or its GUID.
    """

    part: F.ConverterPart
    schema_id: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"part": self.part, "id": self.schema_id}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> SchemaTextRequest:
        """Read what ``to_json`` wrote."""
        return cls("key" if members["part"] == "key" else "value", str(members["id"]))


@dataclass(frozen=True, slots=True)
class SchemaText:
    """Hold the text of a schema.

    Args:
        text: The text; None if the registry has no such schema.
    """

    text: str | None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"text": self.text}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> SchemaText:
        """Read what ``to_json`` wrote."""
        text = members["text"]
        return cls(None if text is None else str(text))


PROPERTIES_KEY = TaskOperation("key", EmptyMessage, PropertiesKey)
"""A task asks for the key of its properties, before anything else."""
SCHEMA_ID = TaskOperation("schema", SchemaIdRequest, SchemaId)
"""A task asks for the id of a schema, once for each."""
SCHEMA_TEXT = TaskOperation("schema-text", SchemaTextRequest, SchemaText)
"""A task asks for the text of a schema, once for each."""
