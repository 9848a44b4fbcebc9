"""The hook of the connection type ``schema_registry``: a registry's address and account, and the connection test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import BaseHook

from airflow_provider_mysql_cdc.cdc.errors import CdcError, ConfigError

if TYPE_CHECKING:
    from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
    from airflow_provider_mysql_cdc.cdc.config.property_sources import PropertySource

REGISTRY_CONN_ID = "schema_registry_conn_id"
"""Key of a task's properties, and of the extra of a ``mysql_cdc`` connection, that names such a connection."""
_URL, _SOURCE, _ACCOUNT = "schema.registry.url", "basic.auth.credentials.source", "basic.auth.user.info"


class SchemaRegistryHook(BaseHook):  # type: ignore[misc]
    """Read a ``schema_registry`` connection.

    Its host is the registry's address (``https://registry:8081``; several, comma-separated), login and password are its
    account. Its extra holds the other settings of the registry's client, under Confluent's names without the prefix
    ``value.converter.``: ``bearer.auth.token``, ``schema.registry.ssl.ca.location``, ``http.read.timeout.ms`` ...

    Args:
        schema_registry_conn_id: The connection.
    """

    conn_name_attr = REGISTRY_CONN_ID
    default_conn_name = "schema_registry_default"
    conn_type = "schema_registry"
    hook_name = "Schema registry"

    def __init__(self, schema_registry_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.schema_registry_conn_id = schema_registry_conn_id

    def settings(self) -> dict[str, str]:
        """Return a converter's properties without the prefix ``value.converter.``, with **secrets in clear text**.

        Raises:
            ConfigError: The connection does not exist, or its fields contradict each other.
        """
        from airflow_provider_mysql_cdc.cdc.config.registry_fields import connection_names
        from airflow_provider_mysql_cdc.connections import find_connection, read_extra

        conn = find_connection(self.schema_registry_conn_id, "schema registry", (self.conn_type,))
        extra = {name: str(value) for name, value in read_extra(conn).items() if value not in (None, "")}
        if unknown := sorted(extra.keys() - connection_names()):
            raise self._config_error(
                "the connection's extra has settings that are not for connecting to the registry",
                ", ".join(unknown),
                "put settings of converters, such as auto.register.schemas, into the task's properties; the extra "
                "accepts " + ", ".join(sorted(connection_names())),
            )
        settings = {_URL: self._url(conn), **self._account(conn, extra), **extra}
        return {name: value for name, value in settings.items() if value}

    def _url(self, conn: Any) -> str:
        host, port, scheme = (conn.host or "").strip(), conn.port, (conn.schema or "").strip().lower()
        if "://" not in host and host and scheme in ("http", "https"):
            host = f"{scheme}://{host}"
        if "://" not in host:
            raise self._config_error(
                "the connection has no registry address",
                "its host does not begin with https:// or http://" if host else "its host is empty",
                "write the host as https://registry.example.com:8081",
            )
        if port and ("," in host or urlsplit(host).port):
            raise self._config_error(
                "the connection has two ports: one in the address and one in the field port",
                "",
                "clear the field port",
            )
        if "@" in urlsplit(host).netloc and (conn.login or conn.password):
            raise self._config_error(
                "the connection has two accounts: one in the address and one in the user and password fields",
                "",
                "remove the account from the address, which Airflow shows",
            )
        authority, slash, path = host.partition("://")[2].partition("/")
        return f"{host.partition('://')[0]}://{authority}:{port}{slash}{path}" if port else host

    def _account(self, conn: Any, extra: Mapping[str, str]) -> dict[str, str]:
        login, password = conn.login or "", conn.password or ""
        if not login and not password:
            return {}
        if not login or ":" in login:
            raise self._config_error(
                "the connection has a password without a user" if not login else "the user name contains a colon",
                "",
                "enter a user name without a colon; put a token into the field bearer.auth.token",
            )
        if clash := sorted(n for n in extra if n.startswith(("basic.auth.", "bearer.auth."))):
            raise self._config_error(
                "the connection has two ways to authenticate",
                f"user and password are set, and so are {', '.join(clash)}",
                "keep one of them: user and password, or a token",
            )
        return {_SOURCE: "USER_INFO", _ACCOUNT: f"{login}:{password}"}

    def _config_error(self, what: str, why: str, remedy: str) -> ConfigError:
        return ConfigError(what, where=f"connection {self.schema_registry_conn_id}", why=why, remedy=remedy)

    def source(self, other_sources: Sequence[PropertySource]) -> PropertySource:
        """Return the properties of the converters that write Avro.

        Args:
            other_sources: The other sources of properties.

        Raises:
            ConfigError: Nothing is written as Avro, another source also configures the registry's client, or see
                ``settings``.
        """
        from airflow_provider_mysql_cdc.cdc.config import property_sources, read_properties
        from airflow_provider_mysql_cdc.cdc.config.field import Lookup
        from airflow_provider_mysql_cdc.cdc.config.registry_fields import PARTS, connection_names, is_avro
        from airflow_provider_mysql_cdc.cdc.config.ticdc_fields import is_ticdc

        resolved = property_sources.merge_sources(other_sources)
        get = Lookup(read_properties.read_properties(resolved.properties, None).values)
        parts = ("value",) if is_ticdc(get) else tuple(part for part in PARTS if is_avro(get, part))
        if not parts:
            raise self._config_error(
                "a schema registry is configured, but neither keys nor values are written as Avro",
                "",
                "set key.converter and value.converter to io.confluent.connect.avro.AvroConverter, or value.format to "
                f"ticdc-avro; or remove {REGISTRY_CONN_ID}",
            )
        registry_properties = {
            f"{part}.converter.{name}" for part in PARTS for name in connection_names(with_retries=False)
        }
        if duplicates := sorted(
            name for name in resolved.properties if read_properties.canonical_name(name) in registry_properties
        ):
            raise ConfigError(
                "the schema registry is configured twice",
                where=", ".join(f"{name} ({resolved.origins[name]})" for name in duplicates),
                why=f"connection {self.schema_registry_conn_id} configures it as well",
                remedy=f"remove these properties, or {REGISTRY_CONN_ID}",
            )
        values = {f"{part}.converter.{name}": value for part in parts for name, value in self.settings().items()}
        original_names = {name: name.partition(".converter.")[2] for name in values}
        label = f"connection {self.schema_registry_conn_id}"
        return property_sources.PropertySource(label, values, original_names, is_private=True)

    def test_connection(self) -> tuple[bool, str]:
        """Request the registry's subjects."""
        from airflow_provider_mysql_cdc.cdc.config.property_sources import PropertySource, load_config

        try:
            converter_properties = {f"value.converter.{name}": value for name, value in self.settings().items()}
            source = PropertySource(
                "the connection", {**_PLACEHOLDER_PROPERTIES, **converter_properties}, is_private=True
            )
            return check_registry(load_config([source]))
        except CdcError as error:
            return False, str(error)


# Required properties that the connection test does not use.
_PLACEHOLDER_PROPERTIES = {
    "topic.prefix": "test",
    "database.hostname": "localhost",
    "database.user": "nobody",
    "database.password": "none",
    "kafka.bootstrap.servers": "localhost:9092",
    "value.converter": "io.confluent.connect.avro.AvroConverter",
}


def check_registry(cfg: ConnectorConfig) -> tuple[bool, str]:
    """Request the subjects of each registry of a configuration.

    Args:
        cfg: The configuration.

    Returns:
        Whether all registries answer, and a line for each.
    """
    from airflow_provider_mysql_cdc.cdc.operate.check_setup import check_registries

    results = check_registries(cfg)
    lines = [f"Schema registry: {reached or found[0].error}" for reached, found in results]
    return not any(found for _, found in results), "\n".join(lines)
