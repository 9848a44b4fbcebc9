"""Texts of schemas that records name: the driver asks the schema registry once for each, its tasks ask the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable

from airflow_provider_mysql_cdc.cdc.avro.schema_registry import SchemaRegistry
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient
from airflow_provider_mysql_cdc.cdc.job.shared_operations import SCHEMA_TEXT, SchemaText, SchemaTextRequest
from airflow_provider_mysql_cdc.cdc.job.task_operation import TaskHandler
from airflow_provider_mysql_cdc.cdc.model.registry_settings import RegistrySettings

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
