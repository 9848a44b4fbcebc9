"""Check that the schema registries of a configuration answer."""

from __future__ import annotations

from airflow_provider_mysql_cdc.cdc.avro.schema_registry import SchemaRegistry
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.registry_fields import PARTS
from airflow_provider_mysql_cdc.cdc.errors import CdcError
from airflow_provider_mysql_cdc.cdc.model.finding import Finding, error_finding


def check_registries(cfg: ConnectorConfig) -> list[tuple[str, list[Finding]]]:
    """Request the subjects of each registry; return a sentence about each that answers, and what was found.

    Args:
        cfg: The configuration.
    """
    settings = dict.fromkeys(s for part in PARTS if (s := cfg.registry_settings(part)) is not None)
    results: list[tuple[str, list[Finding]]] = []
    for registry_settings in settings:
        try:
            registry = SchemaRegistry(registry_settings)
            try:
                count = registry.subject_count()
            finally:
                registry.close()
            results.append((f"reachable at {registry_settings.url}, {count} subject(s).", []))
        except CdcError as error:
            results.append(("", [error_finding(error)]))
    return results
