"""Operations that the tasks of every job call on their driver."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.job.task_operation import EmptyMessage, TaskOperation
from airflow_provider_mysql_cdc.cdc.model.registry_settings import SchemaId
from airflow_provider_mysql_cdc.cdc.model.stored_record import Record


@dataclass(frozen=True, slots=True)
class PropertiesKey(Record):
    """Hold the key that decrypts the properties in a task's arguments.

    Args:
        key: The key (``encrypted_properties``).
        server_uuid: The one server that may answer the task; None for any.
    """

    key: str
    server_uuid: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaIdRequest(Record):
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


@dataclass(frozen=True, slots=True)
class SchemaTextRequest(Record):
    """Ask for the text of a schema that records name.

    Args:
        part: ``key`` or ``value``.
        schema_id: Its id, a number, or its GUID.
    """

    part: F.ConverterPart
    schema_id: str


@dataclass(frozen=True, slots=True)
class SchemaText(Record):
    """Hold the text of a schema.

    Args:
        text: The text; None if the registry has no such schema.
    """

    text: str | None


PROPERTIES_KEY = TaskOperation("key", EmptyMessage, PropertiesKey)
"""A task asks for the key of its properties, before anything else."""
SCHEMA_ID = TaskOperation("schema", SchemaIdRequest, SchemaId)
"""A task asks for the id of a schema, once for each."""
SCHEMA_TEXT = TaskOperation("schema-text", SchemaTextRequest, SchemaText)
"""A task asks for the text of a schema, once for each."""
