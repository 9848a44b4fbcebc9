"""Ids of schemas: the driver of a job asks the registry, once for each schema, and tells its tasks.

So a registry sees one client however many executors there are, all writers of a job use the same ids, and those of keys
stand in the ledger before anybody writes a record with them (``commit.schema_id_records``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_provider_mysql_cdc.cdc.avro.schema_registry import Registry
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.schema_id_records import KnownSchema, moved_error, schema_name, schema_record
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.formats.record_format import AskId
from airflow_provider_mysql_cdc.cdc.job.coordinator import CoordinatorClient, Handler
from airflow_provider_mysql_cdc.cdc.model.registry_settings import RegistrySettings, SchemaId
from airflow_provider_mysql_cdc.cdc.sink.record_writer import SideRecord

log = logging.getLogger(__name__)
OPERATION = "schema"


class SchemaBook:
    """Keep the ids that a job uses.

    Args:
        cfg: The connector's configuration.
        commit: Commits ledger records in a transaction of their own; fails when a newer attempt is at work.
        load: Reads the ledger, for a job that puts no plan in force.
    """

    def __init__(
        self, cfg: ConnectorConfig, commit: Callable[[Sequence[SideRecord]], None], load: Callable[[], LedgerState]
    ) -> None:
        self._cfg, self._commit, self._load = cfg, commit, load
        self._known: dict[str, KnownSchema] | None = None
        self._epoch, self._takes = 0, False
        self._ids: dict[tuple[F.Part, str, str], SchemaId] = {}
        self._registries: dict[RegistrySettings, Registry] = {}
        self._lock = threading.Lock()

    def begin(self, ledger: LedgerState) -> None:
        """Take the ids that earlier records have, with a plan that comes into force.

        A snapshot of which nothing is committed takes the registry as it is: it fills the topics anew.

        Args:
            ledger: The ledger with the plan in it.
        """
        plan = ledger.plan_in_force()
        with self._lock:
            self._known = dict(ledger.schemas)
            self._epoch, self._takes = plan.epoch, plan.kind == "snapshot" and not ledger.begun()

    def id_of(self, part: F.Part, subject: str, text: str, about: str) -> SchemaId:
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
            found = self._ids.get((part, subject, text))
            if found is None:
                settings = self._cfg.registry_settings(part)
                assert settings is not None  # only Avro has schemas
                found = self._registry(settings).id_of(subject, text, about)
                # A GUID stands beside the bytes, and does not decide where they go.
                if part == "key" and found.guid is None:
                    self._pin(subject, text, found.number, about, settings.url)
                self._ids[part, subject, text] = found
            return found

    def _pin(self, subject: str, text: str, found: int, about: str, url: str) -> None:
        if self._known is None:
            self._known = dict(self._load().schemas)
        name = schema_name(subject, text)
        known = self._known.get(name)
        if known is not None and known.id == found:
            return
        if known is not None and not self._takes:
            raise moved_error(about, subject, url, known, found)
        if known is not None:
            log.warning("schema of keys of %s: id %d in place of %d; the new snapshot takes it", about, found, known.id)
        now = KnownSchema(found, self._epoch)
        self._commit([schema_record(self._cfg.ledger_topic, name, now)])
        self._known[name] = now

    def _registry(self, settings: RegistrySettings) -> Registry:
        if settings not in self._registries:
            self._registries[settings] = Registry(settings)
        return self._registries[settings]

    def handlers(self) -> Mapping[str, Handler]:
        """Return the coordinator's handlers that tell tasks."""
        return {OPERATION: self._tell}

    def _tell(self, task: int, request: dict[str, Any]) -> dict[str, Any]:
        part: F.Part = "key" if request["part"] == "key" else "value"
        return self.id_of(part, str(request["subject"]), str(request["text"]), str(request["about"])).to_json()

    def close(self) -> None:
        """Close the connections to registries."""
        for registry in self._registries.values():
            registry.close()
        self._registries.clear()


def ask_driver(channel: CoordinatorClient) -> AskId:
    """Return the function with which a task asks its driver for the ids of schemas.

    Args:
        channel: Calls to the driver.
    """

    def ask(part: F.Part, subject: str, text: str, about: str) -> SchemaId:
        return SchemaId.from_json(channel.call(OPERATION, part=part, subject=subject, text=text, about=about))

    return ask
