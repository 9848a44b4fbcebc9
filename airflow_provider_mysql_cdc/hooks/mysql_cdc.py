"""The hook of the connection type ``mysql_cdc``: configuration, connection test and offset store."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseHook

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError, StateError
from airflow_provider_mysql_cdc.connections import find_connection, read_extra
from airflow_provider_mysql_cdc.hooks.replica_connection import replica_source
from airflow_provider_mysql_cdc.hooks.schema_registry import REGISTRY_CONN_ID, SchemaRegistryHook

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.commit.offset_store import OffsetStore
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.config.property_sources import PropertySource

# Consumer settings of librdkafka; a Kafka connection made for Airflow's Kafka provider often has them.
_CONSUMER_ONLY = frozenset(
    {"group.id", "auto.offset.reset", "enable.auto.commit", "auto.commit.interval.ms", "isolation.level"}
)


class MySqlCdcHook(BaseHook):  # type: ignore[misc]
    """Read a ``mysql_cdc`` connection and provide what a CDC run needs from Airflow.

    Host, port, login and password of the connection are the MySQL server's. Its extra holds connector properties under
    their Debezium names; a whole Kafka Connect JSON document (``{"name": ..., "config": {...}}``) works as well.

    Args:
        mysql_cdc_conn_id: The connection.
        kafka_conn_id: A connection of type ``kafka`` whose extra holds client settings (``bootstrap.servers``, ...);
            None uses the id in the key ``kafka_conn_id`` of the first connection's extra, if it is there.
        replica_conn_id: A connection of type ``mysql_cdc`` to a replica that verifications read; None for none.
    """

    conn_name_attr = "mysql_cdc_conn_id"
    default_conn_name = "mysql_cdc_default"
    conn_type = "mysql_cdc"
    hook_name = "MySQL CDC"

    def __init__(
        self,
        mysql_cdc_conn_id: str = default_conn_name,
        kafka_conn_id: str | None = None,
        replica_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.mysql_cdc_conn_id = mysql_cdc_conn_id
        self.kafka_conn_id = kafka_conn_id
        self.replica_conn_id = replica_conn_id

    def sources(self, properties: Mapping[str, Any] | None = None) -> list[PropertySource]:
        """Return the sources of properties; for each property the first source that has it wins.

        Args:
            properties: The task's own properties; ``schema_registry_conn_id`` among them names a connection of type
                ``schema_registry``, as it does in the first connection's extra.

        Raises:
            ConfigError: A connection does not exist, is of another type, or its extra is not a JSON object; or a
                converter's class is not allowed. See also ``SchemaRegistryHook.source``.
        """
        from airflow_provider_mysql_cdc.cdc.config import property_sources as sources
        from airflow_provider_mysql_cdc.hooks.allowed_classes import check_classes

        conn = find_connection(self.mysql_cdc_conn_id, "MySQL CDC", (self.conn_type,))
        extra = read_extra(conn)
        extra_kafka_conn_id = extra.pop("kafka_conn_id", None)
        kafka_conn_id = self.kafka_conn_id or extra_kafka_conn_id
        task_properties = _without_blanks(properties or {})
        registry_conn_id = task_properties.pop(REGISTRY_CONN_ID, None) or extra.pop(REGISTRY_CONN_ID, None)
        extra.pop(REGISTRY_CONN_ID, None)
        standard_fields = {name: getattr(conn, name) for name in sources.STANDARD_FIELDS}
        property_sources = [
            sources.params_source(task_properties, "the task's properties"),
            sources.connection_source(self.mysql_cdc_conn_id, standard_fields, extra),
        ]
        if self.replica_conn_id:
            property_sources.append(replica_source(self.replica_conn_id))
        if kafka_conn_id:
            settings = _without_blanks(read_extra(find_connection(kafka_conn_id, "Kafka", ("kafka",))))
            values = {f"kafka.{name}": value for name, value in settings.items() if name not in _CONSUMER_ONLY}
            original_names = {name: name.removeprefix("kafka.") for name in values}
            kafka = sources.PropertySource(f"connection {kafka_conn_id}", values, original_names, is_private=True)
            property_sources.append(kafka)
        environment = sources.environment_source(os.environ)
        check_classes(sources.merge_sources([*property_sources, environment]))
        if registry_conn_id:
            property_sources.append(SchemaRegistryHook(str(registry_conn_id)).source(property_sources))
        return [*property_sources, environment]

    def get_config(
        self,
        properties: Mapping[str, Any] | None = None,
        *,
        names_from_run: Collection[str] = (),
        run_properties: Collection[str] = (),
    ) -> ConnectorConfig:
        """Return the validated configuration: the task's properties, then the connections, then the environment.

        Args:
            properties: Connector properties that win over the connections. Airflow's UI shows them, so secrets are
                refused here.
            names_from_run: Those among them whose values a DAG run brings, for example through its trigger form.
            run_properties: Properties that such a run may set beside those that every run may set.

        Raises:
            ConfigError: A property is wrong or missing, and the error lists every problem; or the run sets one that it
                may not set.
        """
        from airflow_provider_mysql_cdc.cdc.config import property_sources as sources
        from airflow_provider_mysql_cdc.cdc.config.property_names import hide_salt, holds_secret
        from airflow_provider_mysql_cdc.cdc.config.property_sources import check_run_properties

        if leaked := sorted(name for name in _without_blanks(properties or {}) if holds_secret(name)):
            raise ConfigError(
                "the task's properties contain a secret, and Airflow stores and shows these properties",
                where=", ".join(map(hide_salt, leaked)),
                remedy=f"move it into the connection {self.mysql_cdc_conn_id}, the Kafka connection or the schema "
                "registry connection, and change the secret",
            )
        check_run_properties(names_from_run, run_properties, self.mysql_cdc_conn_id)
        resolved = sources.merge_sources(self.sources(properties))
        mask_secrets(resolved.properties)
        cfg = resolved.config()
        for settings in cfg.families.kafka_settings.values():
            mask_secrets(settings)
        for note in cfg.notes:
            self.log.info("%s", note)
        return cfg

    def get_offset_store(
        self, cfg: ConnectorConfig, *, accessor: Any = None, offset_conn_id: str | None = None
    ) -> OffsetStore:
        """Return the store of the offset.

        Args:
            cfg: The configuration; ``topic.prefix`` identifies the pipeline.
            accessor: Airflow's accessor of an asset's state (``context["asset_state_store"][asset]``).
            offset_conn_id: Connection of a database; it wins over the asset.

        Raises:
            ConfigError: The connection does not exist, or cannot be used; see ``open_engine``.
            StateError: There is neither an accessor nor a connection, or the database does not answer.
        """
        from airflow_provider_mysql_cdc.cdc.config import fields as F

        prefix = cfg[F.TOPIC_PREFIX]
        if offset_conn_id:
            from airflow_provider_mysql_cdc.state.offset_database import sql_store

            return sql_store(offset_conn_id, prefix)
        if accessor is None:
            raise StateError(
                "the offset cannot be stored: this Airflow has no asset state",
                why="asset state was added in Airflow 3.3",
                remedy="set offset_conn_id to a database connection, or upgrade Airflow",
            )
        from airflow_provider_mysql_cdc.state.asset_store import AssetOffsetStore

        return AssetOffsetStore(accessor, prefix)

    def test_connection(self) -> tuple[bool, str]:
        """Check server, account, settings, Kafka and schema registry, as ``mysql-cdc preflight`` does."""
        from airflow_provider_mysql_cdc.cdc.operate.check_setup import check_setup

        try:
            cfg = self.get_config()
        except CdcError as error:
            # Airflow tests a form under an id of its own.
            named = rf"\b(the )?connection {re.escape(self.mysql_cdc_conn_id)}(?![\w.-])"
            return False, re.sub(named, "this connection", str(error))
        reports = check_setup(cfg)
        return all(report.ok for report in reports), "\n".join(line for report in reports for line in report.lines())

    def get_conn(self) -> Any:
        """Return an open pymysql connection to the source server; of several, to the one that a drain would read.

        Raises:
            CdcError: The server cannot be reached, or the configuration is wrong.
        """
        from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
        from airflow_provider_mysql_cdc.cdc.operate.source_server import at_server_of_ledger

        return connect(at_server_of_ledger(self.get_config()).connection_settings())


def mask_secrets(properties: Mapping[str, Any]) -> None:
    """Make Airflow mask the values of secret properties, and salts, in the task log."""
    from airflow.sdk.log import mask_secret

    from airflow_provider_mysql_cdc.cdc.config.property_names import is_secret, salt_of
    from airflow_provider_mysql_cdc.cdc.model.connection import Secret

    for name, value in properties.items():
        plain = value.reveal() if isinstance(value, Secret) else value
        for secret in (salt_of(name), plain if is_secret(name) else None):
            if secret:
                mask_secret(str(secret))


def _without_blanks(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties without the empty ones: a form field left blank means the default."""
    return {name: value for name, value in properties.items() if value is not None and value != ""}
