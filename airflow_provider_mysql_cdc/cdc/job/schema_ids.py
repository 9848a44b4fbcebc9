"""Ids and texts of schemas: the driver of a job asks the schema registry once for each, and its tasks ask the
driver.

Ids of schemas: the driver of a job asks the schema registry once for each schema, and its tasks ask the driver.

So the registry has one client however many executors there are, all writers of a job use the same ids, and the ids of
key schemas are in the ledger before a record is written with them (``commit.topic_records``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_provider_mysql_cdc.cdc.avro.schema_registry import SchemaRegistry
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.topic_records import (
    RecordedSchemaId,
    schema_id_changed_error,
    schema_id_record,
    schema_key_name,
)
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import IncompatibleSchemaError
from airflow_provider_mysql_cdc.cdc.formats.record_format import LookupSchemaId
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.task_operation import EmptyMessage, TaskHandler, TaskOperation
from airflow_provider_mysql_cdc.cdc.model.connection import RegistrySettings, SchemaId
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
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


log = logging.getLogger(__name__)


class SchemaIds:
    """Keep the schema ids that a job uses.

    Args:
        cfg: The connector's configuration.
        commit: Commits ledger records in a transaction of their own; fails when a newer attempt is active.
        read_ledger: Reads the ledger, for a job that puts no plan in force.
    """

    def __init__(
        self,
        cfg: ConnectorConfig,
        commit: Callable[[Sequence[SideRecord]], None],
        read_ledger: Callable[[], LedgerState],
    ) -> None:
        self._cfg, self._commit, self._read_ledger = cfg, commit, read_ledger
        self._recorded: dict[str, RecordedSchemaId] | None = None
        self._epoch, self._accepts_changes = 0, False
        self._ids: dict[tuple[F.ConverterPart, str, str], SchemaId] = {}
        self._users: dict[tuple[F.ConverterPart, str], set[str]] = {}
        self._registries: dict[RegistrySettings, SchemaRegistry] = {}
        self._lock = threading.Lock()

    def begin(self, ledger: LedgerState) -> None:
        """Load the ids that earlier records have, when a plan comes into force.

        A snapshot of which nothing is committed accepts other ids, because it fills the topics again.

        Args:
            ledger: The ledger with the plan in it.
        """
        plan = ledger.plan_in_force()
        with self._lock:
            self._recorded = dict(ledger.schemas)
            self._epoch, self._accepts_changes = plan.epoch, plan.kind == "snapshot" and not ledger.has_commits()

    def id_of(self, part: F.ConverterPart, subject: str, text: str, about: str) -> SchemaId:
        """Return the id of a schema; one that becomes part of the bytes of keys is written to the ledger first.

        Args:
            part: ``key`` or ``value``.
            subject: Its subject.
            text: Its text.
            about: Whose records it is for, in error messages.

        Raises:
            RegistryError: The registry does not return it.
            IncompatibleSchemaError: It rejects the schema; tables that share the subject are named.
            SchemaIdChangedError: Earlier keys were written with another id.
            FencedError: A newer attempt has taken over.
        """
        with self._lock:
            self._users.setdefault((part, subject), set()).add(about)
            schema_id = self._ids.get((part, subject, text))
            if schema_id is None:
                settings = self._cfg.registry_settings(part)
                assert settings is not None  # only Avro has schemas
                try:
                    schema_id = self._registry(settings).schema_id(subject, text, about)
                except IncompatibleSchemaError as error:
                    raise self._with_other_users(error, part, subject, about) from error
                # A GUID is in a header, so it does not decide the partition of a key.
                if part == "key" and schema_id.guid is None:
                    self._record_id(subject, text, schema_id.number, about, settings.url)
                self._ids[part, subject, text] = schema_id
            return schema_id

    def key_ids(self, topic: str) -> frozenset[int]:
        """Return the ids of all schemas that keys of a topic were written with; those of all topics if it has none."""
        with self._lock:
            recorded = self._recorded_ids()
            own = frozenset(each.id for name, each in recorded.items() if name.startswith(f"{topic}-key/"))
            return own or frozenset(each.id for each in recorded.values())

    def _recorded_ids(self) -> dict[str, RecordedSchemaId]:
        if self._recorded is None:
            self._recorded = dict(self._read_ledger().schemas)
        return self._recorded

    def _with_other_users(
        self, error: IncompatibleSchemaError, part: F.ConverterPart, subject: str, about: str
    ) -> IncompatibleSchemaError:
        """Return a refusal that says whose schemas the subject may have, where topics can share it."""
        strategy = self._cfg[F.CONVERTER_FIELDS[part].subjects]
        if strategy != F.RECORD_NAME_STRATEGY:
            return error
        others = ", ".join(sorted(self._users[part, subject] - {about})) or "another table, perhaps,"
        sharing = f"{others} has this subject as well"
        name = F.CONVERTER_FIELDS[part].subjects.name
        return IncompatibleSchemaError(
            error.what,
            where=error.where,
            why=f"{error.why}; {sharing}: {name}={strategy} names it by the schema's name, in which every character "
            "that Avro does not allow is an underscore",
            remedy=f"if two tables share the subject, give each one of its own with {name}=TopicNameStrategy "
            f"(a batch that has begun keeps the strategy of keys), or exclude one of them; otherwise {error.remedy}",
            retriable=error.can_retry,
        )

    def _record_id(self, subject: str, text: str, number: int, about: str, url: str) -> None:
        known, name = self._recorded_ids(), schema_key_name(subject, text)
        recorded = known.get(name)
        if recorded is not None and recorded.id == number:
            return
        if recorded is not None and not self._accepts_changes:
            raise schema_id_changed_error(about, subject, url, recorded, number)
        if recorded is not None:
            log.warning(
                "the key schema of %s has id %d, before it was %d; the new snapshot uses the new id",
                about,
                number,
                recorded.id,
            )
        new_record = RecordedSchemaId(number, self._epoch)
        self._commit([schema_id_record(self._cfg.ledger_topic, name, new_record)])
        known[name] = new_record

    def _registry(self, settings: RegistrySettings) -> SchemaRegistry:
        if settings not in self._registries:
            self._registries[settings] = SchemaRegistry(settings)
        return self._registries[settings]

    def handler(self) -> TaskHandler:
        """Return the coordinator's handler for tasks that ask for an id."""
        return SCHEMA_ID.handled_by(
            lambda task, request: self.id_of(request.part, request.subject, request.text, request.about)
        )

    def close(self) -> None:
        """Close the connections to registries."""
        for registry in self._registries.values():
            registry.close()
        self._registries.clear()


def ask_driver(channel: CoordinatorClient) -> LookupSchemaId:
    """Return a function with which a task asks its driver for the id of a schema.

    Args:
        channel: Calls to the driver.
    """

    def ask(part: F.ConverterPart, subject: str, text: str, about: str) -> SchemaId:
        return channel.call(SCHEMA_ID, SchemaIdRequest(part, subject, text, about))

    return ask


# Records name few schemas; damaged ones may name any.
_MAX_TEXTS = 10_000


class SchemaTexts:
    """Keep the texts of schemas that the records of a job name.

    Args:
        cfg: The connector's configuration.
    """

    def __init__(self, cfg: ConnectorConfig) -> None:
        self._cfg = cfg
        self._texts: dict[tuple[RegistrySettings, str], str | None] = {}
        self._registries: dict[RegistrySettings, SchemaRegistry] = {}
        self._lock = threading.Lock()

    def text_of(self, part: F.ConverterPart, schema_id: str) -> str | None:
        """Return the text of a schema; None if the registry has no such schema.

        Args:
            part: ``key`` or ``value``, which may have registries of their own.
            schema_id: Its id, a number, or its GUID.

        Raises:
            RegistryError: The registry's answer cannot be used.
            RegistryAuthError: It rejects the credentials.
            RegistryConnectionError: It cannot be reached, or fails.
        """
        settings = self._cfg.registry_settings(part)
        assert settings is not None  # only Avro has schemas
        with self._lock:
            if (settings, schema_id) not in self._texts:
                if len(self._texts) >= _MAX_TEXTS:
                    self._texts.clear()
                self._texts[settings, schema_id] = self._registry(settings).schema_text(schema_id)
            return self._texts[settings, schema_id]

    def _registry(self, settings: RegistrySettings) -> SchemaRegistry:
        if settings not in self._registries:
            self._registries[settings] = SchemaRegistry(settings)
        return self._registries[settings]

    def handler(self) -> TaskHandler:
        """Return the coordinator's handler for tasks that ask for a text."""
        return SCHEMA_TEXT.handled_by(lambda task, request: SchemaText(self.text_of(request.part, request.schema_id)))

    def close(self) -> None:
        """Close the connections to registries."""
        for registry in self._registries.values():
            registry.close()
        self._registries.clear()


def ask_driver_for_texts(channel: CoordinatorClient) -> Callable[[F.ConverterPart, str], str | None]:
    """Return a function with which a task asks its driver for the text of a schema, by part and id.

    Args:
        channel: Calls to the driver.
    """
    return lambda part, schema_id: channel.call(SCHEMA_TEXT, SchemaTextRequest(part, schema_id)).text
