"""Ids of schemas: the driver of a job asks the registry, once for each schema, and tells its tasks.

So a registry sees one client however many executors there are, all writers of a job use the same ids, and those of keys
stand in the ledger before anybody writes a record with them (``commit.schema_id_records``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from airflow_provider_mysql_cdc.cdc.avro.schema_registry import SchemaRegistry
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.schema_id_records import (
    RecordedSchemaId,
    schema_id_changed_error,
    schema_id_record,
    schema_key_name,
)
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.formats.record_format import LookupSchemaId
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.shared_operations import SCHEMA_ID, SchemaIdRequest
from airflow_provider_mysql_cdc.cdc.job.task_operation import TaskHandler
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.registry_settings import RegistrySettings, SchemaId

log = logging.getLogger(__name__)


class SchemaIds:
    """Keep the ids that a job uses.

    Args:
        cfg: The connector's configuration.
        commit: Commits ledger records in a transaction of their own; fails when a newer attempt is at work.
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
        self._registries: dict[RegistrySettings, SchemaRegistry] = {}
        self._lock = threading.Lock()

    def begin(self, ledger: LedgerState) -> None:
        """Take the ids that earlier records have, with a plan that comes into force.

        A snapshot of which nothing is committed takes the registry as it is: it fills the topics anew.

        Args:
            ledger: The ledger with the plan in it.
        """
        plan = ledger.plan_in_force()
        with self._lock:
            self._recorded = dict(ledger.schemas)
            self._epoch, self._accepts_changes = plan.epoch, plan.kind == "snapshot" and not ledger.has_commits()

    def id_of(self, part: F.ConverterPart, subject: str, text: str, about: str) -> SchemaId:
        """Return the id of a schema; one that stands in the bytes of keys stands in the ledger then.

        Args:
            part: ``key`` or ``value``.
            subject: Its subject.
            text: Its text.
            about: Whose records it is for.

        Raises:
            RegistryError: The registry does not give it.
            SchemaIdChangedError: Keys that were written have another one.
            FencedError: A newer attempt has taken over.
        """
        with self._lock:
            schema_id = self._ids.get((part, subject, text))
            if schema_id is None:
                settings = self._cfg.registry_settings(part)
                assert settings is not None  # only Avro has schemas
                schema_id = self._registry(settings).schema_id(subject, text, about)
                # A GUID stands beside the bytes, and does not decide where they go.
                if part == "key" and schema_id.guid is None:
                    self._record_id(subject, text, schema_id.number, about, settings.url)
                self._ids[part, subject, text] = schema_id
            return schema_id

    def _record_id(self, subject: str, text: str, number: int, about: str, url: str) -> None:
        if self._recorded is None:
            self._recorded = dict(self._read_ledger().schemas)
        name = schema_key_name(subject, text)
        recorded = self._recorded.get(name)
        if recorded is not None and recorded.id == number:
            return
        if recorded is not None and not self._accepts_changes:
            raise schema_id_changed_error(about, subject, url, recorded, number)
        if recorded is not None:
            log.warning(
                "schema of keys of %s: id %d in place of %d; the new snapshot takes it", about, number, recorded.id
            )
        new_record = RecordedSchemaId(number, self._epoch)
        self._commit([schema_id_record(self._cfg.ledger_topic, name, new_record)])
        self._recorded[name] = new_record

    def _registry(self, settings: RegistrySettings) -> SchemaRegistry:
        if settings not in self._registries:
            self._registries[settings] = SchemaRegistry(settings)
        return self._registries[settings]

    def handler(self) -> TaskHandler:
        """Return the coordinator's handler that answers tasks."""
        return SCHEMA_ID.handled_by(
            lambda task, request: self.id_of(request.part, request.subject, request.text, request.about)
        )

    def close(self) -> None:
        """Close the connections to registries."""
        for registry in self._registries.values():
            registry.close()
        self._registries.clear()


def ask_driver(channel: CoordinatorClient) -> LookupSchemaId:
    """Return the function with which a task asks its driver for the ids of schemas.

    Args:
        channel: Calls to the driver.
    """

    def ask(part: F.ConverterPart, subject: str, text: str, about: str) -> SchemaId:
        return channel.call(SCHEMA_ID, SchemaIdRequest(part, subject, text, about))

    return ask
